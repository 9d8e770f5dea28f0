//! xdptun carries UDP through networks that only let TCP live.
//!
//! | module | what it holds |
//! |---|---|
//! | [`cli`] | the command line, a file for each verb |
//! | [`config`] | what an operator configures |
//! | [`service`] | many interfaces in one process: start, signals, reload, end |
//! | [`control`] | how one xdptun asks another that runs |
//! | [`capture`] | packets as they are on the wire and restored, side by side |
//! | [`resolve`] | host names of peers, looked up again and again |
//! | [`tunnel`] | the life of one interface, from attach to detach |
//! | [`datapath`] | loading, attaching and pinning of the kernel side; the only place that names its maps |
//! | [`daemon`] | what runs while attached: queue, handshake timers, keepalive, expiry |
//! | [`doctor`] | what on this host would keep datagrams from passing |
//! | [`interface`] | what the kernel says of a network interface |
//! | [`ports`] | which ports are owned |
//! | [`status`] | what is attached, counted and carried, as other programs read it |
//! | [`rates`] | what happened between two looks at that |
//! | [`metrics`] | the same for Prometheus |
//! | [`flow`] | what a flow is called, and the states of its life |
//!
//! # In another program
//!
//! The command line is one user of this library. Another program takes these:
//!
//! | to | take |
//! |---|---|
//! | attach | [`tunnel::Tunnel::attach`] with a [`tunnel::Plan`], made of a [`config::InterfaceConfig`]; then [`tunnel::Tunnel::run`] carries datagrams |
//! | hear of events | a [`daemon::Observer`] |
//! | change it, detach | [`tunnel::Handle`]; [`detach::detach`] for what another process attached |
//! | look at it | [`status::Status::read`] |
//! | carry all of a file | [`service::run`], as `xdptun run` does |
//!
//! It needs root, or `CAP_BPF`, `CAP_NET_ADMIN`, `CAP_NET_RAW` and `CAP_PERFMON`; and a
//! tokio runtime with one thread, as `#[tokio::main(flavor = "current_thread")]` makes it.
//! A whole program, `xdptun/examples/embed.rs`:
//!
//! ```no_run
#![doc = include_str!("../examples/embed.rs")]
//! ```

/// Flows: their keys, states and entries of the table.
pub mod flow {
    pub use xdptun_common::flow::key::FlowKey;
    pub use xdptun_common::tunnel::state::{Flow, KeptFields, Opener, State};
}

mod addresses;
pub mod capture;
pub mod cli;
pub mod clock;
pub mod config;
pub mod control;
pub mod daemon;
pub mod datapath;
pub mod detach;
pub mod doctor;
mod ephemeral;
mod ethtool;
pub mod interface;
pub mod lock;
pub mod metrics;
pub mod mtu;
mod netlink;
mod netns;
mod notify;
pub mod ports;
pub mod preflight;
mod privileges;
pub mod rates;
pub mod resolve;
mod running;
mod secret;
mod servers;
pub mod service;
mod signals;
pub mod status;
pub mod tunnel;

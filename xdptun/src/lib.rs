//! xdptun carries UDP through networks that pass only TCP.
//!
//! The rooms, each of which uses itself and those above it:
//!
//! | room | what it holds |
//! |---|---|
//! | [`error`] | the error of the library: a kind, a message, its causes |
//! | [`host`] | this host: interfaces, addresses, ports, clock |
//! | [`process`] | this process: signals, privileges, its service manager |
//! | [`control`] | how one xdptun asks another that runs |
//! | [`datapath`] | the engine of any function: attaches, pins and removes programs |
//! | [`config`] | the configuration file and the values of options |
//! | [`group`] | interfaces that one process carries together, from attach to detach, for any function |
//! | [`tunnel`] | the tunnel, a function: its plan, its maps, its daemon |
//! | [`gateway`] | the gateway, a function: forwarded ports, and inside hosts that share an address |
//! | [`nat64`] | NAT64, a function: IPv6-only clients reach IPv4 |
//! | [`observe`] | status, rates, metrics and captures of attachments |
//! | [`doctor`] | finds problems on this host that keep datagrams from passing |
//! | [`service`] | many interfaces in one process: start, signals, reload, end |
//! | [`cli`] | the command line, a file for each verb |
//!
//! # In another program
//!
//! The command line is one user of this library. Another program takes these:
//!
//! | to | take |
//! |---|---|
//! | attach | [`group::Group::attach`] with a [`tunnel::Plan`], made of a [`config::InterfaceConfig`]; then [`group::Group::run_until`] carries datagrams |
//! | hear of events | a [`tunnel::daemon::Observer`] |
//! | change it while it runs | [`group::Group::run`] with the orders of a [`group::Handle`] |
//! | detach | `run` and `run_until` do at their end; [`group::detach::detach`] for what another process attached |
//! | look at it | [`observe::status::Status::read`] |
//! | act on what fails | [`error::Error::kind`] |
//! | carry all of a file | [`service::run`], as `xdptun run` does |
//!
//! It needs root, or `CAP_BPF`, `CAP_NET_ADMIN`, `CAP_NET_RAW` and `CAP_PERFMON`; and a
//! tokio runtime with one thread, as `#[tokio::main(flavor = "current_thread")]` makes it.
//! The shortest useful program, `xdptun/examples/carry.rs`:
//!
//! ```no_run
#![doc = include_str!("../examples/carry.rs")]
//! ```
//!
//! One that hears of its flows and tells what they carried, `xdptun/examples/embed.rs`:
//!
//! ```no_run
#![doc = include_str!("../examples/embed.rs")]
//! ```

/// Flows: their keys, states and entries of the table.
pub mod flow {
    pub use xdptun_common::flow::key::FlowKey;
    pub use xdptun_common::tunnel::state::{Flow, KeptFields, Opener, State};
}

pub mod cli;
pub mod config;
pub mod control;
pub mod datapath;
pub mod doctor;
pub mod error;
pub mod gateway;
pub mod group;
pub mod host;
pub mod nat64;
pub mod observe;
pub mod policy;
pub mod process;
pub mod service;
pub mod tunnel;

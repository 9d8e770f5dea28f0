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

pub mod capture;
pub mod cli;
pub mod clock;
pub mod config;
pub mod control;
pub mod daemon;
pub mod datapath;
pub mod detach;
pub mod doctor;
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
pub mod rates;
pub mod resolve;
mod secret;
mod servers;
pub mod service;
mod signals;
pub mod status;
pub mod tunnel;

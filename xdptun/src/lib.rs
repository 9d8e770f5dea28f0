//! xdptun carries UDP through networks that only let TCP live.
//!
//! | module | what it holds |
//! |---|---|
//! | [`cli`] | the command line, a file for each verb |
//! | [`datapath`] | loading, attaching and pinning of the kernel side; the only place that names its maps |
//! | [`daemon`] | what runs while attached: queue, handshake timers, keepalive, expiry |
//! | [`interface`] | what the kernel says of a network interface |
//! | [`ports`] | which ports are owned |

pub mod cli;
pub mod clock;
pub mod daemon;
pub mod datapath;
pub mod interface;
pub mod lock;
pub mod mtu;
mod netlink;
pub mod ports;
pub mod preflight;
mod secret;
mod servers;

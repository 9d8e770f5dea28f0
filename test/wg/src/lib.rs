//! WireGuard between two hosts of the laboratory and a file to download: the
//! main job of xdptun as a scenario.
//!
//! The end-to-end test, `cargo xtask demo` and `cargo xtask bench wg` all run
//! this one, so that what is shown, tested and measured is the same thing.

pub mod config;
pub mod crossing;
pub mod forwarding;
pub mod gateway;
pub mod keys;
mod network;
pub mod scenario;
pub mod tunnel;
pub mod user_space;
pub mod web;

pub use crossing::Crossing;
pub use forwarding::Forwarding;
pub use gateway::Gateway;
pub use network::Between;
pub use scenario::{Path, Scenario};
pub use tunnel::{Implementation, Tunnel};

/// The UDP port of both WireGuard peers, which xdptun disguises.
pub const TUNNEL_PORT: u16 = 8000;

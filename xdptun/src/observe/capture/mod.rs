//! Packets as they are on the wire and as the host knows them, side by side.
//!
//! While a client captures, the programs of an interface copy each packet before they
//! change it and after (`host/capture.rs` of the programs). The daemon passes the copies on
//! through the control socket (`serve`), so that a client needs no rights over programs
//! and maps. The client (`listen`) puts the two copies of a packet together (`packet`)
//! and writes them to a file (`file`).

pub mod file;
mod frame;
pub mod listen;
pub mod packet;
pub(crate) mod serve;

/// The version of the protocol on the socket: that of the program.
const VERSION: &str = env!("CARGO_PKG_VERSION");

//! Packets as they are on the wire and as the host knows them, side by side.
//!
//! The programs of an interface copy each packet before they change it and after
//! (`record.rs` of the programs), as long as somebody listens. Who keeps the
//! interface passes the copies on through the control socket (`serve`), so that
//! listening takes no right over programs and maps; who listens puts the two copies
//! of a packet together (`packet`) and writes them to a file (`file`).

pub mod file;
mod frame;
pub mod listen;
pub mod packet;
pub(crate) mod serve;

/// The version of what is said on the socket: that of the program.
const VERSION: &str = env!("CARGO_PKG_VERSION");

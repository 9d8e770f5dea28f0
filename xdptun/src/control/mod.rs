//! How a command asks a running xdptun: over a Unix socket, a line of JSON each way. After
//! the answer to some commands, data follows on the same connection.

mod client;
mod protocol;
mod server;

pub use client::{ask, listens, service, status};
pub use protocol::{Answer, Command, Place, Report, ReportedState};
pub use server::{Asker, Control, Socket, forget};

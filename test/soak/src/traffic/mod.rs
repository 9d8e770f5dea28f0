//! Clients that ask, and a server that answers.

mod client;
mod gate;
mod server;
mod worker;

pub use client::{Client, Stream};
pub use gate::Gate;
pub use server::Server;

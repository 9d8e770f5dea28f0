//! The load generator: UDP between two sockets of this machine.
//!
//! Two threads, each pinned to a CPU of its own. On a veth pair the sender's
//! thread carries a datagram all the way into the receiver's socket, so the
//! sender's CPU holds the whole datapath and the receiver's only the reading.
//! Every run is bounded in time and in datagrams.

mod batch;
mod flood;
pub mod pin;
mod ping;
mod search;

pub use batch::Batch;
pub use flood::{Load, Pace, Wait, carry, carry_by};
pub use ping::{first_delivery, round_trips};
pub use search::highest_lossless;

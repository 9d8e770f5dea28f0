//! How a flow opens, lives with the routers and losses of its path, and ends.

mod ending;
mod handshake;
mod lost;
mod moved;
mod nat;
mod recovery;
mod retransmission;
mod router;
mod simultaneous;
mod sparse;

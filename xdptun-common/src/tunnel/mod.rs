//! The tunnel: the fake connection, and how a header becomes the other.

pub mod ack;
pub mod config;
pub mod handshake;
pub mod isn;
pub mod outcome;
pub mod proof;
pub mod replay;
pub mod sent;
pub mod share;
pub mod state;
pub mod translate;
pub mod window;

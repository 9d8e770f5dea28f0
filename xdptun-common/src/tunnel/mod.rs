//! The fake TCP connection, and the translation between UDP and TCP headers.

pub mod ack;
pub mod config;
pub mod event;
pub mod fragment;
pub mod group;
pub mod handshake;
pub mod isn;
pub mod join;
pub mod merged;
pub mod options;
pub mod outcome;
pub mod proof;
pub mod replay;
pub mod sent;
pub mod share;
pub mod state;
pub mod translate;
pub mod veil;
pub mod window;

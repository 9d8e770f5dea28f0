//! The bytes of a packet, and what the kernel tells of it. Knows nothing of flows or functions.

pub mod access;
#[cfg(test)]
pub mod buffer;
pub mod copied;
pub mod direction;
pub mod error;
pub mod error_message;
pub mod extensions;
pub mod link;
pub mod mtu;
pub mod options;
pub mod payload;
pub mod resize;
pub mod settle;
pub mod skb;
pub mod verifier;
pub mod version;

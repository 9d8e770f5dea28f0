//! Translation between IPv6 and IPv4: addresses (RFC 6052), headers and ICMP messages (RFC 7915),
//! and the IPv4 addresses that clients get.

pub mod address;
pub mod chain;
pub mod header;
pub mod lease;
pub mod message;
pub mod outcome;
pub mod pool;
pub mod translator;

use crate::wire::{Ip as _, Ipv4Header, Ipv6Header};

/// How much longer the header of IPv6 is, in bytes.
pub const LONGER: u32 = (Ipv6Header::LEN - Ipv4Header::LEN) as u32;

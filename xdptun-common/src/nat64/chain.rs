//! What stands between the IPv6 header and the transport header, and whether it may be left out
//! (RFC 7915 section 5.1).

use crate::parse::Bytes;
use crate::wire::{FragmentHeader, Protocol};

/// What a chain of extension headers leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// What follows it.
    pub protocol: Protocol,
    /// Its length in bytes.
    pub len: usize,
    /// Where its fragment header starts, in bytes from its own start, if it has one.
    pub fragment: Option<usize>,
}

/// How many headers are followed: RFC 8200 names fewer, each of which should occur once.
const MAX_HEADERS: usize = 6;

/// The longest chain, in bytes.
pub const MAX_LEN: usize = 256;

/// A routing header.
const ROUTING: Protocol = Protocol(43);

/// Follows the headers at `start`, the first of which is of type `first`. `None` if the packet ends
/// before the chain, or has a header that may not be left out: one that authenticates addresses, asks
/// for a route that has not ended, stands behind a fragment header, or is not known.
#[inline(always)]
pub fn follow(packet: &(impl Bytes + ?Sized), start: usize, first: Protocol) -> Option<Chain> {
    let mut chain = Chain {
        protocol: first,
        len: 0,
        fragment: None,
    };
    for _ in 0..MAX_HEADERS {
        let is_header = crate::parse::is_extension(chain.protocol);
        if !is_header {
            return Some(chain);
        }
        if chain.fragment.is_some() || chain.len > MAX_LEN {
            return None;
        }
        let [next, units, _, left] = packet.read::<u32>(start + chain.len)?.to_ne_bytes();
        match chain.protocol {
            Protocol::IPV6_FRAGMENT => {
                chain.fragment = Some(chain.len);
                chain.len += FragmentHeader::LEN;
            }
            Protocol::HOP_BY_HOP | Protocol::DESTINATION_OPTIONS => {
                chain.len += (units as usize + 1) * 8;
            }
            ROUTING if left == 0 => chain.len += (units as usize + 1) * 8,
            _ => return None,
        }
        chain.protocol = Protocol(next);
    }
    None
}

impl Chain {
    /// A chain, or none, as one number, which a BPF function can return.
    #[inline(always)]
    #[must_use]
    pub const fn pack(chain: Option<Self>) -> u64 {
        match chain {
            None => 0,
            Some(chain) => {
                let fragment = match chain.fragment {
                    None => 0,
                    Some(at) => at as u64 + 1,
                };
                1 << 63 | fragment << 32 | (chain.len as u64) << 8 | chain.protocol.0 as u64
            }
        }
    }

    /// The inverse of [`Chain::pack`].
    #[inline(always)]
    #[must_use]
    pub const fn unpack(packed: u64) -> Option<Self> {
        if packed >> 63 == 0 {
            return None;
        }
        Some(Self {
            protocol: Protocol(packed as u8),
            len: (packed >> 8) as usize & 0xffff,
            fragment: ((packed >> 32) as usize & 0xffff).checked_sub(1),
        })
    }
}

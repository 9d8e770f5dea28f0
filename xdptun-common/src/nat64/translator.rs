//! What the programs translate, as user space sets it.

use super::address::{Prefix, is_global};
use super::pool::Pool;

/// How many networks of clients there may be.
pub const MAX_INSIDE: u32 = 16;

/// Name of a read-only variable, `u32`: the length of the prefix in bits. The verifier removes what it
/// rules out.
pub const PREFIX_LEN: &str = "PREFIX_LEN";

/// What the programs translate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Translator {
    /// Behind which IPv4 addresses stand in IPv6.
    pub prefix: Prefix,
    /// The addresses of clients in IPv4.
    pub pool: Pool,
    /// The device's own address, one of the pool.
    pub own: [u8; 4],
    /// The same behind the prefix.
    pub own_v6: [u8; 16],
    /// Not zero if clients may reach only global addresses, and each other.
    pub only_global: u32,
    /// The largest IPv4 packet that still fits the way to clients when it is IPv6, in bytes.
    pub mtu_v4: u32,
    /// How many clients may have an address without an answer to them.
    pub max_unanswered: u32,
    /// How many clients of a network of 64 bits may have an address.
    pub max_per_network: u32,
    /// How long the address of a client stays its own after its last packet, in ticks.
    pub answered: u32,
    /// The same of a client that was never answered.
    pub unanswered: u32,
    /// What the choice of addresses depends on beside the client, so that nobody can foretell it.
    pub key: [u64; 2],
}

crate::plain!(Translator: 88);

impl Translator {
    /// Whether clients may reach an IPv4 address.
    #[inline(always)]
    #[must_use]
    pub const fn may_reach(&self, address: [u8; 4]) -> bool {
        self.only_global == 0 || is_global(address) || self.pool.has(address)
    }
}

//! The key of a flow: addresses and ports.

use core::net::{IpAddr, SocketAddr};

use crate::address::{address_bytes, ip_addr};
use crate::parse::Located;
use crate::wire::Ip;

/// One pair of endpoints, seen from this host. Addresses are 16 bytes, IPv4 as
/// v4-mapped; ports are big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C, align(4))]
pub struct FlowKey {
    local: [u8; 16],
    remote: [u8; 16],
    local_port: [u8; 2],
    remote_port: [u8; 2],
}

crate::plain!(FlowKey: 36);

impl FlowKey {
    /// The flow between two socket addresses.
    #[must_use]
    pub const fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        Self::from_parts(
            address_bytes(local.ip()),
            local.port(),
            address_bytes(remote.ip()),
            remote.port(),
        )
    }

    /// The flow between two 16-byte addresses; ports are native numbers.
    #[inline(always)]
    #[must_use]
    pub const fn from_parts(
        local: [u8; 16],
        local_port: u16,
        remote: [u8; 16],
        remote_port: u16,
    ) -> Self {
        Self {
            local,
            remote,
            local_port: local_port.to_be_bytes(),
            remote_port: remote_port.to_be_bytes(),
        }
    }

    /// A hash of what differs among the flows of this host. Only who knows the seeds can choose two
    /// flows of the same hash (multilinear hashing, strongly universal: Lemire and Kaser, "Strongly
    /// universal string hashing is fast", 2014).
    #[inline(always)]
    #[must_use]
    pub const fn hash(&self, seeds: &[u64; 6]) -> u32 {
        let ([a, b, c, d], []) = self.remote.as_chunks::<4>() else {
            return 0;
        };
        let [e, f] = self.local_port;
        let [g, h] = self.remote_port;
        let words = [*a, *b, *c, *d, [e, f, g, h]];
        let mut sum = seeds[5];
        let mut at = 0;
        while at < words.len() {
            let word = u32::from_ne_bytes(words[at]) as u64;
            sum = sum.wrapping_add(seeds[at].wrapping_mul(word));
            at += 1;
        }
        (sum >> 32) as u32
    }

    /// The same flow, seen from the other end.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self {
            local: self.remote,
            remote: self.local,
            local_port: self.remote_port,
            remote_port: self.local_port,
        }
    }

    /// This host's end.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        SocketAddr::new(ip_addr(self.local), self.local_port())
    }

    /// The other end.
    #[must_use]
    pub const fn remote(&self) -> SocketAddr {
        SocketAddr::new(ip_addr(self.remote), self.remote_port())
    }

    /// Whether the flow runs over IPv4.
    #[must_use]
    pub const fn is_ipv4(&self) -> bool {
        matches!(ip_addr(self.remote), IpAddr::V4(_))
    }

    /// This host's port.
    #[inline(always)]
    #[must_use]
    pub const fn local_port(&self) -> u16 {
        u16::from_be_bytes(self.local_port)
    }

    /// The other end's port.
    #[inline(always)]
    #[must_use]
    pub const fn remote_port(&self) -> u16 {
        u16::from_be_bytes(self.remote_port)
    }

    /// The other end's address, 16 bytes.
    #[inline(always)]
    #[must_use]
    pub const fn remote_address(&self) -> [u8; 16] {
        self.remote
    }

    /// This host's address, 16 bytes.
    #[inline(always)]
    #[must_use]
    pub const fn local_address(&self) -> [u8; 16] {
        self.local
    }

    /// Both addresses as four words, for hashing.
    #[inline(always)]
    pub(crate) const fn address_words(&self) -> [u64; 4] {
        // SAFETY: both are 32 bytes without invalid values.
        unsafe { core::mem::transmute([self.local, self.remote]) }
    }

    /// Both ports as one word, for hashing.
    #[inline(always)]
    pub(crate) const fn port_word(&self) -> u32 {
        let local = u16::from_ne_bytes(self.local_port) as u32;
        let remote = u16::from_ne_bytes(self.remote_port) as u32;
        local << 16 | remote
    }
}

/// The flow of a packet with this IP header and these ports that this host sends.
#[inline(always)]
#[must_use]
pub fn sent_flow(ip: &impl Ip, (source, destination): (u16, u16)) -> FlowKey {
    FlowKey::from_parts(ip.source(), source, ip.destination(), destination)
}

/// The flow of one that this host receives.
#[inline(always)]
#[must_use]
pub fn received_flow(ip: &impl Ip, (source, destination): (u16, u16)) -> FlowKey {
    FlowKey::from_parts(ip.destination(), destination, ip.source(), source)
}

impl<I: Ip> Located<I> {
    /// The flow of a packet that this host sends.
    #[inline(always)]
    #[must_use]
    pub fn outbound(&self, ports: (u16, u16)) -> FlowKey {
        sent_flow(&self.ip, ports)
    }

    /// The flow of a packet that this host receives.
    #[inline(always)]
    #[must_use]
    pub fn inbound(&self, ports: (u16, u16)) -> FlowKey {
        received_flow(&self.ip, ports)
    }
}

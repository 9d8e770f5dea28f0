//! Where the transport segment of a packet is, and what stands in its way.

use crate::Plain;
use crate::address::is_mapped;
use crate::wire::{Fragment, Ip, IpVersion, Protocol};

/// Read access to the bytes of a packet.
///
/// In the kernel this is a bounds-checked load from packet memory, on the host
/// a slice, so the same parser serves both.
pub trait Bytes {
    /// The value at `offset`, or `None` if the packet ends before its end.
    fn read<T: Plain>(&self, offset: usize) -> Option<T>;
}

/// A packet whose IPv6 extension headers can be followed. A trait of its own, as
/// the kernel side shares one copy of [`follow`] among all callers.
pub trait Chains: Bytes {
    /// See [`follow`].
    fn follow(&self, start: usize, first: Protocol) -> Option<Chain>;
}

impl Bytes for [u8] {
    fn read<T: Plain>(&self, offset: usize) -> Option<T> {
        self.get(offset..).and_then(crate::read_plain)
    }
}

impl Chains for [u8] {
    fn follow(&self, start: usize, first: Protocol) -> Option<Chain> {
        follow(self, start, first)
    }
}

/// A transport segment inside an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located<I> {
    /// The fixed IP header.
    pub ip: I,
    /// The transport protocol, behind IPv6 extension headers if there are any.
    pub protocol: Protocol,
    /// Where the transport header starts, in bytes from the start of the packet.
    pub offset: usize,
    /// How long the transport header and its payload are by the IP header, in
    /// bytes. Padding of a short Ethernet frame is not in it.
    pub len: usize,
    /// What stands between the IP header and the transport header.
    pub shape: Shape,
    /// Where the last extension header starts, in bytes after the fixed IP
    /// header; 0 if there is none. Its first byte names the protocol.
    pub last_extension: usize,
    /// The number that the fragments of one datagram share; 0 if it is whole.
    pub identification: u32,
}

/// Whether a packet is the plain case that the translation handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Shape {
    /// The transport header follows the fixed IP header.
    Plain = 0,
    /// IPv4 options, or IPv6 hop-by-hop and destination options, stand before
    /// it. They can be stashed.
    Options = 1,
    /// Other IPv6 extension headers stand before it, which mean something for
    /// what follows (routing, authentication, mobility).
    Extensions = 2,
    /// The first fragment of a datagram: ports, but not the whole payload.
    FirstFragment = 3,
    /// A later fragment: no ports, so it cannot be told whose it is.
    LaterFragment = 4,
}

crate::from_raw! {
    Shape: u64 { Plain, Options, Extensions, FirstFragment, LaterFragment } else Extensions
}

/// Finds the transport segment of the IP packet at offset `l3`; `None` if there
/// is no valid IP header of version `I`.
#[inline(always)]
pub fn locate<I: Ip>(packet: &(impl Chains + ?Sized), l3: usize) -> Option<Located<I>> {
    let ip: I = packet.read(l3)?;
    if !ip.is_valid() {
        return None;
    }
    let header_len = ip.header_len();
    let protocol = ip.protocol();
    let (shape, identification) = match ip.fragment() {
        Some((Fragment::First, identification)) => (Shape::FirstFragment, identification),
        Some((Fragment::Later, identification)) => (Shape::LaterFragment, identification),
        None if header_len == I::LEN => (Shape::Plain, 0),
        None => (Shape::Options, 0),
    };
    let plain = Located {
        ip,
        protocol,
        offset: l3 + header_len,
        len: ip.payload_len()?,
        shape,
        last_extension: 0,
        identification,
    };
    if !matches!(I::VERSION, IpVersion::V6) || !is_extension(protocol) {
        return Some(plain);
    }
    let chain = packet.follow(plain.offset, protocol)?;
    Some(Located {
        protocol: chain.protocol,
        offset: plain.offset + chain.len,
        len: plain.len.checked_sub(chain.len)?,
        shape: chain.shape,
        last_extension: chain.last,
        identification: match chain.shape {
            Shape::FirstFragment | Shape::LaterFragment => {
                u32::from_be_bytes(packet.read(plain.offset + chain.fragment + 4)?)
            }
            _ => 0,
        },
        ..plain
    })
}

/// Whether it is an IPv6 extension header, fragments included.
#[inline(always)]
#[must_use]
pub const fn is_extension(protocol: Protocol) -> bool {
    protocol.is_ipv6_extension() || matches!(protocol, Protocol::IPV6_FRAGMENT)
}

/// What a chain of IPv6 extension headers leads to. Offsets are in bytes from
/// the start of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// What follows it.
    pub protocol: Protocol,
    /// What it means for the packet.
    pub shape: Shape,
    /// Its length.
    pub len: usize,
    /// Where its last header starts.
    pub last: usize,
    /// Where its fragment header starts, if it has one.
    pub fragment: usize,
}

/// How many extension headers are followed. RFC 8200 names six, each of which
/// should occur once; a longer chain counts as a protocol of its own.
const MAX_EXTENSIONS: usize = 8;

/// Follows the extension headers at `start`, the first of which is of type
/// `first`, to the transport header; `None` if the packet ends before.
#[inline(always)]
pub fn follow(packet: &(impl Bytes + ?Sized), start: usize, first: Protocol) -> Option<Chain> {
    let mut chain = Chain {
        protocol: first,
        shape: Shape::Options,
        len: 0,
        last: 0,
        fragment: 0,
    };
    for _ in 0..MAX_EXTENSIONS {
        if !is_extension(chain.protocol) {
            return Some(chain);
        }
        let [next, len, high, low] = packet.read::<u32>(start + chain.len)?.to_ne_bytes();
        let units = usize::from(len);
        chain.last = chain.len;
        chain.len += match chain.protocol {
            Protocol::IPV6_FRAGMENT => {
                // RFC 8200 section 4.5: 13 bits of offset, two reserved, one
                // "more". All fragments of a datagram share its outermost
                // fragment header.
                let field = u16::from_be_bytes([high, low]);
                if !matches!(chain.shape, Shape::FirstFragment) {
                    chain.fragment = chain.last;
                    chain.shape = match (field & !0x7, field & 1) {
                        // An "atomic" fragment (RFC 6946) is whole, but its
                        // header must not be lost.
                        (0, 0) => Shape::Extensions,
                        (0, _) => Shape::FirstFragment,
                        _ => Shape::LaterFragment,
                    };
                }
                8
            }
            Protocol::HOP_BY_HOP | Protocol::DESTINATION_OPTIONS => (units + 1) * 8,
            protocol => {
                if matches!(chain.shape, Shape::Options) {
                    chain.shape = Shape::Extensions;
                }
                match protocol {
                    // Counts in words, less two (RFC 4302 section 2.2).
                    Protocol::AUTHENTICATION => (units + 2) * 4,
                    // All others in units of eight bytes, less one.
                    _ => (units + 1) * 8,
                }
            }
        };
        chain.protocol = Protocol(next);
        if matches!(chain.shape, Shape::LaterFragment) {
            return Some(chain);
        }
    }
    Some(chain)
}

impl Chain {
    /// A chain, or none, as one number: what a BPF function can return. Offsets
    /// count words, which all headers consist of, in thirteen bits each: eight
    /// of the longest headers have 4,096.
    #[inline(always)]
    #[must_use]
    pub const fn pack(chain: Option<Self>) -> u64 {
        match chain {
            None => 0,
            Some(chain) => {
                words(chain.fragment) << 51
                    | words(chain.last) << 38
                    | words(chain.len) << 25
                    | (chain.shape as u64) << 8
                    | chain.protocol.0 as u64
            }
        }
    }

    /// The inverse of [`Chain::pack`].
    #[inline(always)]
    #[must_use]
    pub const fn unpack(packed: u64) -> Option<Self> {
        // No chain is empty.
        if bytes(packed >> 25) == 0 {
            return None;
        }
        Some(Self {
            protocol: Protocol(packed as u8),
            shape: Shape::from_raw(packed >> 8 & 0xff),
            len: bytes(packed >> 25),
            last: bytes(packed >> 38),
            fragment: bytes(packed >> 51),
        })
    }
}

/// The widest field of a packed [`Chain`].
const WORDS: u64 = 0x1fff;

/// An offset in bytes as a field of a packed [`Chain`].
#[inline(always)]
const fn words(bytes: usize) -> u64 {
    bytes as u64 >> 2 & WORDS
}

/// The inverse of [`words`].
#[inline(always)]
const fn bytes(words: u64) -> usize {
    ((words & WORDS) << 2) as usize
}

/// The ports of the transport header at `offset`, which UDP and TCP have at the same place:
/// source, destination.
#[inline(always)]
pub fn ports_at(packet: &(impl Bytes + ?Sized), offset: usize) -> Option<(u16, u16)> {
    let [s0, s1, d0, d1] = packet.read::<u32>(offset)?.to_ne_bytes();
    Some((u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1])))
}

impl<I: Ip> Located<I> {
    /// The ports: source, destination.
    #[inline(always)]
    pub fn ports(&self, packet: &(impl Bytes + ?Sized)) -> Option<(u16, u16)> {
        ports_at(packet, self.offset)
    }

    /// The datagram that a fragment is part of, on its way out or in.
    #[inline(always)]
    #[must_use]
    pub fn fragmented(&self, outbound: bool) -> FragmentKey {
        FragmentKey::new(&self.ip, self.protocol, self.identification, outbound)
    }
}

/// What the fragments of one datagram have in common (RFC 791 section 3.2, RFC
/// 8200 section 4.5), and which way they go. Addresses are 16 bytes, IPv4 as
/// v4-mapped; the identification is big-endian, IPv4's in its low half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C, align(4))]
pub struct FragmentKey {
    source: [u8; 16],
    destination: [u8; 16],
    identification: [u8; 4],
    /// 0 in IPv6.
    protocol: u8,
    outbound: u8,
    reserved: [u8; 2],
}

crate::plain!(FragmentKey: 40);

impl FragmentKey {
    /// How long fragments of one datagram may be apart, in nanoseconds: what Linux waits for them
    /// (`net.ipv4.ipfrag_time`). Later the number may be another datagram's.
    pub const LIFETIME_NS: u64 = 30_000_000_000;

    /// Of a datagram of this protocol between the ends of `ip`.
    #[inline(always)]
    #[must_use]
    pub fn new<I: Ip>(ip: &I, protocol: Protocol, identification: u32, outbound: bool) -> Self {
        Self {
            source: ip.source(),
            destination: ip.destination(),
            identification: identification.to_be_bytes(),
            protocol: match I::VERSION {
                IpVersion::V4 => protocol.0,
                // Behind the fragment header stands another one in each fragment.
                IpVersion::V6 => 0,
            },
            outbound: u8::from(outbound),
            reserved: [0; 2],
        }
    }

    /// Whether what was noted of a first fragment is of the datagram whose fragments come now. The
    /// clock of the CPU that noted it may have been a tick ahead.
    #[inline(always)]
    #[must_use]
    pub const fn lasts(noted_at: u64, now: u64) -> bool {
        now.saturating_sub(noted_at) < Self::LIFETIME_NS
    }

    /// The source address.
    #[inline(always)]
    #[must_use]
    pub const fn source(&self) -> [u8; 16] {
        self.source
    }

    /// The destination address.
    #[inline(always)]
    #[must_use]
    pub const fn destination(&self) -> [u8; 16] {
        self.destination
    }

    /// Whether they are of IPv4.
    #[must_use]
    pub const fn is_ipv4(&self) -> bool {
        is_mapped(self.source)
    }

    /// Whether they leave.
    #[inline(always)]
    #[must_use]
    pub const fn is_outbound(&self) -> bool {
        self.outbound != 0
    }
}

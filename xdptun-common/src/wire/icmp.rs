use super::{Ip, Ipv4Header, Ipv6Header, Protocol};
use crate::checksum::Sum;

/// The first eight bytes of an ICMP or ICMPv6 error message (RFC 792, RFC 4443
/// section 2.1); the packet that it is about follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(4))]
pub struct IcmpHeader {
    kind: u8,
    code: u8,
    checksum: [u8; 2],
    rest: [u8; 4],
}

crate::plain!(IcmpHeader: 8);

impl IcmpHeader {
    /// Length in bytes.
    pub const LEN: usize = size_of::<Self>();

    /// A header without checksum; `rest` is its second half.
    #[inline(always)]
    #[must_use]
    pub const fn new(kind: u8, code: u8, rest: u32) -> Self {
        Self {
            kind,
            code,
            checksum: [0; 2],
            rest: rest.to_be_bytes(),
        }
    }

    /// What kind of message it is: type and code.
    #[inline(always)]
    #[must_use]
    pub const fn kind_and_code(&self) -> [u8; 2] {
        [self.kind, self.code]
    }

    /// Its second half.
    #[inline(always)]
    #[must_use]
    pub const fn rest(&self) -> u32 {
        u32::from_be_bytes(self.rest)
    }

    /// The checksum field as it lies in memory.
    #[inline(always)]
    #[must_use]
    pub const fn checksum(&self) -> [u8; 2] {
        self.checksum
    }

    /// The same header with another checksum field.
    #[inline(always)]
    #[must_use]
    pub const fn with_checksum(self, checksum: [u8; 2]) -> Self {
        Self { checksum, ..self }
    }
}

/// What an echo message is (RFC 792).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Echo {
    /// A query.
    Request,
    /// The answer to one.
    Reply,
}

impl IcmpHeader {
    /// Where the identifier of an echo message is.
    pub const IDENTIFIER_OFFSET: usize = 4;

    /// Where the checksum is.
    pub const CHECKSUM_OFFSET: usize = 2;

    /// What it is of ICMP's echo, and its identifier.
    #[inline(always)]
    #[must_use]
    pub const fn echo(&self) -> Option<(Echo, u16)> {
        const REPLY: u8 = 0;
        const REQUEST: u8 = 8;
        let [high, low, ..] = self.rest;
        let identifier = u16::from_be_bytes([high, low]);
        match self.kind {
            REQUEST => Some((Echo::Request, identifier)),
            REPLY => Some((Echo::Reply, identifier)),
            _ => None,
        }
    }
}

/// The ICMP of an IP version.
pub trait Icmp: Ip {
    /// Its protocol number.
    const ICMP: Protocol;

    /// The message that a packet is larger than `mtu` bytes.
    fn too_big(mtu: u32) -> IcmpHeader;
    /// The message that a host does not let a packet through, "communication administratively
    /// prohibited".
    fn prohibited() -> IcmpHeader;
    /// Whether the message says that the packet it quotes did not arrive.
    fn is_error(icmp: IcmpHeader) -> bool;
    /// Whether a host may act upon a packet that the message quotes right behind its
    /// header.
    fn quotes(icmp: IcmpHeader) -> bool;
    /// Whether the message quotes the packet in an option.
    fn quotes_in_option(icmp: IcmpHeader) -> bool;
    /// Whether the message changes the route to the quoted packet's destination: its MTU
    /// or its next hop. A host applies that to everything that it sends there.
    fn changes_route(icmp: IcmpHeader) -> bool;
    /// The MTU that the message names, if it is about that; zero names none (RFC 792).
    fn mtu(icmp: IcmpHeader) -> Option<u32>;
    /// The same message, without checksum, about a packet that is `by` bytes
    /// shorter: if it names an MTU, that is `by` bytes less.
    fn about_shorter(icmp: IcmpHeader, by: u32) -> IcmpHeader;
    /// What of this header is in the checksum of a message of `len` bytes.
    fn icmp_pseudo_header(&self, len: u16) -> Sum;
}

impl Icmp for Ipv4Header {
    const ICMP: Protocol = Protocol::ICMP;

    /// "Fragmentation needed" (RFC 1191 section 4).
    #[inline(always)]
    fn too_big(mtu: u32) -> IcmpHeader {
        IcmpHeader::new(UNREACHABLE, FRAGMENTATION_NEEDED, mtu & 0xffff)
    }

    /// RFC 1812 section 5.2.7.1.
    fn prohibited() -> IcmpHeader {
        IcmpHeader::new(UNREACHABLE, PROHIBITED, 0)
    }

    #[inline(always)]
    fn is_error(icmp: IcmpHeader) -> bool {
        const TIME_EXCEEDED: u8 = 11;
        const PARAMETER_PROBLEM: u8 = 12;
        matches!(icmp.kind, UNREACHABLE | TIME_EXCEEDED | PARAMETER_PROBLEM)
    }

    #[inline(always)]
    fn quotes(icmp: IcmpHeader) -> bool {
        const SOURCE_QUENCH: u8 = 4;
        Self::is_error(icmp) || matches!(icmp.kind, SOURCE_QUENCH | REDIRECT)
    }

    #[inline(always)]
    fn quotes_in_option(_icmp: IcmpHeader) -> bool {
        false
    }

    #[inline(always)]
    fn changes_route(icmp: IcmpHeader) -> bool {
        icmp.kind == REDIRECT || Self::mtu(icmp).is_some()
    }

    #[inline(always)]
    fn mtu(icmp: IcmpHeader) -> Option<u32> {
        match (icmp.kind, icmp.code) {
            (UNREACHABLE, FRAGMENTATION_NEEDED) => Some(u32::from_be_bytes(icmp.rest) & 0xffff),
            _ => None,
        }
    }

    #[inline(always)]
    fn about_shorter(icmp: IcmpHeader, by: u32) -> IcmpHeader {
        let rest = u32::from_be_bytes(icmp.rest);
        let rest = match (icmp.kind, icmp.code) {
            // The upper half is reserved or counts quoted words (RFC 4884), of
            // which we keep too few to count. Zero names no MTU (RFC 792).
            (UNREACHABLE, FRAGMENTATION_NEEDED) => (rest & 0xffff).saturating_sub(by),
            (UNREACHABLE, _) => 0,
            _ => rest & 0xff00_0000,
        };
        IcmpHeader::new(icmp.kind, icmp.code, rest)
    }

    #[inline(always)]
    fn icmp_pseudo_header(&self, _len: u16) -> Sum {
        Sum::new()
    }
}

/// "Destination unreachable" (RFC 792).
const UNREACHABLE: u8 = 3;
/// Its code 4.
const FRAGMENTATION_NEEDED: u8 = 4;
/// Its code 13 (RFC 1812 section 5.2.7.1).
const PROHIBITED: u8 = 13;
/// RFC 792.
const REDIRECT: u8 = 5;

impl Icmp for Ipv6Header {
    const ICMP: Protocol = Protocol::ICMPV6;

    /// "Packet too big" (RFC 4443 section 3.2).
    #[inline(always)]
    fn too_big(mtu: u32) -> IcmpHeader {
        IcmpHeader::new(PACKET_TOO_BIG, 0, at_least_minimum(mtu))
    }

    /// RFC 4443 section 3.1.
    fn prohibited() -> IcmpHeader {
        IcmpHeader::new(1, 1, 0)
    }

    #[inline(always)]
    fn is_error(icmp: IcmpHeader) -> bool {
        // RFC 4443 section 2.1 gives the lower half to errors; these are defined.
        match icmp.kind {
            // Ignored by hosts; naming more would make it count.
            PACKET_TOO_BIG => u32::from_be_bytes(icmp.rest) >= MINIMUM_MTU,
            1 | 3 | 4 => true,
            _ => false,
        }
    }

    #[inline(always)]
    fn quotes(icmp: IcmpHeader) -> bool {
        // Errors that are not defined go to the sockets as well (RFC 4443 section 2.4 (a)).
        icmp.kind < 128
    }

    /// A redirect does (RFC 4861 section 4.5). It counts only from a neighbour on the link.
    #[inline(always)]
    fn quotes_in_option(icmp: IcmpHeader) -> bool {
        const REDIRECT: u8 = 137;
        icmp.kind == REDIRECT
    }

    #[inline(always)]
    fn changes_route(icmp: IcmpHeader) -> bool {
        icmp.kind == PACKET_TOO_BIG
    }

    #[inline(always)]
    fn mtu(icmp: IcmpHeader) -> Option<u32> {
        match icmp.kind {
            PACKET_TOO_BIG => Some(u32::from_be_bytes(icmp.rest)),
            _ => None,
        }
    }

    #[inline(always)]
    fn about_shorter(icmp: IcmpHeader, by: u32) -> IcmpHeader {
        let rest = u32::from_be_bytes(icmp.rest);
        let rest = match icmp.kind {
            PACKET_TOO_BIG => at_least_minimum(rest.saturating_sub(by)),
            // The pointer of a parameter problem.
            4 => rest,
            _ => 0,
        };
        IcmpHeader::new(icmp.kind, icmp.code, rest)
    }

    #[inline(always)]
    fn icmp_pseudo_header(&self, len: u16) -> Sum {
        self.pseudo_header(Protocol::ICMPV6, len)
    }
}

/// RFC 4443 section 3.2.
const PACKET_TOO_BIG: u8 = 2;

/// No IPv6 link has a smaller MTU (RFC 8200 section 5).
const MINIMUM_MTU: u32 = 1280;

/// Hosts ignore messages that name less than the minimum (RFC 8201 section 4), and
/// would go on with larger packets.
#[inline(always)]
const fn at_least_minimum(mtu: u32) -> u32 {
    if mtu < MINIMUM_MTU { MINIMUM_MTU } else { mtu }
}

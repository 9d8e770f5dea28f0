//! What both versions of IP have in common.

mod v4;
mod v6;

pub use v4::Ipv4Header;
pub use v6::{FragmentHeader, Ipv6Header};

use super::EtherType;
use crate::checksum::Sum;

/// Transport protocol numbers (IANA "Protocol Numbers").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol(pub u8);

impl Protocol {
    /// Transmission Control Protocol.
    pub const TCP: Self = Self(6);
    /// User Datagram Protocol.
    pub const UDP: Self = Self(17);
    /// Internet Control Message Protocol (RFC 792).
    pub const ICMP: Self = Self(1);
    /// ICMP for IPv6 (RFC 4443).
    pub const ICMPV6: Self = Self(58);
    /// IPv6 hop-by-hop options (RFC 8200 section 4.3).
    pub const HOP_BY_HOP: Self = Self(0);
    /// IPv6 fragment header (RFC 8200 section 4.5).
    pub const IPV6_FRAGMENT: Self = Self(44);
    /// Authentication header (RFC 4302).
    pub const AUTHENTICATION: Self = Self(51);
    /// IPv6 destination options (RFC 8200 section 4.6).
    pub const DESTINATION_OPTIONS: Self = Self(60);

    /// Whether an IPv6 next-header value names an extension header that may
    /// stand before UDP or TCP (RFC 8200 section 4.1, RFC 7045), the fragment
    /// header excepted.
    #[inline(always)]
    #[must_use]
    pub const fn is_ipv6_extension(self) -> bool {
        matches!(self.0, 0 | 43 | 51 | 60 | 135 | 139 | 140)
    }
}

/// The two versions of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpVersion {
    /// RFC 791.
    V4,
    /// RFC 8200.
    V6,
}

/// What the datapath needs to know of an IP header, whichever its version.
///
/// One generic function per packet path, compiled twice, with offsets that are
/// constants in each copy.
pub trait Ip: crate::Plain {
    /// Length of the fixed header in bytes.
    const LEN: usize;
    /// How a frame announces it.
    const ETHER_TYPE: EtherType;
    /// Which version it is.
    const VERSION: IpVersion;
    /// What a fragment has behind the fixed header to say which part it is, in bytes; IPv4 says it
    /// in the header.
    const PART_LEN: usize;

    /// Whether the version field is right, and the addresses are of this version.
    fn is_valid(&self) -> bool;
    /// Whether the addresses are of this version: a v4-mapped one in an IPv6 header would
    /// name an IPv4 flow.
    fn has_own_addresses(&self) -> bool;
    /// Length of header and options in bytes; IPv6 extension headers count as payload.
    fn header_len(&self) -> usize;
    /// Whether the checksum of a header without options is right; IPv6 has none.
    fn is_intact(&self) -> bool;
    /// The protocol of what follows the fixed header and IPv4 options.
    fn protocol(&self) -> Protocol;
    /// Whether this is a fragment, and if so which one, and the number it shares
    /// with the others.
    fn fragment(&self) -> Option<(Fragment, u32)>;
    /// What follows header and options, in bytes; `None` if the field is too small.
    fn payload_len(&self) -> Option<usize>;
    /// Source address, IPv4 as v4-mapped (RFC 4291 section 2.5.5.2).
    fn source(&self) -> [u8; 16];
    /// Destination address, IPv4 as v4-mapped.
    fn destination(&self) -> [u8; 16];
    /// The same header with another source, of its version; the IPv4 checksum follows.
    #[must_use]
    fn with_source(self, source: [u8; 16]) -> Self;
    /// The same header with another destination, of its version; the IPv4 checksum follows.
    #[must_use]
    fn with_destination(self, destination: [u8; 16]) -> Self;
    /// The same header around another payload; the IPv4 checksum follows.
    #[must_use]
    fn with_payload(self, protocol: Protocol, payload_len: u16) -> Self;
    /// The same header before `options_len` bytes of options and then
    /// `transport_len` bytes. `change` is by how much the sum of the options
    /// changes. IPv6 extension headers count as options; `next` is the type of
    /// the first of them, in IPv4 and without any that of the transport.
    #[must_use]
    fn with_options(
        self,
        next: Protocol,
        options_len: usize,
        change: Sum,
        transport_len: u16,
    ) -> Self;
    /// The same header of one's own for a part of a datagram, `len` bytes long; the IPv4 checksum
    /// is made anew. In IPv6 a [`FragmentHeader`] follows, whose length is not in `len`.
    #[must_use]
    fn with_part(self, protocol: Protocol, part: Part, len: u16) -> Self;
    /// The same header of one's own for a whole packet that is not to be fragmented.
    #[must_use]
    fn whole(self, protocol: Protocol, payload_len: u16) -> Self;
    /// The same header with the checksum that it has without options.
    #[must_use]
    fn with_fresh_checksum(self) -> Self;
    /// A fresh header for a segment of our own, from `source` to `destination`,
    /// with default hop limit, not to be fragmented.
    fn bare(source: [u8; 16], destination: [u8; 16], protocol: Protocol, payload_len: u16) -> Self;

    /// What of this header is the sender's choice.
    fn fields(&self) -> IpFields;
    /// The same header of one's own with other fields; the IPv4 checksum is made anew.
    #[must_use]
    fn with_fields(self, fields: IpFields) -> Self;
    /// Whether no router may fragment the packet; of IPv6 none may.
    fn has_df(&self) -> bool;
    /// The same header with or without DF; the IPv4 checksum follows. IPv6 stays as it is.
    #[must_use]
    fn with_df(self, df: bool) -> Self;
    /// The same header with another flow label, which IPv4 has none of.
    #[must_use]
    fn with_label(self, label: u32) -> Self;

    /// The sum of the pseudo-header (RFC 9293 section 3.1, RFC 8200 section 8.1).
    ///
    /// A v4-mapped address sums to the IPv4 address: its prefix adds 0xffff,
    /// which is zero.
    #[inline(always)]
    fn pseudo_header(&self, protocol: Protocol, payload_len: u16) -> Sum {
        Sum::new()
            .address(self.source())
            .address(self.destination())
            .number(u16::from(protocol.0))
            .number(payload_len)
    }
}

/// What of an IP header is the sender's choice. A field that the version does not have is
/// zero, and is ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IpFields {
    /// Type of service or traffic class: DSCP (RFC 2474) and ECN (RFC 3168).
    pub class: u8,
    /// Time to live or hop limit.
    pub hop_limit: u8,
    /// IPv4 identification (RFC 6864).
    pub identification: u16,
    /// IPv6 flow label (RFC 6437), 20 bits.
    pub label: u32,
}

impl IpFields {
    /// The bits of a flow label.
    pub const LABEL: u32 = 0x000f_ffff;
}

/// Which part of a fragmented datagram a packet holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// The one with the transport header.
    First,
    /// Any other: it names no ports.
    Later,
}

/// Where in its datagram a fragment lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it starts, in units of eight bytes.
    pub offset: u16,
    /// Whether others follow.
    pub more: bool,
    /// The number that it shares with the others; IPv4 has 16 bits of it.
    pub identification: u32,
}

/// What Linux uses (`IPDEFTTL`, RFC 1700).
const DEFAULT_HOP_LIMIT: u8 = 64;

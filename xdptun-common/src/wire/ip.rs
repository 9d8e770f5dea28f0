use super::EtherType;
use crate::address::{is_mapped, mapped, unmapped};
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

/// IPv4 header without options (RFC 791 section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(4))]
pub struct Ipv4Header {
    version_ihl: u8,
    tos: u8,
    total_len: [u8; 2],
    identification: [u8; 2],
    flags_fragment: [u8; 2],
    ttl: u8,
    protocol: u8,
    checksum: [u8; 2],
    source: [u8; 4],
    destination: [u8; 4],
}

crate::plain!(Ipv4Header: 20);

const MORE_FRAGMENTS: u16 = 0x2000;
const DONT_FRAGMENT: u16 = 0x4000;
const FRAGMENT_OFFSET: u16 = 0x1fff;
/// What Linux uses (`IPDEFTTL`, RFC 1700).
const DEFAULT_HOP_LIMIT: u8 = 64;

impl Ip for Ipv4Header {
    const LEN: usize = size_of::<Self>();
    const ETHER_TYPE: EtherType = EtherType::IPV4;
    const VERSION: IpVersion = IpVersion::V4;

    #[inline(always)]
    fn is_valid(&self) -> bool {
        self.version_ihl >> 4 == 4 && self.header_len() >= Self::LEN
    }

    #[inline(always)]
    fn has_own_addresses(&self) -> bool {
        true
    }

    #[inline(always)]
    fn header_len(&self) -> usize {
        usize::from(self.version_ihl & 0x0f) * 4
    }

    #[inline(always)]
    fn is_intact(&self) -> bool {
        Sum::new().record(self).is_intact()
    }

    #[inline(always)]
    fn protocol(&self) -> Protocol {
        Protocol(self.protocol)
    }

    #[inline(always)]
    fn fragment(&self) -> Option<(Fragment, u32)> {
        let field = u16::from_be_bytes(self.flags_fragment);
        let fragment = if field & FRAGMENT_OFFSET != 0 {
            Fragment::Later
        } else if field & MORE_FRAGMENTS != 0 {
            Fragment::First
        } else {
            return None;
        };
        Some((fragment, u16::from_be_bytes(self.identification).into()))
    }

    #[inline(always)]
    fn payload_len(&self) -> Option<usize> {
        usize::from(u16::from_be_bytes(self.total_len)).checked_sub(self.header_len())
    }

    #[inline(always)]
    fn source(&self) -> [u8; 16] {
        mapped(self.source)
    }

    #[inline(always)]
    fn destination(&self) -> [u8; 16] {
        mapped(self.destination)
    }

    #[inline(always)]
    fn with_payload(self, protocol: Protocol, payload_len: u16) -> Self {
        let total_len = (self.header_len() as u16)
            .wrapping_add(payload_len)
            .to_be_bytes();
        // RFC 1624: only the two words that change enter the checksum. TTL
        // shares a word with the protocol and stays.
        let checksum = Sum::of_checksum(self.checksum)
            .without_word(self.total_len)
            .without_word([self.ttl, self.protocol])
            .word(total_len)
            .word([self.ttl, protocol.0])
            .checksum();
        Self {
            total_len,
            protocol: protocol.0,
            checksum,
            ..self
        }
    }

    #[inline(always)]
    fn with_options(
        self,
        next: Protocol,
        options_len: usize,
        change: Sum,
        transport_len: u16,
    ) -> Self {
        let header_len = Self::LEN + options_len;
        let version_ihl = 0x40 | (header_len / 4) as u8 & 0x0f;
        let total_len = (header_len as u16)
            .wrapping_add(transport_len)
            .to_be_bytes();
        // As in `with_payload`: a header that was damaged stays so.
        let checksum = Sum::of_checksum(self.checksum)
            .combine(change)
            .without_word([self.version_ihl, self.tos])
            .without_word(self.total_len)
            .without_word([self.ttl, self.protocol])
            .word([version_ihl, self.tos])
            .word(total_len)
            .word([self.ttl, next.0])
            .checksum();
        Self {
            version_ihl,
            total_len,
            protocol: next.0,
            checksum,
            ..self
        }
    }

    #[inline(always)]
    fn with_fresh_checksum(self) -> Self {
        let header = Self {
            checksum: [0; 2],
            ..self
        };
        Self {
            checksum: Sum::new().record(&header).checksum(),
            ..header
        }
    }

    #[inline(always)]
    fn bare(source: [u8; 16], destination: [u8; 16], protocol: Protocol, payload_len: u16) -> Self {
        let (source, destination) = (unmapped(source), unmapped(destination));
        let total_len = (Self::LEN as u16).wrapping_add(payload_len).to_be_bytes();
        let version_ihl = 0x45;
        let flags_fragment = DONT_FRAGMENT.to_be_bytes();
        let checksum = Sum::new()
            .word([version_ihl, 0])
            .word(total_len)
            .word(flags_fragment)
            .word([DEFAULT_HOP_LIMIT, protocol.0])
            .words(source)
            .words(destination)
            .checksum();
        Self {
            version_ihl,
            tos: 0,
            total_len,
            // Zero is right where fragmentation is forbidden (RFC 6864 section 4.1).
            identification: [0; 2],
            flags_fragment,
            ttl: DEFAULT_HOP_LIMIT,
            protocol: protocol.0,
            checksum,
            source,
            destination,
        }
    }

    #[inline(always)]
    fn fields(&self) -> IpFields {
        IpFields {
            class: self.tos,
            hop_limit: self.ttl,
            identification: u16::from_be_bytes(self.identification),
            label: 0,
        }
    }

    #[inline(always)]
    fn with_fields(self, fields: IpFields) -> Self {
        let header = Self {
            tos: fields.class,
            ttl: fields.hop_limit,
            identification: fields.identification.to_be_bytes(),
            ..self
        };
        header.with_fresh_checksum()
    }

    #[inline(always)]
    fn has_df(&self) -> bool {
        u16::from_be_bytes(self.flags_fragment) & DONT_FRAGMENT != 0
    }

    #[inline(always)]
    fn with_df(self, df: bool) -> Self {
        let others = u16::from_be_bytes(self.flags_fragment) & !DONT_FRAGMENT;
        let flags = if df { others | DONT_FRAGMENT } else { others };
        let flags_fragment = flags.to_be_bytes();
        // As in `with_payload`: a header that was damaged stays so.
        let checksum = Sum::of_checksum(self.checksum)
            .without_word(self.flags_fragment)
            .word(flags_fragment)
            .checksum();
        Self {
            flags_fragment,
            checksum,
            ..self
        }
    }

    #[inline(always)]
    fn with_label(self, _label: u32) -> Self {
        self
    }
}

/// IPv6 header without extension headers (RFC 8200 section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(4))]
pub struct Ipv6Header {
    version_class_flow: [u8; 4],
    payload_len: [u8; 2],
    next_header: u8,
    hop_limit: u8,
    source: [u8; 16],
    destination: [u8; 16],
}

crate::plain!(Ipv6Header: 40);

impl Ip for Ipv6Header {
    const LEN: usize = size_of::<Self>();
    const ETHER_TYPE: EtherType = EtherType::IPV6;
    const VERSION: IpVersion = IpVersion::V6;

    #[inline(always)]
    fn is_valid(&self) -> bool {
        self.version_class_flow[0] >> 4 == 6 && self.has_own_addresses()
    }

    #[inline(always)]
    fn has_own_addresses(&self) -> bool {
        // The stack drops them too; RFC 4291 leaves them no meaning on the wire.
        !is_mapped(self.source) && !is_mapped(self.destination)
    }

    #[inline(always)]
    fn header_len(&self) -> usize {
        Self::LEN
    }

    #[inline(always)]
    fn is_intact(&self) -> bool {
        true
    }

    #[inline(always)]
    fn protocol(&self) -> Protocol {
        Protocol(self.next_header)
    }

    #[inline(always)]
    fn fragment(&self) -> Option<(Fragment, u32)> {
        // The fragment header is an extension header; `parse` finds it there.
        None
    }

    #[inline(always)]
    fn payload_len(&self) -> Option<usize> {
        Some(usize::from(u16::from_be_bytes(self.payload_len)))
    }

    #[inline(always)]
    fn source(&self) -> [u8; 16] {
        self.source
    }

    #[inline(always)]
    fn destination(&self) -> [u8; 16] {
        self.destination
    }

    #[inline(always)]
    fn with_payload(self, protocol: Protocol, payload_len: u16) -> Self {
        Self {
            payload_len: payload_len.to_be_bytes(),
            next_header: protocol.0,
            ..self
        }
    }

    #[inline(always)]
    fn with_options(
        self,
        next: Protocol,
        options_len: usize,
        _change: Sum,
        transport_len: u16,
    ) -> Self {
        self.with_payload(next, (options_len as u16).wrapping_add(transport_len))
    }

    #[inline(always)]
    fn with_fresh_checksum(self) -> Self {
        self
    }

    #[inline(always)]
    fn bare(source: [u8; 16], destination: [u8; 16], protocol: Protocol, payload_len: u16) -> Self {
        Self {
            version_class_flow: [0x60, 0, 0, 0],
            payload_len: payload_len.to_be_bytes(),
            next_header: protocol.0,
            hop_limit: DEFAULT_HOP_LIMIT,
            source,
            destination,
        }
    }

    #[inline(always)]
    fn fields(&self) -> IpFields {
        let word = u32::from_be_bytes(self.version_class_flow);
        IpFields {
            class: (word >> 20) as u8,
            hop_limit: self.hop_limit,
            identification: 0,
            label: word & IpFields::LABEL,
        }
    }

    #[inline(always)]
    fn with_fields(self, fields: IpFields) -> Self {
        let word = 6 << 28 | u32::from(fields.class) << 20 | fields.label & IpFields::LABEL;
        Self {
            version_class_flow: word.to_be_bytes(),
            hop_limit: fields.hop_limit,
            ..self
        }
    }

    #[inline(always)]
    fn has_df(&self) -> bool {
        true
    }

    #[inline(always)]
    fn with_df(self, _df: bool) -> Self {
        self
    }

    #[inline(always)]
    fn with_label(self, label: u32) -> Self {
        let fields = self.fields();
        self.with_fields(IpFields { label, ..fields })
    }
}

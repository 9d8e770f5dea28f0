use super::{DEFAULT_HOP_LIMIT, Fragment, Ip, IpFields, IpVersion, Part, Protocol};
use crate::address::{mapped, unmapped};
use crate::checksum::Sum;
use crate::wire::EtherType;

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

impl Ipv4Header {
    /// Where in its datagram a fragment lies; `None` if the packet is none.
    #[inline(always)]
    #[must_use]
    pub const fn part(&self) -> Option<Part> {
        let field = u16::from_be_bytes(self.flags_fragment);
        if field & (FRAGMENT_OFFSET | MORE_FRAGMENTS) == 0 {
            return None;
        }
        Some(Part {
            offset: field & FRAGMENT_OFFSET,
            more: field & MORE_FRAGMENTS != 0,
            identification: u16::from_be_bytes(self.identification) as u32,
        })
    }
}

impl Ip for Ipv4Header {
    const LEN: usize = size_of::<Self>();
    const ETHER_TYPE: EtherType = EtherType::IPV4;
    const VERSION: IpVersion = IpVersion::V4;
    const PART_LEN: usize = 0;

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
        Sum::new().value(self).is_intact()
    }

    #[inline(always)]
    fn protocol(&self) -> Protocol {
        Protocol(self.protocol)
    }

    #[inline(always)]
    fn fragment(&self) -> Option<(Fragment, u32)> {
        let part = self.part()?;
        let fragment = match part.offset {
            0 => Fragment::First,
            _ => Fragment::Later,
        };
        Some((fragment, part.identification))
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
    fn with_source(self, source: [u8; 16]) -> Self {
        let source = unmapped(source);
        // As in `with_payload`: a header that was damaged stays so.
        let checksum = Sum::of_checksum(self.checksum)
            .without(Sum::new().words(self.source))
            .words(source)
            .checksum();
        Self {
            source,
            checksum,
            ..self
        }
    }

    #[inline(always)]
    fn with_destination(self, destination: [u8; 16]) -> Self {
        let destination = unmapped(destination);
        let checksum = Sum::of_checksum(self.checksum)
            .without(Sum::new().words(self.destination))
            .words(destination)
            .checksum();
        Self {
            destination,
            checksum,
            ..self
        }
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
    fn with_part(self, protocol: Protocol, part: Part, len: u16) -> Self {
        let more = if part.more { MORE_FRAGMENTS } else { 0 };
        let header = Self {
            flags_fragment: (part.offset & FRAGMENT_OFFSET | more).to_be_bytes(),
            identification: (part.identification as u16).to_be_bytes(),
            ..self.with_payload(protocol, len)
        };
        header.with_fresh_checksum()
    }

    #[inline(always)]
    fn whole(self, protocol: Protocol, payload_len: u16) -> Self {
        let header = Self {
            flags_fragment: DONT_FRAGMENT.to_be_bytes(),
            ..self.with_payload(protocol, payload_len)
        };
        header.with_fresh_checksum()
    }

    #[inline(always)]
    fn with_fresh_checksum(self) -> Self {
        let header = Self {
            checksum: [0; 2],
            ..self
        };
        Self {
            checksum: Sum::new().value(&header).checksum(),
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

use super::{DEFAULT_HOP_LIMIT, Fragment, Ip, IpFields, IpVersion, Part, Protocol};
use crate::address::is_mapped;
use crate::checksum::Sum;
use crate::wire::EtherType;

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

/// IPv6 fragment header (RFC 8200 section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(4))]
pub struct FragmentHeader {
    next_header: u8,
    reserved: u8,
    offset_more: [u8; 2],
    identification: [u8; 4],
}

crate::plain!(FragmentHeader: 8);

impl FragmentHeader {
    /// Length in bytes.
    pub const LEN: usize = size_of::<Self>();

    /// One before this protocol.
    #[inline(always)]
    #[must_use]
    pub const fn new(next: Protocol, part: Part) -> Self {
        let field = part.offset << 3 | part.more as u16;
        Self {
            next_header: next.0,
            reserved: 0,
            offset_more: field.to_be_bytes(),
            identification: part.identification.to_be_bytes(),
        }
    }

    /// The protocol behind it.
    #[inline(always)]
    #[must_use]
    pub const fn next(&self) -> Protocol {
        Protocol(self.next_header)
    }

    /// Where in its datagram the fragment lies.
    #[inline(always)]
    #[must_use]
    pub const fn part(&self) -> Part {
        let field = u16::from_be_bytes(self.offset_more);
        Part {
            offset: field >> 3,
            more: field & 1 != 0,
            identification: u32::from_be_bytes(self.identification),
        }
    }
}

impl Ip for Ipv6Header {
    const LEN: usize = size_of::<Self>();
    const ETHER_TYPE: EtherType = EtherType::IPV6;
    const VERSION: IpVersion = IpVersion::V6;
    const PART_LEN: usize = FragmentHeader::LEN;

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
    fn with_source(self, source: [u8; 16]) -> Self {
        Self { source, ..self }
    }

    #[inline(always)]
    fn with_destination(self, destination: [u8; 16]) -> Self {
        Self {
            destination,
            ..self
        }
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
    fn with_part(self, _protocol: Protocol, _part: Part, len: u16) -> Self {
        let len = len.wrapping_add(FragmentHeader::LEN as u16);
        self.with_payload(Protocol::IPV6_FRAGMENT, len)
    }

    #[inline(always)]
    fn whole(self, protocol: Protocol, payload_len: u16) -> Self {
        self.with_payload(protocol, payload_len)
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

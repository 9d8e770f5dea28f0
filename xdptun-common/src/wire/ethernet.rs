/// Length in bytes of the link header of Ethernet.
pub const LINK_ETHERNET: u32 = EthernetHeader::LEN as u32;
/// The same without a link header (TUN, WireGuard, PPP).
pub const LINK_NONE: u32 = 0;

/// The type field of an Ethernet frame (IANA "IEEE 802 Numbers").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EtherType(pub u16);

impl EtherType {
    /// Internet Protocol version 4 (RFC 894).
    pub const IPV4: Self = Self(0x0800);
    /// VLAN tag (IEEE 802.1Q).
    pub const VLAN: Self = Self(0x8100);
    /// Service VLAN tag, the outer of two (IEEE 802.1ad).
    pub const SERVICE_VLAN: Self = Self(0x88a8);
    /// Internet Protocol version 6 (RFC 2464).
    pub const IPV6: Self = Self(0x86dd);
}

/// Ethernet II header, without VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(2))]
pub struct EthernetHeader {
    destination: [u8; 6],
    source: [u8; 6],
    ether_type: [u8; 2],
}

crate::plain!(EthernetHeader: 14);

impl EthernetHeader {
    /// Length in bytes.
    pub const LEN: usize = size_of::<Self>();

    /// A header that names no stations.
    #[inline(always)]
    #[must_use]
    pub const fn nameless(ether_type: EtherType) -> Self {
        Self {
            destination: [0; 6],
            source: [0; 6],
            ether_type: ether_type.0.to_be_bytes(),
        }
    }

    /// What follows the header.
    #[inline(always)]
    #[must_use]
    pub const fn ether_type(&self) -> EtherType {
        EtherType(u16::from_be_bytes(self.ether_type))
    }

    /// The same header before something else.
    #[inline(always)]
    #[must_use]
    pub const fn with_ether_type(self, ether_type: EtherType) -> Self {
        Self {
            ether_type: ether_type.0.to_be_bytes(),
            ..self
        }
    }

    /// The header as it lies in the packet.
    #[inline(always)]
    #[must_use]
    pub const fn to_bytes(self) -> [u8; Self::LEN] {
        // SAFETY: the header is fourteen bytes without padding.
        unsafe { core::mem::transmute(self) }
    }

    /// The header of an answer: source and destination exchanged.
    #[inline(always)]
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self {
            destination: self.source,
            source: self.destination,
            ether_type: self.ether_type,
        }
    }
}

//! The checksum of a transport header, whichever its protocol.

use super::{IcmpHeader, Protocol, TcpHeader, UdpHeader};
use crate::checksum::Sum;

impl Protocol {
    /// Where the checksum is in the header of TCP, UDP, ICMP or ICMPv6.
    #[inline(always)]
    #[must_use]
    pub const fn checksum_offset(self) -> usize {
        match self {
            Self::TCP => TcpHeader::CHECKSUM_OFFSET,
            Self::ICMP | Self::ICMPV6 => IcmpHeader::CHECKSUM_OFFSET,
            _ => UdpHeader::CHECKSUM_OFFSET,
        }
    }

    /// What a checksum becomes when what it is about changes. UDP's zero stays: it says that there
    /// is none.
    #[inline(always)]
    #[must_use]
    pub const fn changed_checksum(self, old: [u8; 2], change: Sum) -> [u8; 2] {
        let sum = Sum::of_checksum(old).combine(change);
        match (self, old) {
            (Self::UDP, [0, 0]) => old,
            (Self::UDP, _) => sum.udp_checksum(),
            _ => sum.checksum(),
        }
    }
}

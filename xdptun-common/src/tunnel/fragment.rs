//! Fragments of datagrams in segments.
//!
//! A fragment becomes a segment of its flow, and the peer makes that fragment of it again, which
//! its stack puts together with the others. The payload of the segment is, for both versions of
//! IP, an IPv6 fragment header (RFC 8200 section 4.5) and the bytes of the fragment:
//!
//! ```text
//! +----------+-----------+-----------------------+---------------------+
//! | IP       | TCP       | fragment header       | bytes               |
//! | 20 or 40 | 20        | 8: offset, more, ID   | of the first: UDP   |
//! +----------+-----------+-----------------------+---------------------+
//! ```
//!
//! The bit F of its [window](super::window) tells it from a segment that carries a datagram. A
//! peer that takes such segments sets F in its segments without data.
//!
//! The receiver adds a number of its own to the ID, so that nobody else can send a fragment that its
//! kernel would put together with these. It restores a later fragment only if it restored the first of
//! that datagram a moment before.
//!
//! A fragment that does not fit is cut in two, each a fragment of the same datagram, if its sender was
//! told what fits and did not listen. A datagram of WireGuard that does not fit becomes two fragments.
//!
//! The first fragment has the UDP header. Its ports are zero on the way, as a NAT changes those
//! of the segment; the receiver writes these. Its checksum is the one that the datagram has with
//! addresses and ports of zero, as the receiver cannot see what a NAT changed them from.

use crate::checksum::Sum;
use crate::parse::FragmentKey;
use crate::wire::{FragmentHeader, Ip, IpVersion, Part, TcpHeader, UdpHeader};

/// How much longer a segment is than the fragment it carries, in bytes: 28 for IPv4, 20 for IPv6,
/// whose fragments have the header already.
#[must_use]
pub const fn growth<I: Ip>() -> usize {
    TcpHeader::LEN + FragmentHeader::LEN - I::PART_LEN
}

/// What became of the first fragment of a datagram: its others become the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct First {
    /// When it came, in nanoseconds of `CLOCK_MONOTONIC`.
    at: u64,
    /// Its ports: source, destination. Zero: it was dropped.
    ports: [u16; 2],
    reserved: [u16; 2],
}

crate::plain!(First: 16);

impl First {
    /// One that was dropped.
    #[inline(always)]
    #[must_use]
    pub const fn dropped(at: u64) -> Self {
        Self::carried(at, (0, 0))
    }

    /// One with these ports that a segment carries.
    #[inline(always)]
    #[must_use]
    pub const fn carried(at: u64, (source, destination): (u16, u16)) -> Self {
        Self {
            at,
            ports: [source, destination],
            reserved: [0; 2],
        }
    }

    /// Whether it is still of the datagram whose fragments come now.
    #[inline(always)]
    #[must_use]
    pub const fn lasts(&self, now: u64) -> bool {
        FragmentKey::lasts(self.at, now)
    }

    /// Whether a fragment that comes now may follow it: later its number may be that of another datagram,
    /// whose first was lost (RFC 4963).
    #[inline(always)]
    #[must_use]
    pub const fn is_followed(&self, now: u64) -> bool {
        now.saturating_sub(self.at) < Self::FOLLOWED_NS
    }

    /// How long after the first one the others come, in nanoseconds.
    pub const FOLLOWED_NS: u64 = 1 << 30;

    /// Whether those of this host that follow it may still come: Linux sends them at once.
    #[inline(always)]
    #[must_use]
    pub const fn is_leaving(&self, now: u64) -> bool {
        now.saturating_sub(self.at) < Self::LEAVING_NS
    }

    /// How long that is, in nanoseconds: a few ticks of the clock.
    pub const LEAVING_NS: u64 = 1 << 25;

    /// The ports of one that is carried.
    #[inline(always)]
    #[must_use]
    pub const fn ports(&self) -> Option<(u16, u16)> {
        match self.ports {
            [0, 0] => None,
            [source, destination] => Some((source, destination)),
        }
    }
}

/// Whether there is a fragment of `len` bytes that is this part of a datagram of UDP. Others could
/// overwrite what the first says of ports, or lead to no datagram.
#[inline(always)]
#[must_use]
pub const fn is_possible(part: Part, len: usize) -> bool {
    let least = match (part.offset, part.more) {
        (0, false) => return false,
        (0, true) => UdpHeader::LEN,
        _ => 1,
    };
    let is_whole = !part.more || len.is_multiple_of(UNIT);
    is_whole && len >= least && part.offset as usize * UNIT + len <= u16::MAX as usize
}

/// Offsets count units of so many bytes.
const UNIT: usize = 8;

/// The part as it is restored in a flow with this initial number of ours, which strangers do not
/// know and other flows do not have.
#[inline(always)]
#[must_use]
pub const fn renumbered<I: Ip>(part: Part, iss: u32) -> Part {
    let number = part.identification.wrapping_add(iss);
    Part {
        identification: match I::VERSION {
            IpVersion::V4 => number & 0xffff,
            IpVersion::V6 => number,
        },
        ..part
    }
}

/// The UDP header of a first fragment as it is on the way.
#[inline(always)]
#[must_use]
pub fn on_the_way<I: Ip>(ip: &I, udp: UdpHeader) -> UdpHeader {
    let ends = ends(ip, (udp.source(), udp.destination()));
    let checksum = changed(udp.checksum(), Sum::new().without(ends));
    UdpHeader::new(0, 0, udp.length(), checksum)
}

/// The UDP header of a first fragment that comes with these ports, from one on the way.
#[inline(always)]
#[must_use]
pub fn arrived<I: Ip>(ip: &I, ports: (u16, u16), udp: UdpHeader) -> UdpHeader {
    let checksum = changed(udp.checksum(), ends(ip, ports));
    UdpHeader::new(ports.0, ports.1, udp.length(), checksum)
}

/// What addresses and ports add to the sum of a datagram.
#[inline(always)]
fn ends<I: Ip>(ip: &I, (source, destination): (u16, u16)) -> Sum {
    Sum::new()
        .address(ip.source())
        .address(ip.destination())
        .number(source)
        .number(destination)
}

/// The checksum after the sum changed; none stays none.
#[inline(always)]
const fn changed(checksum: [u8; 2], change: Sum) -> [u8; 2] {
    match checksum {
        [0, 0] => checksum,
        _ => Sum::of_checksum(checksum).combine(change).udp_checksum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Ipv4Header, Ipv6Header, Protocol};

    #[test]
    fn parts_that_are_possible() {
        let part = |offset, more| Part {
            offset,
            more,
            identification: 7,
        };
        for (part, len, expected) in [
            (part(0, true), 8, true),
            (part(0, true), 1448, true),
            // No UDP header, not in units, not a fragment.
            (part(0, true), 0, false),
            (part(0, true), 12, false),
            (part(0, false), 8, false),
            (part(1, true), 8, true),
            (part(1, true), 9, false),
            (part(1, false), 9, true),
            (part(1, false), 0, false),
            (part(0x1fff, false), 7, true),
            (part(0x1fff, false), 8, false),
        ] {
            assert_eq!(is_possible(part, len), expected, "{part:?}, {len}");
        }
    }

    #[test]
    fn what_became_of_a_first_fragment_is_told_for_its_lifetime() {
        let first = First::carried(5, (8000, 53));
        assert_eq!(first.ports(), Some((8000, 53)));
        assert!(first.lasts(4) && first.lasts(4 + FragmentKey::LIFETIME_NS));
        assert!(!first.lasts(5 + FragmentKey::LIFETIME_NS));
        assert_eq!(First::dropped(5).ports(), None);
        assert!(first.is_followed(4) && first.is_followed(4 + First::FOLLOWED_NS));
        assert!(!first.is_followed(5 + First::FOLLOWED_NS));
        assert!(first.is_leaving(4) && first.is_leaving(4 + First::LEAVING_NS));
        assert!(!first.is_leaving(5 + First::LEAVING_NS));
    }

    /// Whatever a NAT makes of addresses and ports.
    fn changes_ends<I: Ip>(addresses: [[u8; 16]; 3]) {
        let [a, b, c] = addresses;
        let payload = Sum::new().bytes(b"of all fragments");
        let of = |ip: &I, source, destination| {
            let bare = UdpHeader::new(source, destination, 24, [0; 2]);
            let sum = ip.pseudo_header(Protocol::UDP, 24).combine(payload);
            bare.with_checksum(sum.value(&bare).udp_checksum())
        };
        let sent = I::bare(a, b, Protocol::UDP, 24);
        let came = I::bare(c, b, Protocol::UDP, 24);
        let way = on_the_way(&sent, of(&sent, 40000, 8000));
        assert_eq!((way.source(), way.destination()), (0, 0));
        assert_eq!(arrived(&came, (1024, 8000), way), of(&came, 1024, 8000));
        let none = UdpHeader::new(40000, 8000, 24, [0; 2]);
        let arrived = arrived(&came, (1024, 8000), on_the_way(&sent, none));
        assert_eq!(arrived, UdpHeader::new(1024, 8000, 24, [0; 2]));
    }

    #[test]
    fn the_checksum_of_a_datagram_survives_a_nat() {
        let v4 = |last| {
            let mut address = [0; 16];
            address[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, last]);
            address
        };
        changes_ends::<Ipv4Header>([v4(1), v4(2), v4(3)]);
        changes_ends::<Ipv6Header>([[0x20; 16], [0x21; 16], [0x22; 16]]);
    }
}

//! `wire`: ICMP messages as etherparse reads them.

#[path = "common/oracle.rs"]
mod oracle;

use etherparse::icmpv4::DestUnreachableHeader;
use etherparse::{Icmpv4Header, Icmpv4Type, Icmpv6Header, Icmpv6Type};
use proptest::prelude::*;
use xdptun_common::checksum::Sum;
use xdptun_common::wire::{Icmp, IcmpHeader, Ip, Ipv4Header, Ipv6Header, Protocol};
use xdptun_common::{bytes_of, read_plain};

/// A header as it arrives.
fn header(kind: u8, code: u8, rest: u32) -> IcmpHeader {
    let bytes = [&[kind, code, 0xab, 0xcd][..], &rest.to_be_bytes()].concat();
    read_plain(&bytes).expect("eight bytes")
}

/// What the second half of a header becomes when the packet is twelve bytes
/// shorter; type and code stay, and the checksum is none.
#[track_caller]
fn about_shorter<I: Icmp>(kind: u8, code: u8, rest: u32) -> u32 {
    let changed = I::about_shorter(header(kind, code, rest), 12);
    let bytes = bytes_of(&changed);
    assert_eq!(bytes[..4], [kind, code, 0, 0]);
    u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]])
}

#[test]
fn which_messages_are_errors() {
    let kinds = |is_error: fn(IcmpHeader) -> bool| {
        (0..=u8::MAX)
            .filter(|kind| is_error(header(*kind, 0, 1500)))
            .collect::<Vec<_>>()
    };
    assert_eq!(kinds(Ipv4Header::is_error), [3, 11, 12]);
    assert_eq!(kinds(Ipv6Header::is_error), [1, 2, 3, 4]);
    // No link has such an MTU (RFC 8200 section 5).
    assert!(!Ipv6Header::is_error(header(2, 0, 1279)));
    assert!(Ipv6Header::is_error(header(2, 0, 1280)));
    for code in 0..=u8::MAX {
        assert!(Ipv4Header::is_error(header(3, code, 0)));
        assert!(Ipv6Header::is_error(header(1, code, 0)));
    }
}

#[test]
fn about_a_shorter_packet() {
    let table = [
        (3, 4, 0, 0),
        (3, 4, 11, 0),
        (3, 4, 12, 0),
        (3, 4, 1500, 1488),
        (3, 4, 0x0008_05dc, 0x05d0),
        (3, 4, u32::MAX, 65523),
        (3, 1, 0x0008_ffff, 0),
        (3, 13, u32::MAX, 0),
        (11, 0, 0x0008_0000, 0),
        (11, 1, 0, 0),
        (12, 0, 0x1408_0000, 0x1400_0000),
    ];
    for (kind, code, rest, expected) in table {
        let less = about_shorter::<Ipv4Header>(kind, code, rest);
        assert_eq!(less, expected, "type {kind}, code {code}, {rest:#x}");
    }
    let table = [
        (1, 4, 0x0800_0000, 0),
        (2, 0, 0, 1280),
        (2, 0, 1280, 1280),
        (2, 0, 1292, 1280),
        (2, 0, 1293, 1281),
        (2, 0, u32::MAX, u32::MAX - 12),
        (2, 7, 1500, 1488),
        (3, 0, 0x0800_0000, 0),
        (4, 1, 40, 40),
    ];
    for (kind, code, rest, expected) in table {
        let less = about_shorter::<Ipv6Header>(kind, code, rest);
        assert_eq!(less, expected, "type {kind}, code {code}, {rest:#x}");
    }
}

proptest! {
    #[test]
    fn fragmentation_needed(mtu: u16, quote in prop::collection::vec(any::<u8>(), 28)) {
        let icmp = Ipv4Header::too_big(mtu.into());
        let outer = Ipv4Header::bare([7; 16], [9; 16], Protocol::ICMP, 36);
        let sum = outer.icmp_pseudo_header(36).value(&icmp).bytes(&quote);
        let all = [bytes_of(&icmp), &quote].concat();
        prop_assert_eq!(sum.checksum(), oracle::checksum(&all));
        let icmp = icmp.with_checksum(sum.checksum());

        let next_hop_mtu = mtu;
        let unreachable = DestUnreachableHeader::FragmentationNeeded { next_hop_mtu };
        let kind = Icmpv4Type::DestinationUnreachable(unreachable);
        let oracle = Icmpv4Header::with_checksum(kind, &quote);
        prop_assert_eq!(bytes_of(&icmp), &oracle.to_bytes()[..]);
    }

    #[test]
    fn packet_too_big(
        mtu in prop_oneof![any::<u32>(), 0..2000_u32], source: [u8; 16], destination: [u8; 16],
        quote in prop::collection::vec(any::<u8>(), 0..90),
    ) {
        let len = 8 + quote.len() as u16;
        let icmp = Ipv6Header::too_big(mtu);
        let outer = Ipv6Header::bare(source, destination, Protocol::ICMPV6, len);
        let sum = outer.icmp_pseudo_header(len).value(&icmp).bytes(&quote);
        let icmp = icmp.with_checksum(sum.checksum());

        // No link has less (RFC 8200 section 5).
        let kind = Icmpv6Type::PacketTooBig { mtu: mtu.max(1280) };
        let oracle = Icmpv6Header::with_checksum(kind, source, destination, &quote)
            .expect("a short message");
        prop_assert_eq!(bytes_of(&icmp), &oracle.to_bytes()[..]);
    }
}

/// IPv4's ICMP covers itself only (RFC 792).
#[test]
fn no_pseudo_header_in_ipv4() {
    let outer = Ipv4Header::bare([7; 16], [9; 16], Protocol::ICMP, 36);
    let sum = outer.icmp_pseudo_header(36);
    assert_eq!(sum.checksum(), Sum::new().checksum());
}

//! Everything around a transport segment: IP header fields, options, extension
//! headers, fragmentation, tags, padding.

use etherparse::IpNumber;
use xdptun_lab::checksum;

use crate::packet::Packet;
use crate::path::Family;
use xdptun_lab::seeded::Random;

/// The extension headers that may stand before UDP and TCP.
const EXTENSIONS: [IpNumber; 7] = [
    IpNumber::IPV6_HEADER_HOP_BY_HOP,
    IpNumber::IPV6_ROUTE_HEADER,
    IpNumber::AUTHENTICATION_HEADER,
    IpNumber::IPV6_DESTINATION_OPTIONS,
    IpNumber::MOBILITY_HEADER,
    IpNumber::HIP,
    IpNumber::SHIM6,
];

/// The frame of a packet in one of all shapes.
pub fn apply(random: &mut Random, packet: Packet, family: Family) -> Vec<u8> {
    let mut packet = packet
        .tos(random.byte())
        .ttl(random.byte())
        .id(random.number() as u16);
    if random.once_in(2) {
        packet = packet.without_df();
    }
    let with_options = random.once_in(8);
    if with_options {
        packet = options(random, packet);
    }
    if random.once_in(12) {
        packet = packet.fragment(random.pick(&[0, 0, 1, 100, 0x1fff]), random.once_in(2));
        // Headers that only the destination looks at stand behind the fragment's.
        if random.once_in(4) {
            packet = packet.extension(random.pick(&EXTENSIONS), 1);
        }
    }
    if random.once_in(8) {
        packet = packet.padded_to(random.pick(&[60, 61, 128, 1514]));
    }
    let mut frame = packet.bytes();
    if with_options && family == Family::V4 {
        scribble_options(random, &mut frame);
    }
    for _ in 0..random.weighted(&[(12, 0), (2, 1), (1, 2), (1, 3)]) {
        let kind = random.pick(&[[0x81, 0x00], [0x88, 0xa8], [0x91, 0x00]]);
        let [_, _, high, low] = random.number().to_be_bytes();
        frame.splice(12..12, [kind[0], kind[1], high, low]);
    }
    frame
}

/// IPv4 options, or a chain of IPv6 extension headers.
fn options(random: &mut Random, mut packet: Packet) -> Packet {
    packet = packet.ip_options(random.between(1, 10));
    for _ in 0..random.weighted(&[(4, 1), (2, 2), (1, 8), (1, 9)]) {
        let units = random.weighted(&[(6, 1), (3, 2), (1, 31)]);
        // The authentication header cannot count as far.
        packet = packet.extension(random.pick(&EXTENSIONS), units);
    }
    packet
}

/// Options that mean anything, under a right header checksum.
fn scribble_options(random: &mut Random, frame: &mut [u8]) {
    let end = 14 + usize::from(frame[14] & 0xf) * 4;
    let options = random.bytes(end - 34);
    frame[34..end].copy_from_slice(&options);
    frame[24..26].fill(0);
    let sum = !checksum::sum(&frame[14..end]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

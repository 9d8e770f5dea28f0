//! Packets of clients and for clients.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use etherparse::IpNumber;
use xdptun_common::nat64::address::Prefix;
use xdptun_lab::seeded::Random;

use crate::fuzz::generate::{damage, fit};
use crate::icmp::Message;
use crate::nat64::INSIDE;
use crate::packet::Packet;
use crate::path::Family;

/// The numbers of clients whose addresses are theirs for ever.
pub const FIXED: RangeInclusive<u16> = 1..=3;

/// The client with a number.
pub fn client(number: u16) -> Ipv6Addr {
    let mut segments = INSIDE.segments();
    segments[7] = number;
    segments.into()
}

/// Its address, if it is one of [`FIXED`]; nobody's otherwise, in most cases.
pub fn address(number: u16) -> Ipv4Addr {
    Ipv4Addr::new(100, 64, 0, number as u8)
}

/// The IPv6 address that stands for an IPv4 one.
pub fn embedded(address: Ipv4Addr) -> Ipv6Addr {
    Prefix::WELL_KNOWN.embed(address.octets()).into()
}

/// A frame.
pub fn frame(random: &mut Random) -> Vec<u8> {
    let family = random.pick(&Family::ALL);
    let (from, to) = ends(random, family);
    let packet = match random.below(8) {
        0 => about(random, from, to).packet(from, to),
        _ => whole(random, from, to),
    };
    let packet = dressed(random, family, packet);
    let mut frame = packet.bytes();
    if random.once_in(4) {
        // Padding, as of a short frame.
        let more = random.between(1, 30);
        frame.extend(random.bytes(more));
    }
    if random.once_in(2) {
        damage::inflict(random, &mut frame, family);
    }
    fit(&mut frame);
    frame
}

/// Sender and receiver.
fn ends(random: &mut Random, family: Family) -> (IpAddr, IpAddr) {
    let global = Ipv4Addr::new(9, 0, 0, random.byte());
    let private = Ipv4Addr::new(10, 0, 0, 1);
    let number = random.between(1, 3) as u16;
    let other = random.between(4, 200) as u16;
    match family {
        Family::V4 => {
            let from = random.weighted(&[(12, global), (1, private), (1, address(2))]);
            let to = random.weighted(&[(12, number), (1, other)]);
            (from.into(), address(to).into())
        }
        Family::V6 => {
            let stranger = Ipv6Addr::new(0xfd00, 7, 0, 0, 0, 0, 0, 9);
            let from = [(12, client(number)), (2, client(other)), (1, stranger)];
            let to = [global, private, address(2)].map(embedded);
            let elsewhere = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
            let to = [(12, to[0]), (1, to[1]), (1, to[2]), (1, elsewhere)];
            (random.weighted(&from).into(), random.weighted(&to).into())
        }
    }
}

/// A packet that is no error.
fn whole(random: &mut Random, from: IpAddr, to: IpAddr) -> Packet {
    let longest = random.pick(&[3, 100, 1500, 3000]);
    let len = random.between(0, longest);
    let payload = random.bytes(len);
    let ports = [random.boundary(), random.boundary()];
    let datagram = Packet::datagram((from, ports[0]).into(), (to, ports[1]).into());
    match random.below(8) {
        0..3 => {
            let datagram = datagram.payload(payload);
            let datagram = match random.once_in(4) {
                true => datagram.without_checksum(),
                false => datagram,
            };
            match random.once_in(6) {
                true => datagram.udp_length(random.between(0, len + 10) as u16),
                false => datagram,
            }
        }
        3..5 => datagram
            .segment(random.byte(), random.number(), random.number())
            .window(random.boundary())
            .payload(payload),
        5 => {
            let protocol = random.pick(&[IpNumber::GRE, IpNumber::SCTP, IpNumber::EGP]);
            Packet::other(from, to, protocol).payload(payload)
        }
        _ => {
            let kinds = match from {
                IpAddr::V4(_) => [0, 8, 13],
                IpAddr::V6(_) => [128, 129, 135],
            };
            let message = Message {
                kind: random.pick(&kinds),
                code: 0,
                rest: random.number(),
                body: payload,
            };
            message.packet(from, to)
        }
    }
}

/// An ICMP error, mostly about a packet that its receiver sent to its sender.
fn about(random: &mut Random, from: IpAddr, to: IpAddr) -> Message {
    let (from, to) = match random.once_in(8) {
        true => (from, to),
        false => (to, from),
    };
    let family = match from {
        IpAddr::V4(_) => Family::V4,
        IpAddr::V6(_) => Family::V6,
    };
    let inside = whole(random, from, to);
    let inside = dressed(random, family, inside);
    let mut body = inside.without_link().bytes();
    body.truncate(random.between(28, 1400));
    let kinds = match family {
        Family::V4 => [3, 3, 4, 5, 11, 12],
        Family::V6 => [1, 1, 2, 3, 4, 4],
    };
    let number = random.number();
    Message {
        kind: random.pick(&kinds),
        code: random.below(16) as u8,
        rest: random.pick(&[0, 0, 1300, 0x0020_0000, 0x1000_0000, number]),
        body,
    }
}

/// With fields, options, extension headers, as a fragment.
fn dressed(random: &mut Random, family: Family, packet: Packet) -> Packet {
    let packet = packet.tos(random.byte()).ttl(random.byte());
    let packet = match (random.below(4), family) {
        (0, Family::V4) => packet.ip_options(random.between(1, 10)),
        (0, Family::V6) => {
            let number = random.pick(&[
                IpNumber::IPV6_HEADER_HOP_BY_HOP,
                IpNumber::IPV6_DESTINATION_OPTIONS,
                IpNumber::IPV6_ROUTE_HEADER,
                IpNumber::AUTHENTICATION_HEADER,
            ]);
            packet.extension(number, random.between(1, 3) as u8)
        }
        (1, Family::V6) => packet.flow_label(random.number() >> 12),
        _ => packet,
    };
    if random.once_in(4) {
        let offset = random.pick(&[0, 0, 1, 91, 0x1fff]);
        return packet.fragment_of(random.number(), offset, random.once_in(2));
    }
    match random.once_in(2) {
        true => packet.without_df().identified(random.boundary()),
        false => packet,
    }
}

//! One forged packet.

use std::net::{IpAddr, SocketAddr};

use etherparse::IpNumber;
use xdptun_common::tunnel::state::Flow;

use crate::icmp::Message;
use crate::packet::{Packet, flags, payload};
use crate::path::{Family, OWNED, Path, syn_options, timestamped_syn_options};
use xdptun_lab::seeded::Random;

/// How far a sequence number may be from the expected one.
const WINDOW: u32 = 1 << 26;

/// The flow under attack. The attacker knows the path; a generator that knew no more
/// would hardly ever come near to a number that counts.
pub struct Target {
    /// Its sockets.
    pub path: Path,
    /// Its numbers.
    pub flow: Flow,
    /// Segments that left of late.
    pub left: Vec<Packet>,
    /// A SYN with a proof that the attacker recorded.
    pub call: Option<Call>,
}

/// The peer's first SYN of another flow, which proves the secret.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Its initial sequence number.
    pub isn: u32,
    /// Its proof.
    pub proof: u32,
}

impl Call {
    /// The SYN, from anywhere.
    pub fn syn(self, from: SocketAddr) -> Packet {
        let family = if from.is_ipv4() {
            Family::V4
        } else {
            Family::V6
        };
        let mut path = Path::new(family, OWNED, 0);
        path.remote = from;
        let syn = path.inbound().segment(flags::SYN, self.isn, 0);
        syn.options(&timestamped_syn_options(family, self.proof))
    }
}

/// A packet that no peer and no router of the path sent.
pub fn packet(random: &mut Random, target: &Target) -> Packet {
    match random.below(16) {
        0..8 => segment(random, target),
        8..13 => error(random, target),
        13 => datagram(random, target.path),
        14 => beside(random, target.path),
        _ => match &target.call {
            Some(call) => replayed(random, *call, target.path.family()),
            None => segment(random, target),
        },
    }
}

/// A segment of the flow.
fn segment(random: &mut Random, target: &Target) -> Packet {
    let any = random.byte();
    let flags = random.weighted(&[
        (4, flags::DATA),
        (2, flags::ACK),
        (2, flags::RST),
        (1, flags::RST | flags::ACK),
        (2, flags::SYN),
        (1, flags::SYN | flags::ACK),
        (2, flags::FIN | flags::ACK),
        (1, flags::FIN | flags::DATA),
        (1, 0),
        (3, any),
    ]);
    let carries = flags & flags::PSH != 0 || random.once_in(6);
    let len = if carries { random.below(1300) } else { 0 };
    let packet = target.path.inbound().payload(random.bytes(len));
    let (sequence, acknowledgment) = numbers(random, &target.flow, len as u32);
    // The window of a segment tells probes and challenges from other segments.
    let any = random.number() as u16;
    let window = random.pick(&[0xf000, 0xf800, 0xf400, any]);
    options(
        random,
        packet
            .segment(flags, sequence, acknowledgment)
            .window(window),
        target.path.family(),
    )
}

/// Any numbers, and those that are beside one that counts: mostly one of two is right.
fn numbers(random: &mut Random, flow: &Flow, len: u32) -> (u32, u32) {
    let any = random.number();
    let by = random.pick(&[1, 2, 1000, WINDOW, WINDOW + 1, WINDOW + 2000, 1 << 31]);
    let sequence = random.weighted(&[
        (4, any),
        (3, flow.rcv_nxt),
        (2, flow.rcv_nxt.wrapping_add(by)),
        (2, flow.rcv_nxt.wrapping_sub(by)),
        (1, flow.rcv_nxt.wrapping_sub(len)),
        (1, flow.snd_nxt),
        (1, 0),
    ]);
    let any = random.number();
    let oldest = flow.ack_marks.numbers[0];
    let acknowledgment = random.weighted(&[
        (4, any),
        (2, flow.snd_nxt.wrapping_add(1)),
        (2, flow.snd_nxt.wrapping_add(by)),
        (2, oldest.wrapping_sub(1)),
        (1, oldest.wrapping_sub(by)),
        (1, flow.ack_marks.numbers[1].wrapping_sub(1)),
        (1, flow.snd_una.wrapping_sub(1)),
        (2, flow.snd_nxt),
        (1, flow.rcv_nxt),
        (1, flow.iss.wrapping_add(1)),
        (1, 0),
    ]);
    (sequence, acknowledgment)
}

/// Some TCP options, mostly none.
fn options(random: &mut Random, segment: Packet, family: Family) -> Packet {
    let any = random.number();
    match random.below(8) {
        0 => segment.options(&syn_options(family)),
        1 => segment.options(&timestamped_syn_options(family, any)),
        2 => {
            let words = random.between(1, 10);
            segment.options(&random.bytes(words * 4))
        }
        _ => segment,
    }
}

/// UDP in clear, from the peer or from anyone.
fn datagram(random: &mut Random, path: Path) -> Packet {
    let mut path = path;
    if random.once_in(4) {
        path.remote.set_ip(path.family().stranger());
    }
    let len = random.below(1300);
    let datagram = path.inbound().payload(random.bytes(len));
    match random.once_in(4) {
        true => datagram.without_checksum(),
        false => datagram,
    }
}

/// A segment of another flow between the same hosts or with another, of which there is
/// none.
fn beside(random: &mut Random, path: Path) -> Packet {
    let any = random.number() as u16;
    let mut path = path;
    match random.below(3) {
        0 => path.remote.set_ip(path.family().stranger()),
        1 => path.remote.set_port(any),
        _ => path.local.set_port(OWNED),
    }
    let flags = random.byte();
    let segment = path
        .inbound()
        .segment(flags, random.number(), random.number());
    options(random, segment, path.family())
}

/// The recorded SYN from another address than the caller's, or one made of it.
fn replayed(random: &mut Random, call: Call, family: Family) -> Packet {
    let any = random.between(1, 65535) as u16;
    let from = random.pick(&[family.stranger(), family.with_own_key(), family.host()]);
    let replayed = call.syn(SocketAddr::new(from, any));
    match random.below(4) {
        0 => replayed.sequence_ahead(random.pick(&[1, 7, 8, 1 << 31])),
        1 => replayed.payload(payload(16)),
        _ => replayed,
    }
}

/// An ICMP error to this host, of any type.
fn error(random: &mut Random, target: &Target) -> Packet {
    let Target { path, .. } = target;
    let family = path.family();
    let any = random.byte();
    let kind = match family {
        Family::V4 => {
            random.weighted(&[(4, 3), (1, 4), (2, 5), (2, 11), (1, 12), (1, 8), (1, any)])
        }
        Family::V6 => {
            random.weighted(&[(3, 1), (4, 2), (2, 3), (1, 4), (1, 100), (1, 128), (1, any)])
        }
    };
    let code = match (family, kind) {
        (Family::V4, 3) => random.pick(&[4, 4, 4, 0, 1, 3, 13]),
        _ => random.pick(&[0, 0, 0, 1, 3]),
    };
    let any = random.number();
    let rest = random.pick(&[0, 576, 1280, 1300, 1400, 1500, any]);
    let body = match random.below(8) {
        0 => quote(random, &path.outbound().payload(payload(100))),
        1 => {
            let ping = foreign(random, *path);
            quote(random, &ping)
        }
        2 => quote(
            random,
            &path.outbound().payload(payload(100)).fragment(0, true),
        ),
        _ => quoted_segment(random, target),
    };
    let any = random.number();
    let from = random.pick(&[family.stranger(), path.remote.ip(), somewhere(family, any)]);
    let message = Message {
        kind,
        code,
        rest,
        body,
    };
    message.packet(from, path.local.ip())
}

/// The quote of a segment that the flow never sent, or never like this.
fn quoted_segment(random: &mut Random, target: &Target) -> Vec<u8> {
    let Target {
        path, flow, left, ..
    } = target;
    if left.is_empty() || random.once_in(2) {
        let any = random.number();
        let len = random.pick(&[0, 100, 1024, 1100, 1400, 1440]);
        let back = random.pick(&[0, 1, len as u32, 1400, 1 << 20]);
        let number = random.weighted(&[
            (3, any),
            (3, flow.snd_nxt.wrapping_sub(back)),
            (1, flow.snd_una),
            (1, flow.iss),
            (1, flow.rcv_nxt),
        ]);
        let made_up = path.outbound().payload(random.bytes(len));
        return quote(random, &made_up.segment(flags::DATA, number, flow.rcv_nxt));
    }
    let true_one = random.pick(left);
    // One off, one byte shorter, other bytes, or right as far as it goes.
    match random.below(4) {
        0 => {
            let by = random.pick(&[1, 1024, u32::MAX]);
            quote(random, &true_one.sequence_ahead(by))
        }
        1 => {
            let len = random.pick(&[1023, 1399, 1401]);
            let other = true_one.payload(random.bytes(len));
            quote(random, &other)
        }
        2 => {
            let mut quote = quote(random, &true_one);
            let at = path.family().header_len() + 16 + random.below(2);
            if let Some(byte) = quote.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
            quote
        }
        _ => true_one.quote(random.pick(&[4, 8, 8, 12, 17])),
    }
}

/// As much of a packet as routers quote.
fn quote(random: &mut Random, packet: &Packet) -> Vec<u8> {
    let whole = packet.clone().without_link().bytes();
    let longest = whole.len() - packet.quote(0).len();
    packet.quote(random.pick(&[8, 8, 12, 18, 20, 28]).min(longest))
}

/// A packet to the peer that is neither TCP nor UDP: a ping, or one with more in front
/// of it than hosts send.
fn foreign(random: &mut Random, path: Path) -> Packet {
    let (from, to) = (path.local.ip(), path.remote.ip());
    let number = random.pick(&[1, 41, 47, 50, 58, 132]);
    Packet::other(from, to, IpNumber(number)).payload(payload(64))
}

/// Any address.
fn somewhere(family: Family, number: u32) -> IpAddr {
    match (family, family.stranger()) {
        (Family::V4, _) => IpAddr::V4((number >> 3 | 0x4000_0000).into()),
        (_, IpAddr::V6(address)) => {
            IpAddr::V6((address.to_bits() | u128::from(number) << 16).into())
        }
        (_, other) => other,
    }
}

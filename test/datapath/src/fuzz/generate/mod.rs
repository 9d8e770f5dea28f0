//! Scenes: a flow, a packet that has something to do with it, and damage.

pub(super) mod damage;
mod error;
mod flows;
mod proof;
mod segment;
pub(super) mod shape;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::IpNumber;
use xdptun_common::tunnel::config::Request;

use super::scene::{Scene, Setup};
use crate::moment::Moment;
use crate::packet::Packet;
use crate::path::{Family, HTTPS, OTHER, OWNED, Path};
use crate::program::{Program, Skb};
use xdptun_lab::seeded::Random;

/// The longest frame that is made: `BPF_PROG_TEST_RUN` takes what fits a page
/// beside the head and tail room of a buffer, also when it has grown.
const LONGEST: usize = 3700;

/// Makes the scene of one iteration.
///
/// A second call differs only in values that depend on the clock: times, initial
/// sequence numbers, and numbers derived from them.
#[must_use]
pub fn scene(program: Program, random: &mut Random, at: Moment) -> Scene {
    let path = path(random);
    let flows = flows::table(random, path, at);
    let mark = mark(random, program);
    // The one inbound packet that egress meets is the clone that becomes an ACK.
    let outbound = program == Program::Egress && mark != Request::Acknowledge.mark();
    // A few go the wrong way.
    let outbound = outbound ^ random.once_in(32);
    let datagram = if outbound {
        path.outbound()
    } else {
        path.inbound()
    };
    let len = length(random);
    let bytes = random.bytes(len);
    let datagram = datagram.payload(bytes);
    let kind = match program {
        Program::Egress => [(20, Kind::Datagram), (2, Kind::Segment)],
        Program::Ingress | Program::Xdp | Program::XdpFrags => {
            [(2, Kind::Datagram), (20, Kind::Segment)]
        }
        Program::Splitter => [(10, Kind::Datagram), (10, Kind::Segment)],
    };
    let [datagrams, segments] = kind;
    let kinds = [
        datagrams,
        segments,
        (1, Kind::Error),
        (1, Kind::Other),
        (1, Kind::Noise),
    ];
    let kind = random.weighted(&kinds);
    let mut sent = None;
    let packet = match kind {
        Kind::Datagram => some_checksum(random, datagram),
        Kind::Segment => segment::near(random, datagram, len, path, flows.get(&path.key()), at),
        Kind::Error => error::quoting(random, path, outbound, at, &mut sent),
        Kind::Other | Kind::Noise => {
            let (from, to) = (path.remote.ip(), path.local.ip());
            let number = [0, 2, 4, 41, 47, 50, 59, 132, 136, 255];
            Packet::other(from, to, IpNumber(random.pick(&number))).payload(random.bytes(len))
        }
    };
    let mut intact = shape::apply(random, packet, path.family());
    if kind == Kind::Noise {
        let noise = random.bytes(intact.len() - 14);
        intact[14..].copy_from_slice(&noise);
    }
    fit(&mut intact);
    let mut frame = intact.clone();
    if random.once_in(2) {
        damage::inflict(random, &mut frame, path.family());
        fit(&mut frame);
        // What is damaged and shows it goes no further than that.
        if random.once_in(2) {
            damage::mend(&mut frame);
        }
    }
    Scene {
        program,
        setup: random.pick(&Setup::ALL),
        flows,
        sent,
        skb: Skb {
            mark: if program.is_xdp() { 0 } else { mark },
            ifindex: 0,
            gso_size: if random.once_in(24) { 1000 } else { 0 },
        },
        narrow: program == Program::Egress && random.once_in(3),
        may_reply: !random.once_in(16),
        frame,
        intact,
    }
}

/// The kind of a packet before it is damaged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Datagram,
    Segment,
    /// An ICMP error about one of either.
    Error,
    /// Another protocol.
    Other,
    /// An IP packet by its Ethernet type alone.
    Noise,
}

/// Two sockets, most of them ours in one way or another.
fn path(random: &mut Random) -> Path {
    let family = random.pick(&Family::ALL);
    let any = random.number() as u16;
    let (local, remote) = random.weighted(&[
        (6, (OWNED, OTHER)),
        (6, (OTHER, OWNED)),
        (2, (OWNED, HTTPS)),
        (1, (OWNED, OWNED)),
        (1, (OTHER, 53)),
        (2, (any, OWNED)),
        (2, (OWNED, any)),
        (1, (any, OWNED + 1)),
    ]);
    let mut path = Path::new(family, local, remote);
    let many = match family {
        Family::V4 => {
            IpAddr::V4(random.pick(&[Ipv4Addr::new(224, 0, 0, 251), Ipv4Addr::BROADCAST]))
        }
        Family::V6 => IpAddr::V6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb)),
    };
    let remote = [
        (12, family.peer()),
        (3, family.stranger()),
        (1, family.with_own_key()),
        (1, many),
    ];
    path.remote.set_ip(random.weighted(&remote));
    path
}

/// Marks are requests to egress; to anything else they mean nothing.
fn mark(random: &mut Random, program: Program) -> u32 {
    let any = random.number();
    let requests = [
        Request::Acknowledge,
        Request::RetransmitSyn,
        Request::Probe,
        Request::Finish,
        Request::Reopen,
        Request::Confirm,
        Request::Resend,
    ];
    let request = random.pick(&requests).mark();
    let often = if program == Program::Egress { 4 } else { 1 };
    random.weighted(&[(16, 0), (often, request), (1, any)])
}

/// A payload length at an edge that the programs have, or any.
fn length(random: &mut Random) -> usize {
    match random.below(8) {
        0 => random.below(5),
        1 => random.between(20, 70),
        2 => random.between(120, 132),
        // Around what an MTU of 1500 leaves, with and without the growth.
        3 => random.between(1420, 1476),
        4 => random.below(LONGEST - 200),
        5 => random.below(2000),
        _ => random.below(200),
    }
}

/// A right checksum, or none; damage makes wrong ones.
fn some_checksum(random: &mut Random, datagram: Packet) -> Packet {
    if random.once_in(4) {
        datagram.without_checksum()
    } else {
        datagram
    }
}

/// Cuts or fills a frame to a length that the kernel runs programs on: a whole
/// IP header, if the Ethernet type announces one.
pub(super) fn fit(frame: &mut Vec<u8>) {
    frame.resize(frame.len().clamp(14, LONGEST), 0);
    let shortest = match frame[12..14] {
        [0x08, 0x00] => 34,
        [0x86, 0xdd] => 54,
        _ => 14,
    };
    frame.resize(frame.len().max(shortest), 0);
}

//! Scenes: a flow, a packet that has something to do with it, and damage.

mod damage;
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
use xdptun_lab::dice::Dice;

/// The longest frame that is made: `BPF_PROG_TEST_RUN` takes what fits a page
/// beside the head and tail room of a buffer, also when it has grown.
const LONGEST: usize = 3700;

/// Makes the scene of one iteration.
///
/// Only what hangs on the clock differs when it is made again: times, and
/// initial sequence numbers with what is made of them.
#[must_use]
pub fn scene(program: Program, dice: &mut Dice, at: Moment) -> Scene {
    let path = path(dice);
    let flows = flows::table(dice, path, at);
    let mark = mark(dice, program);
    // The one inbound packet that egress meets is the clone that becomes an ACK.
    let outbound = program == Program::Egress && mark != Request::Acknowledge.mark();
    // A few go the wrong way.
    let outbound = outbound ^ dice.once_in(32);
    let datagram = if outbound {
        path.outbound()
    } else {
        path.inbound()
    };
    let len = length(dice);
    let bytes = dice.bytes(len);
    let datagram = datagram.payload(bytes);
    let kind = match program {
        Program::Egress => [(20, Kind::Datagram), (2, Kind::Segment)],
        Program::Ingress | Program::FastIn | Program::FastFrags => {
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
    let kind = dice.weighted(&kinds);
    let mut sent = None;
    let packet = match kind {
        Kind::Datagram => some_checksum(dice, datagram),
        Kind::Segment => segment::near(dice, datagram, len, path, flows.get(&path.key()), at),
        Kind::Error => error::quoting(dice, path, outbound, at, &mut sent),
        Kind::Other | Kind::Noise => {
            let (from, to) = (path.remote.ip(), path.local.ip());
            let number = [0, 2, 4, 41, 47, 50, 59, 132, 136, 255];
            Packet::other(from, to, IpNumber(dice.pick(&number))).payload(dice.bytes(len))
        }
    };
    let mut intact = shape::apply(dice, packet, path.family());
    if kind == Kind::Noise {
        let noise = dice.bytes(intact.len() - 14);
        intact[14..].copy_from_slice(&noise);
    }
    fit(&mut intact);
    let mut frame = intact.clone();
    if dice.once_in(2) {
        damage::inflict(dice, &mut frame, path.family());
        fit(&mut frame);
        // What is damaged and shows it goes no further than that.
        if dice.once_in(2) {
            damage::mend(&mut frame);
        }
    }
    Scene {
        program,
        setup: dice.pick(&Setup::ALL),
        flows,
        sent,
        skb: Skb {
            mark: if program.is_xdp() { 0 } else { mark },
            ifindex: 0,
            gso_size: if dice.once_in(24) { 1000 } else { 0 },
        },
        narrow: program == Program::Egress && dice.once_in(3),
        may_reply: !dice.once_in(16),
        frame,
        intact,
    }
}

/// What a packet is before it is damaged.
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
fn path(dice: &mut Dice) -> Path {
    let family = dice.pick(&Family::ALL);
    let any = dice.number() as u16;
    let (local, remote) = dice.weighted(&[
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
        Family::V4 => IpAddr::V4(dice.pick(&[Ipv4Addr::new(224, 0, 0, 251), Ipv4Addr::BROADCAST])),
        Family::V6 => IpAddr::V6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb)),
    };
    let remote = [
        (12, family.peer()),
        (3, family.stranger()),
        (1, family.with_own_key()),
        (1, many),
    ];
    path.remote.set_ip(dice.weighted(&remote));
    path
}

/// Marks are requests to egress; to anything else they mean nothing.
fn mark(dice: &mut Dice, program: Program) -> u32 {
    let any = dice.number();
    let requests = [
        Request::Acknowledge,
        Request::RetransmitSyn,
        Request::Probe,
        Request::Finish,
        Request::Reopen,
        Request::Confirm,
    ];
    let request = dice.pick(&requests).mark();
    let often = if program == Program::Egress { 4 } else { 1 };
    dice.weighted(&[(16, 0), (often, request), (1, any)])
}

/// A payload length at an edge that the programs have, or any.
fn length(dice: &mut Dice) -> usize {
    match dice.below(8) {
        0 => dice.below(5),
        1 => dice.between(20, 70),
        2 => dice.between(120, 132),
        // Around what an MTU of 1500 leaves, with and without the growth.
        3 => dice.between(1420, 1476),
        4 => dice.below(LONGEST - 200),
        5 => dice.below(2000),
        _ => dice.below(200),
    }
}

/// A right checksum, or none; damage makes wrong ones.
fn some_checksum(dice: &mut Dice, datagram: Packet) -> Packet {
    if dice.once_in(4) {
        datagram.without_checksum()
    } else {
        datagram
    }
}

/// Cuts or fills a frame to a length that the kernel runs programs on: a whole
/// IP header, if the Ethernet type announces one.
fn fit(frame: &mut Vec<u8>) {
    frame.resize(frame.len().clamp(14, LONGEST), 0);
    let shortest = match frame[12..14] {
        [0x08, 0x00] => 34,
        [0x86, 0xdd] => 54,
        _ => 14,
    };
    frame.resize(frame.len().max(shortest), 0);
}

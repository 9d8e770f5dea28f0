//! Fragments that no segment carries: the first one names the ports and is dropped, and the
//! others of the same datagram with it. Those of other datagrams pass.

use xdptun_common::tunnel::fragment::First;
use xdptun_common::tunnel::outcome::Outcome;
use xdptun_common::tunnel::state::Flow;
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::path::OTHER;
use xdptun_test_datapath::{Case, Family, Moment, Packet, Path, Program, Row, check, flags, row};

use crate::{datapath, paths};

const ID: u32 = 0x1234_5678;

/// Both ways: the program, what it refuses, and the counter.
fn ways(path: Path) -> [(Program, Packet, Outcome); 2] {
    let back = path.inbound().payload(payload(64));
    [
        (
            Program::Egress,
            path.outbound().payload(payload(64)),
            Outcome::TxDropFragment,
        ),
        (
            Program::Ingress,
            back.segment(flags::DATA, 0xffff_fff0, 0xffff_ffe0),
            Outcome::RxDropFragment,
        ),
    ]
}

/// All that `ways` gives, for every path that is ours without a flow too.
fn each() -> impl Iterator<Item = (Path, Program, Packet, Outcome)> {
    let servers = Family::ALL.map(Path::server).into_iter();
    servers.flat_map(|path| ways(path).map(|(program, packet, drop)| (path, program, packet, drop)))
}

/// An established flow whose peer was asked this second whether it takes fragments, and did not
/// say so.
pub fn asked(path: Path, at: Moment) -> Flow {
    Flow {
        label: ((at.ns() >> 30) as u32 % 1023 + 1) << 20,
        ..path.established(at)
    }
}

#[test]
fn the_first_one_is_dropped_and_remembered() {
    let mut rows: Vec<Row> = Vec::new();
    for (path, program, packet, outcome) in each() {
        for (name, packet) in [
            ("", packet.clone().fragment_of(ID, 0, true)),
            (
                ", with options",
                packet.clone().ip_options(3).fragment_of(ID, 0, true),
            ),
            (
                ", behind options",
                packet
                    .clone()
                    .extension(0.into(), 2)
                    .fragment_of(ID, 0, true),
            ),
            (
                ", before options",
                packet
                    .clone()
                    .fragment_of(ID, 0, true)
                    .extension(60.into(), 1),
            ),
            (
                ", around another header",
                packet.fragment_of(ID, 0, true).extension(43.into(), 1),
            ),
        ] {
            let again = packet.clone();
            rows.push(row(format!("{program:?} {path:?}{name}"), move |at| {
                Case::new(program, &packet)
                    .flow(path.key(), asked(path, at))
                    .drops(outcome)
                    .remembers(packet.fragmented())
            }));
            // On its way out it would open a flow.
            if program == Program::Egress {
                continue;
            }
            rows.push(row(format!("{program:?} {path:?}{name}, no flow"), {
                move |_| {
                    Case::new(program, &again)
                        .drops(outcome)
                        .remembers(again.fragmented())
                }
            }));
        }
    }
    check(&mut datapath(), rows);
}

/// IPv6 only: the outermost fragment header counts, whatever a second one says.
#[test]
fn a_fragment_within_a_fragment() {
    let path = Path::server(Family::V6);
    let rows = ways(path).map(|(program, packet, outcome)| {
        let packet = packet.fragment_of(ID, 0, true).fragment_of(7, 0, false);
        row(format!("{program:?}"), move |at| {
            Case::new(program, &packet)
                .flow(path.key(), asked(path, at))
                .drops(outcome)
                .remembers(packet.fragmented())
        })
    });
    check(&mut datapath(), rows);
}

#[test]
fn the_others_follow_it() {
    let mut rows: Vec<Row> = Vec::new();
    for (path, program, packet, outcome) in each() {
        for (name, packet) in [
            ("the next", packet.clone().fragment_of(ID, 8, true)),
            ("the last", packet.clone().fragment_of(ID, 0x1fff, false)),
            (
                "with options",
                packet.clone().ip_options(10).fragment_of(ID, 8, true),
            ),
            (
                "behind options",
                packet
                    .clone()
                    .extension(0.into(), 2)
                    .fragment_of(ID, 8, true),
            ),
            (
                "of what starts with options",
                packet
                    .clone()
                    .fragment_of(ID, 8, true)
                    .extension(60.into(), 1),
            ),
            (
                "short",
                packet.payload(Vec::new()).fragment_of(ID, 8, false),
            ),
        ] {
            rows.push(row(format!("{program:?} {path:?} {name}"), move |at| {
                Case::new(program, &packet)
                    .flow(path.key(), path.established(at))
                    .refused(packet.fragmented(), at.before_ms(100))
                    .drops(outcome)
            }));
        }
    }
    check(&mut datapath(), rows);
}

/// Numbers are used again: after as long as a host waits for fragments, the
/// number is another datagram's. This host sends those of a datagram at once.
#[test]
fn what_is_remembered_expires() {
    const LIFETIME: u64 = 30_000_000_000;
    let mut rows: Vec<Row> = Vec::new();
    for (path, program, packet, outcome) in each() {
        let later = packet.clone().fragment_of(ID, 8, true);
        let last = match program {
            Program::Egress => First::FOLLOWED_NS,
            _ => LIFETIME,
        };
        for (age, follows) in [(0, true), (last - 1, true), (last, false)] {
            let later = later.clone();
            rows.push(row(
                format!("{program:?} {path:?} after {age} ns"),
                move |at| {
                    let case = Case::new(program, &later);
                    let case = case.refused(later.fragmented(), at.before(age));
                    if follows { case.drops(outcome) } else { case }
                },
            ));
        }
        let first = packet.fragment_of(ID, 0, true);
        rows.push(row(format!("{program:?} {path:?} anew"), move |at| {
            Case::new(program, &first)
                .flow(path.key(), asked(path, at))
                .refused(first.fragmented(), at.before(LIFETIME))
                .drops(outcome)
                .remembers(first.fragmented())
        }));
    }
    check(&mut datapath(), rows);
}

/// Nothing of another datagram is touched, whatever was dropped before; XDP
/// leaves all fragments to tc.
#[test]
fn those_of_other_datagrams_pass() {
    let mut rows: Vec<Row> = Vec::new();
    for (path, program, packet, _) in each() {
        let later = packet.clone().fragment_of(ID, 8, true);
        let elsewhere = Path::with_stranger(path.family());
        for (name, refused) in [
            ("another number", packet.fragment_of(ID + 1, 0, true)),
            ("to the host", path.outbound().fragment_of(ID, 0, true)),
            ("from the host", path.inbound().fragment_of(ID, 0, true)),
            ("to another", elsewhere.outbound().fragment_of(ID, 0, true)),
            ("from another", elsewhere.inbound().fragment_of(ID, 0, true)),
        ] {
            // One of the two ways is its own.
            if refused.fragmented() == later.fragmented() {
                continue;
            }
            let later = later.clone();
            rows.push(row(format!("{program:?} {path:?} {name}"), move |at| {
                Case::new(program, &later).refused(refused.fragmented(), at.ns())
            }));
        }
    }
    for path in paths() {
        let later = path.inbound().payload(payload(30)).fragment_of(ID, 8, true);
        rows.push(row(format!("{path:?} carried by a segment"), move |at| {
            let first = First::carried(at.ns(), (path.remote.port(), path.local.port()));
            Case::ingress(&later).after_first(later.fragmented(), first)
        }));
        for program in Program::XDP {
            let later = path.inbound().payload(payload(30)).fragment_of(ID, 8, true);
            rows.push(row(format!("{program:?} {path:?}"), move |at| {
                Case::new(program, &later).refused(later.fragmented(), at.ns())
            }));
        }
    }
    check(&mut datapath(), rows);
}

/// A datagram of another port makes its own way, first fragment and all, even if its number was that
/// of one of ours a moment before.
#[test]
fn those_of_other_ports_pass() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        let other = Path::new(path.family(), 53, OTHER).outbound();
        let first = other.payload(payload(64)).fragment_of(ID, 0, true);
        for (age, is_leaving) in [
            (0, true),
            (First::LEAVING_NS - 1, true),
            (First::LEAVING_NS, false),
            (First::FOLLOWED_NS, false),
        ] {
            let first = first.clone();
            rows.push(row(format!("{path:?} {age} ns after ours"), move |at| {
                let ports = (path.local.port(), path.remote.port());
                let ours = First::carried(at.before(age), ports);
                let case = Case::egress(&first).after_first(first.fragmented(), ours);
                match is_leaving {
                    // Those of ours may still come, and must not leave.
                    true => case.remembers(first.fragmented()),
                    false => case.forgets(first.fragmented()),
                }
            }));
        }
    }
    for family in Family::ALL {
        let path = Path::new(family, 53, 40000);
        for (program, packet, _) in ways(path) {
            for offset in [0, 8] {
                let fragment = packet.clone().fragment_of(ID, offset, true);
                rows.push(row(format!("{program:?} {family:?} {offset}"), move |_| {
                    Case::new(program, &fragment)
                }));
            }
        }
    }
    check(&mut datapath(), rows);
}

//! Payloads under the veil: each segment's is covered on its way out, and uncovered on its way in.

use std::sync::{LazyLock, Mutex, MutexGuard};

use xdptun_common::attachment::IngressMode;
use xdptun_common::tunnel::outcome::Outcome;
use xdptun_common::tunnel::state::Flow;
use xdptun_test_datapath::moment::{OWN_VEIL_KEY, window};
use xdptun_test_datapath::packet::{PADDED, payload};
use xdptun_test_datapath::veil::padded;
use xdptun_test_datapath::{
    Case, Config, Datapath, Family, Moment, Packet, Path, Program, Row, check, row,
};

use crate::effects::received;
use crate::established::disguises;
use crate::restored::restores;
use crate::{Shared, carried, largest, lengths, lock, paths};

/// The programs with a veil that pads datagrams up to so many bytes.
fn veiling(most: u32) -> Mutex<Datapath> {
    Mutex::new(Datapath::new(&Config {
        veil: Some(most),
        ..Config::default()
    }))
}

static WITHOUT_PADDING: Shared = LazyLock::new(|| veiling(0));
static PADDING: Shared = LazyLock::new(|| {
    Mutex::new(Datapath::new(&Config {
        veil: Some(256),
        veil_by_peer: true,
        ..Config::default()
    }))
});

fn without_padding() -> MutexGuard<'static, Datapath> {
    lock(&WITHOUT_PADDING)
}

/// Payloads by whose first bytes another number of them is covered, of every length at an edge.
fn payloads(path: Path) -> Vec<(String, Vec<u8>)> {
    let edges = [15, 16, 17, 31, 32, 33, 148, 254, 255, 256, 257, 258];
    let mut all = Vec::new();
    for len in lengths().chain(edges).chain([largest(path.family())]) {
        for (name, first) in [
            ("of WireGuard", [4, 0, 0, 0]),
            ("nearly of WireGuard", [4, 0, 0, 1]),
            ("of QUIC", [0x7a, 1, 2, 3]),
            ("other", [0xc1, 0, 0, 0]),
        ] {
            let mut bytes = payload(len);
            let start = len.min(4);
            bytes[..start].copy_from_slice(&first[..start]);
            all.push((format!("{path:?}, {len} bytes {name}"), bytes));
        }
    }
    all
}

/// The segment that the datagram becomes.
fn segment_of(flow: &Flow, datagram: &Packet, window: u16) -> Packet {
    let datagram = datagram.clone();
    datagram
        .carried(flow.snd_nxt, flow.rcv_nxt, window)
        .veiled()
}

/// The segment that brings it.
fn segment_with(flow: &Flow, datagram: &Packet, window: u16) -> Packet {
    let datagram = datagram.clone();
    datagram
        .carried(flow.rcv_nxt, flow.snd_nxt, window)
        .veiled()
}

#[test]
fn every_payload_is_covered() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        for (name, bytes) in payloads(path) {
            let datagram = path.outbound().payload(bytes.clone());
            let without_checksum = datagram.clone().without_checksum();
            for (kind, datagram) in [("", datagram), (", no checksum", without_checksum)] {
                let len = bytes.len();
                rows.push(row(format!("{name}{kind}"), move |at| {
                    let flow = path.established(at);
                    let segment = segment_of(&flow, &datagram, window(flow.rcv_nxt));
                    disguises(at, path, &datagram, len).passes_as(segment)
                }));
            }
        }
    }
    check(&mut without_padding(), rows);
}

#[test]
fn every_payload_is_uncovered() {
    for program in Program::INBOUND {
        let mut rows: Vec<Row> = Vec::new();
        for path in paths() {
            for (name, bytes) in payloads(path) {
                let datagram = path.inbound().payload(bytes.clone());
                rows.push(row(format!("{program:?} {name}"), move |at| {
                    let segment = segment_with(&path.established(at), &datagram, 0xf000);
                    restores(program, at, path, &datagram, bytes.len()).meets(segment)
                }));
            }
        }
        check(&mut without_padding(), rows);
    }
}

/// Of a datagram that is two bytes shorter than the longest that is padded there is one length.
#[test]
fn a_short_datagram_is_padded() {
    for most in [2, 3, 40, 41, 255, 256] {
        let mut rows: Vec<Row> = Vec::new();
        let len = most - 2;
        for path in paths() {
            let plain = payload(len);
            let datagram = path.outbound().payload(plain.clone());
            let longer = path.outbound().payload(padded(&plain, most));
            let ways = [
                ("", datagram.clone(), longer.clone()),
                (
                    ", no checksum",
                    datagram.clone().without_checksum(),
                    longer.clone().without_checksum(),
                ),
                (", no DF", datagram.without_df(), longer.without_df()),
            ];
            for (kind, datagram, longer) in ways {
                rows.push(row(format!("{path:?}, {len} bytes{kind}"), move |at| {
                    let flow = path.established(at);
                    let window = window(flow.rcv_nxt) | PADDED;
                    disguises(at, path, &datagram, most)
                        .passes_as(segment_of(&flow, &longer, window))
                }));
            }
            // One byte more, and it is as long as it was.
            let datagram = path.outbound().payload(payload(len + 1));
            rows.push(row(format!("{path:?}, {} bytes", len + 1), move |at| {
                let flow = path.established(at);
                let segment = segment_of(&flow, &datagram, window(flow.rcv_nxt));
                disguises(at, path, &datagram, len + 1).passes_as(segment)
            }));
        }
        check(&mut veiling(most as u32).lock().unwrap(), rows);
    }
}

/// A segment whose datagram was padded to `len` bytes.
fn cuts(at: Moment, path: Path, datagram: &Packet, plain: &[u8], len: usize) -> Case {
    let flow = path.established(at);
    let longer = datagram.clone().payload(padded(plain, len));
    restores(Program::Ingress, at, path, datagram, len).meets(segment_with(
        &flow,
        &longer,
        0xf000 | PADDED,
    ))
}

#[test]
fn a_padded_datagram_is_cut() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        for (len, padded_len) in [
            (0, 2),
            (0, 3),
            (0, 256),
            (1, 3),
            (1, 4),
            (32, 34),
            (32, 255),
            (148, 150),
            (148, 181),
            (254, 256),
        ] {
            let plain = payload(len);
            let datagram = path.inbound().payload(plain.clone());
            for (kind, datagram) in [("", datagram.clone()), (" no DF", datagram.without_df())] {
                let plain = plain.clone();
                let name = format!("{path:?}, {len} bytes in {padded_len}{kind}");
                rows.push(row(name, move |at| {
                    cuts(at, path, &datagram, &plain, padded_len)
                }));
            }
        }
    }
    // Also by programs that pad none themselves: the segment says so.
    check(&mut without_padding(), rows);
}

/// XDP leaves them to tc.
#[test]
fn a_padded_datagram_is_left_to_tc() {
    for program in Program::XDP {
        let rows = paths().map(|path| {
            row(format!("{program:?} {path:?}"), move |at| {
                let flow = path.established(at);
                let longer = path.inbound().payload(padded(&payload(32), 50));
                Case::new(program, segment_with(&flow, &longer, 0xf000 | PADDED))
                    .flow(path.key(), flow)
            })
        });
        check(&mut lock(&PADDING), rows.collect::<Vec<_>>());
    }
}

/// XDP in the stack cannot tell merged segments from one long segment, and without PSH some are merged.
#[test]
fn xdp_in_the_stack_leaves_all_to_tc() {
    let mut datapath = Datapath::new(&Config {
        veil: Some(0),
        ingress: IngressMode::XdpGeneric,
        ..Config::default()
    });
    let rows = paths().map(|path| {
        row(format!("{path:?}"), move |at| {
            let flow = path.established(at);
            let datagram = path.inbound().payload(payload(1200));
            Case::new(Program::Xdp, segment_with(&flow, &datagram, 0xf000)).flow(path.key(), flow)
        })
    });
    check(&mut datapath, rows.collect::<Vec<_>>());
}

/// The length that a padded datagram tells has room in it.
#[test]
fn what_cannot_be_a_padded_datagram_is_dropped() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        let with_trailer = |len: usize, tells: u16| {
            let mut bytes = payload(len);
            bytes.extend(tells.to_be_bytes());
            bytes
        };
        for (name, bytes) in [
            ("one byte", vec![1]),
            ("one too many", with_trailer(40, 41)),
            ("far too many", with_trailer(40, u16::MAX)),
            ("too long to be padded", with_trailer(300, 10)),
        ] {
            let len = bytes.len();
            let longer = path.inbound().payload(bytes);
            rows.push(row(format!("{path:?} {name}"), move |at| {
                let flow = path.established(at);
                Case::ingress(segment_with(&flow, &longer, 0xf000 | PADDED))
                    .flow(path.key(), flow)
                    .drops(Outcome::RxDropMalformed)
                    .changes(path.key(), |flow| received(flow, at, len))
            }));
        }
    }
    check(&mut without_padding(), rows);
}

/// A peer with a secret of its own has a key of its own.
#[test]
fn a_peer_may_have_its_own_key() {
    for program in Program::INBOUND {
        let mut rows: Vec<Row> = Vec::new();
        for family in Family::ALL {
            let path = Path::with_own_key(family);
            let bytes = payload(1000);
            let datagram = path.outbound().payload(bytes.clone());
            rows.push(row(format!("{family:?} out"), move |at| {
                let flow = path.established(at);
                let segment =
                    datagram
                        .clone()
                        .carried(flow.snd_nxt, flow.rcv_nxt, window(flow.rcv_nxt));
                disguises(at, path, &datagram, 1000).passes_as(segment.veiled_by(OWN_VEIL_KEY))
            }));
            let datagram = path.inbound().payload(bytes);
            rows.push(row(format!("{family:?} in, {program:?}"), move |at| {
                let flow = path.established(at);
                let segment = datagram.clone().carried(flow.rcv_nxt, flow.snd_nxt, 0xf000);
                restores(program, at, path, &datagram, 1000).meets(segment.veiled_by(OWN_VEIL_KEY))
            }));
        }
        check(&mut lock(&PADDING), rows);
    }
}

/// What was damaged on the way has a wrong checksum behind it, for the UDP stack to find.
#[test]
fn damage_stays_damage() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        for len in [1, 64, 300] {
            let datagram = path.inbound().payload(payload(len));
            rows.push(row(format!("{path:?}, {len} bytes"), move |at| {
                let damage = |packet: &Packet| {
                    let mut bytes = packet.bytes();
                    *bytes.last_mut().expect("payload") ^= 0x80;
                    bytes
                };
                let segment = segment_with(&path.established(at), &datagram, 0xf000);
                restores(Program::Ingress, at, path, &datagram, len)
                    .meets(damage(&segment))
                    .passes_as(damage(&datagram))
            }));
        }
    }
    check(&mut without_padding(), rows);
}

/// A fragment is covered as a datagram is, and never padded.
#[test]
fn fragments_are_covered_and_uncovered() {
    for shared in [&WITHOUT_PADDING, &PADDING] {
        let mut datapath = lock(shared);
        check(&mut datapath, carried::leaving(Packet::veiled));
        check(&mut datapath, carried::coming_back(Packet::veiled));
    }
}

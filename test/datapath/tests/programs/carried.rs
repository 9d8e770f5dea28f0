//! Fragments of datagrams: each becomes a segment that says which it is, and that becomes the
//! fragment again.

use std::convert::identity;

use xdptun_common::tunnel::config::Request;
use xdptun_common::tunnel::event::Kind;
use xdptun_common::tunnel::fragment::First;
use xdptun_common::tunnel::outcome::{Outcome, Sent};
use xdptun_common::tunnel::state::{Flow, State};
use xdptun_common::tunnel::window::asking;
use xdptun_test_datapath::moment::window;
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::{
    Case, Config, Datapath, Family, Message, Moment, Packet, Path, Row, check, flags, row,
};

use crate::effects::{acknowledged, in_state, received, sent, unanswered};
use crate::too_big::{MTU, on_device};
use crate::{datapath, paths};

const ID: u32 = 0x1234_5678;

/// Offset in units of eight bytes, length, and whether others follow.
type Part = (u16, usize, bool);

/// The parts of a datagram with 3,001 bytes of payload, as a path of 1,476 bytes makes them of
/// IPv4; the last one is short and odd.
const PARTS: [Part; 3] = [(0, 1448, true), (181, 1448, true), (362, 113, false)];

/// The shortest parts there are.
const SHORTEST: [Part; 3] = [(0, 8, true), (1, 8, true), (2, 1, false)];

/// The bits of [`Flow::label`]: the peer takes fragments, and the daemon was told of them.
pub const TAKES: u32 = 1 << 31;
pub const TOLD: u32 = 1 << 30;

/// Where the second is in which the peer was asked, and how many seconds it counts.
const ASKED: (u32, u32) = (20, 1023);

fn datagrams(from: impl Fn(Path) -> Packet) -> Vec<(Path, Packet, [Part; 3])> {
    let mut all = Vec::new();
    for path in paths() {
        for (len, parts) in [(3001, PARTS), (9, SHORTEST)] {
            let whole = from(path).payload(payload(len)).ttl(9).tos(0x2a);
            all.push((path, whole.clone(), parts));
            if path.family() == Family::V4 {
                all.push((path, whole.without_checksum(), parts));
            }
        }
    }
    all
}

/// An established flow whose peer takes fragments.
fn taking(path: Path, at: Moment) -> Flow {
    Flow {
        label: TAKES,
        ..path.established(at)
    }
}

/// The same after the daemon was told of its fragments.
fn told(path: Path, at: Moment) -> Flow {
    Flow {
        label: TAKES | TOLD,
        ..taking(path, at)
    }
}

/// The next segment of `flow`, which carries the part.
fn leaving_segment(flow: &Flow, whole: &Packet, part: Part) -> Packet {
    let numbers = (flow.snd_nxt, flow.rcv_nxt, window(flow.rcv_nxt));
    let whole = whole.clone().identified(ID as u16 + part.0);
    whole.carried_part(ID, part, numbers)
}

/// The part leaves as the next segment of `flow`; the daemon is told of the flow if it was not.
fn carries(at: Moment, path: Path, flow: Flow, whole: &Packet, part: Part) -> Case {
    let fragment = whole.clone().part(ID, part);
    let ports = (path.local.port(), path.remote.port());
    let case = Case::egress(&fragment)
        .flow(path.key(), flow)
        .passes_as(leaving_segment(&flow, whole, part))
        .counts(Outcome::TxFragment)
        .changes(path.key(), |flow| {
            sent(flow, at, 8 + part.1);
            flow.kept_fields = flow.kept_fields.seen(whole.fields());
            flow.label |= TOLD;
        });
    let case = match flow.label & TOLD {
        0 => case.reports(Kind::Fragmented, path.key()),
        _ => case,
    };
    let datagram = fragment.fragmented();
    match part.0 {
        0 => case.remembers_ports(datagram, ports),
        _ => case.after_first(datagram, First::carried(at.before_ms(100), ports)),
    }
}

/// Each fragment leaves as a segment, which is on the wire what `cover` makes of it.
pub fn leaving(cover: fn(Packet) -> Packet) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (path, whole, parts) in datagrams(Path::outbound) {
        for part in parts {
            let whole = whole.clone();
            rows.push(row(format!("{path:?} {part:?}"), move |at| {
                let flow = told(path, at);
                carries(at, path, flow, &whole, part)
                    .passes_as(cover(leaving_segment(&flow, &whole, part)))
            }));
        }
    }
    rows
}

#[test]
fn each_fragment_leaves_as_a_segment() {
    check(&mut datapath(), leaving(identity));
}

/// By the fragment that leaves first, whichever it is.
#[test]
fn the_daemon_is_told_of_a_flow_once() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        for part in PARTS {
            let carries = move |at, flow| {
                let whole = path.outbound().payload(payload(3001));
                carries(at, path, flow, &whole, part)
            };
            rows.push(row(format!("{path:?} {part:?}"), move |at| {
                carries(at, taking(path, at))
            }));
            rows.push(row(format!("{path:?} {part:?}, told before"), move |at| {
                carries(at, told(path, at))
            }));
        }
    }
    check(&mut datapath(), rows);
}

/// Our initial number in the flow by which fragments come.
const ISS: u32 = 0xffff_4321;

/// An established flow by which a segment with this part comes, and the segment.
fn coming(at: Moment, path: Path, whole: &Packet, part: Part) -> (Flow, Packet) {
    let flow = Flow {
        iss: ISS,
        ..path.established(at)
    };
    let numbers = (flow.rcv_nxt, flow.snd_nxt, 0xf000);
    (flow, whole.clone().carried_part(ID, part, numbers))
}

/// The part as it is restored, with a number of this host's.
fn restored(whole: &Packet, part: Part) -> Packet {
    whole.clone().part(ID.wrapping_add(ISS), part)
}

/// Each segment, which is on the wire what `cover` makes of it, becomes the fragment that it carries.
pub fn coming_back(cover: fn(Packet) -> Packet) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (path, whole, parts) in datagrams(Path::inbound) {
        for part in parts {
            let whole = whole.clone();
            rows.push(row(format!("{path:?} {part:?}"), move |at| {
                let (flow, segment) = coming(at, path, &whole, part);
                let fragment = restored(&whole, part);
                let datagram = fragment.fragmented();
                let ports = (path.remote.port(), path.local.port());
                let case = Case::ingress(cover(segment))
                    .flow(path.key(), flow)
                    .passes_as(fragment)
                    .counts(Outcome::RxFragment)
                    .changes(path.key(), |flow| received(flow, at, 8 + part.1));
                match part.0 {
                    0 => case.remembers_ports(datagram, ports),
                    _ => case.after_first(datagram, First::carried(at.before_ms(900), ports)),
                }
            }));
        }
    }
    rows
}

#[test]
fn a_segment_becomes_the_fragment_again() {
    check(&mut datapath(), coming_back(identity));
}

/// The kernel could put it together with what another flow or a stranger sent, or with the first
/// of a datagram long before.
#[test]
fn a_fragment_whose_first_did_not_come_is_dropped() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        let whole = path.inbound().payload(payload(3001));
        let ports = (path.remote.port(), path.local.port());
        for (name, first) in [
            ("none", None),
            ("of another port", Some((100, (ports.0 ^ 1, ports.1)))),
            ("to another port", Some((100, (ports.0, ports.1 ^ 1)))),
            ("dropped", Some((100, (0, 0)))),
            ("long ago", Some((1100, ports))),
        ] {
            let whole = whole.clone();
            rows.push(row(format!("{path:?} {name}"), move |at| {
                let (flow, segment) = coming(at, path, &whole, PARTS[1]);
                let case = Case::ingress(segment)
                    .flow(path.key(), flow)
                    .drops(Outcome::RxDropFragment)
                    .changes(path.key(), |flow| received(flow, at, 8 + PARTS[1].1));
                let datagram = restored(&whole, PARTS[1]).fragmented();
                match first {
                    Some((ago, ports)) => {
                        case.after_first(datagram, First::carried(at.before_ms(ago), ports))
                    }
                    None => case,
                }
            }));
        }
    }
    check(&mut datapath(), rows);
}

/// The kernel would check only what the fragments are a datagram of, if that has a checksum.
#[test]
fn a_damaged_segment_with_a_fragment_is_dropped() {
    let rows = paths().map(|path| {
        row(format!("{path:?}"), move |at| {
            let whole = path.inbound().payload(payload(3001));
            let (flow, segment) = coming(at, path, &whole, PARTS[0]);
            let mut frame = segment.bytes();
            *frame.last_mut().expect("a payload") ^= 4;
            Case::ingress(frame)
                .flow(path.key(), flow)
                .drops(Outcome::RxDropChecksum)
        })
    });
    check(&mut datapath(), rows);
}

/// A peer cannot make what overlaps the ports of a datagram, nor what no sender would.
#[test]
fn what_is_no_fragment_is_dropped() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        for part in [
            (0, 8, false),
            (0, 7, true),
            (0, 12, true),
            (1, 12, true),
            (1, 0, false),
            (0x1fff, 8, false),
        ] {
            rows.push(row(format!("{path:?} {part:?}"), move |at| {
                let (offset, len, more) = part;
                // Its bytes do not matter.
                let short = path.inbound().payload(payload(100));
                let [high, low] = (offset << 3 | u16::from(more)).to_be_bytes();
                let header = [17, 0, high, low, 0, 0, 0, 1];
                let bytes = [&header[..], &payload(len)].concat();
                let flow = path.established(at);
                let segment = short
                    .payload(bytes)
                    .segment(flags::DATA, flow.rcv_nxt, flow.snd_nxt)
                    .window(0xf100);
                Case::ingress(segment)
                    .flow(path.key(), flow)
                    .drops(Outcome::RxDropMalformed)
            }));
        }
        for len in [1, 7] {
            rows.push(row(format!("{path:?}, {len} bytes"), move |at| {
                let flow = path.established(at);
                let segment = path
                    .inbound()
                    .payload(payload(len))
                    .segment(flags::DATA, flow.rcv_nxt, flow.snd_nxt)
                    .window(0xf100);
                Case::ingress(segment)
                    .flow(path.key(), flow)
                    .drops(Outcome::RxDropMalformed)
            }));
        }
    }
    check(&mut datapath(), rows);
}

#[test]
fn a_peer_says_in_segments_without_data_that_it_takes_fragments() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        for (window, takes) in [
            (0xf100, true),
            (0xf1ff, true),
            (0xf000, false),
            // A middlebox changed it.
            (0x7100, false),
            (0xf300, false),
        ] {
            rows.push(row(format!("{path:?} {window:#x}"), move |at| {
                let flow = path.established(at);
                let ack = path
                    .inbound()
                    .segment(flags::ACK, flow.rcv_nxt, flow.snd_nxt);
                Case::ingress(ack.window(window))
                    .flow(path.key(), flow)
                    .ends()
                    .counts(Outcome::RxAck)
                    .changes(path.key(), |flow| {
                        flow.received_at = at.ns();
                        flow.label = if takes { TAKES } else { 0 };
                    })
            }));
        }
    }
    check(&mut datapath(), rows);
}

/// What a flow's label says of something that was done so many seconds ago.
pub fn second(at: Moment, ago: u64) -> u32 {
    let (shift, seconds) = ASKED;
    (((at.ns() >> 30) - ago) as u32 % seconds + 1) << shift
}

/// What cannot leave in this flow asks the peer whether it takes fragments, if it was not asked in this
/// second, and is lost.
pub fn asks_at_most_once_a_second(
    case: Case,
    at: Moment,
    path: Path,
    flow: Flow,
    asked_ago: Option<u64>,
) -> Case {
    if asked_ago == Some(0) {
        return case.drops(Outcome::TxDropFragment);
    }
    let sequence = flow.snd_nxt.wrapping_sub(1);
    let probe = path.control_of(at, &flow, flags::ACK, sequence, flow.rcv_nxt);
    case.passes_as(probe.marked(asking))
        .counts(Outcome::TxAskedLost)
        .sends(Sent::Probe)
        .changes(path.key(), |flow| {
            unanswered(flow, at);
            acknowledged(flow, at);
            flow.label = second(at, 0);
        })
}

/// The first fragment that is lost asks the peer, once a second.
#[test]
fn a_peer_is_asked_before_the_first_fragment() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        let whole = path.outbound().payload(payload(3001));
        let first = whole.part(ID, PARTS[0]);
        for asked_ago in [None, Some(0), Some(1)] {
            let first = first.clone();
            rows.push(row(format!("{path:?} {asked_ago:?}"), move |at| {
                let flow = Flow {
                    label: asked_ago.map_or(0, |ago| second(at, ago)),
                    ..path.established(at)
                };
                let case = Case::egress(&first)
                    .flow(path.key(), flow)
                    .remembers(first.fragmented());
                asks_at_most_once_a_second(case, at, path, flow, asked_ago)
            }));
        }
    }
    check(&mut datapath(), rows);
}

/// It does not wait for the handshake: the daemon could only send it as a datagram.
#[test]
fn a_first_fragment_opens_its_flow_and_is_lost() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        let first = path.outbound().payload(payload(3001)).part(ID, PARTS[0]);
        rows.push(row(format!("{path:?}"), {
            let first = first.clone();
            move |at| {
                let mut opened = path.opening(at);
                opened.kept_fields = opened.kept_fields.seen(first.fields());
                let unopened = Flow { syns: 0, ..opened };
                Case::egress(&first)
                    .passes_as(path.control_of(at, &unopened, flags::SYN, opened.iss, 0))
                    .counts(Outcome::TxOpenedLost)
                    .sends(Sent::Syn)
                    .adds(path.key(), opened)
                    .remembers(first.fragmented())
            }
        }));
        rows.push(row(format!("{path:?}, called a moment ago"), move |at| {
            let mut flow = path.opening(at);
            flow.kept_fields = flow.kept_fields.seen(first.fields());
            Case::egress(&first)
                .flow(path.key(), flow)
                .drops(Outcome::TxDropFragment)
                .remembers(first.fragmented())
        }));
    }
    check(&mut datapath(), rows);
}

/// What is noted of the first may be of a flow that ended since.
#[test]
fn a_later_fragment_needs_its_flow() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        let whole = path.outbound().payload(payload(3001));
        let ports = (path.local.port(), path.remote.port());
        let later = whole.part(ID, PARTS[1]);
        for state in [None, Some(State::Closed), Some(State::FinSent)] {
            let later = later.clone();
            rows.push(row(format!("{path:?} {state:?}"), move |at| {
                let first = First::carried(at.before_ms(100), ports);
                let case = Case::egress(&later).after_first(later.fragmented(), first);
                let flow = |state| in_state(taking(path, at), state);
                match state {
                    Some(state) => case.flow(path.key(), flow(state)),
                    None => case,
                }
                .drops(Outcome::TxDropFragment)
            }));
        }
    }
    check(&mut datapath(), rows);
}

/// The number of a fragment that a segment carries is longer by this much.
fn growth(family: Family) -> u32 {
    match family {
        Family::V4 => 28,
        Family::V6 => 20,
    }
}

/// The message to the sender of a first fragment, which has the length of the whole datagram.
fn message_about(path: Path, whole: &Packet) -> Packet {
    let family = path.family();
    let quoted = match family {
        Family::V4 => whole.clone().fragment_of(ID, 0, true),
        Family::V6 => whole.clone(),
    };
    let message = Message::too_big(family, MTU - growth(family), quoted.quote(8));
    message.packet(path.remote.ip(), path.local.ip())
}

#[test]
fn the_sender_of_a_fragment_that_does_not_fit_is_told() {
    on_device(MTU, |datapath: &mut Datapath, ifindex| {
        let mut rows: Vec<Row> = Vec::new();
        for path in paths() {
            let family = path.family();
            let header = family.header_len() + if family == Family::V6 { 8 } else { 0 };
            let fits = (MTU as usize - growth(family) as usize - header) / 8 * 8;
            let whole = path.outbound().payload(payload(3001));
            let fragment = whole.clone().part(ID, (0, fits, true));
            rows.push(row(format!("{path:?} fits"), {
                let whole = whole.clone();
                move |at| {
                    let flow = told(path, at);
                    carries(at, path, flow, &whole, (0, fits, true)).on(ifindex)
                }
            }));
            let long = whole.clone().part(ID, (0, fits + 8, true));
            let message = message_about(path, &whole);
            rows.push(row(format!("{path:?} too long"), move |at| {
                Case::egress(&long)
                    .on(ifindex)
                    .flow(path.key(), taking(path, at))
                    .answers(&message)
                    .marks(Request::OwnError.mark())
                    .counts(Outcome::TxTooBig)
                    .remembers(fragment.fragmented())
                    .changes(path.key(), |flow| flow.label |= second(at, 0))
            }));
        }
        check(datapath, rows);
    });
}

/// Of a sender that was told less than a minute ago, or of others than the first, whose sender cannot
/// be told: the first half leaves by itself, and the second in the place of the whole.
#[test]
fn a_fragment_that_does_not_fit_is_cut_in_two() {
    on_device(MTU, |_, ifindex| {
        let mut rows: Vec<Row> = Vec::new();
        for path in paths() {
            let family = path.family();
            let header = family.header_len() + if family == Family::V6 { 8 } else { 0 };
            // 176 or 174 units of eight bytes, all that the interface takes.
            let len = (MTU as usize - header) / 8 * 8;
            let half = (len / 2).next_multiple_of(8);
            let whole = path.outbound().payload(payload(3001));
            for (name, offset, told_ago, is_cut) in [
                ("the sender was told", 0, Some(0), true),
                ("and 59 s later", 0, Some(59), true),
                ("a later one", 2, None, true),
                ("told a minute ago", 0, Some(60), false),
            ] {
                let whole = whole.clone();
                rows.push(row(format!("{path:?} {name}"), move |at| {
                    let mut flow = taking(path, at);
                    flow.interface = ifindex;
                    flow.label |= TOLD | told_ago.map_or(0, |ago| second(at, ago));
                    let fragment = whole.clone().part(ID, (offset, len, true));
                    let datagram = fragment.fragmented();
                    let ports = (path.local.port(), path.remote.port());
                    let case = Case::egress(&fragment).on(ifindex).flow(path.key(), flow);
                    if !is_cut {
                        return case
                            .answers(message_about(path, &whole))
                            .marks(Request::OwnError.mark())
                            .counts(Outcome::TxTooBig)
                            .remembers(datagram)
                            .changes(path.key(), |flow| {
                                flow.label = TAKES | TOLD | second(at, 0);
                            });
                    }
                    let rest = (offset + (half / 8) as u16, len - half, true);
                    let numbers = (flow.snd_nxt, flow.rcv_nxt, window(flow.rcv_nxt));
                    let segment = whole.clone().identified(ID as u16 + rest.0);
                    let case = case
                        .passes_as(segment.carried_part(ID, rest, numbers))
                        .counts(Outcome::TxFragment)
                        .changes(path.key(), |flow| {
                            sent(flow, at, 8 + rest.1);
                            flow.kept_fields = flow.kept_fields.seen(whole.fields());
                        });
                    match offset {
                        0 => case.remembers_ports(datagram, ports),
                        _ => case.after_first(datagram, First::carried(at.before_ms(9), ports)),
                    }
                }));
            }
        }
        // Where the first half leaves.
        let config = Config {
            ifindex,
            ..Config::default()
        };
        check(&mut Datapath::new(&config), rows);
    });
}

/// The second half of what lies behind the end of a datagram would be its beginning.
#[test]
fn what_is_no_fragment_is_not_cut() {
    on_device(MTU, |datapath: &mut Datapath, ifindex| {
        let mut rows: Vec<Row> = Vec::new();
        for path in paths() {
            let family = path.family();
            let header = family.header_len() + if family == Family::V6 { 8 } else { 0 };
            let len = (MTU as usize - header) / 8 * 8;
            let whole = path.outbound().payload(payload(len));
            let fragment = whole.part(ID, (0, len, true));
            rows.push(row(format!("{path:?}"), move |at| {
                let ports = (path.local.port(), path.remote.port());
                let mut frame = fragment.bytes();
                // The largest offset: in IPv4's header, or in the fragment header of IPv6.
                match path.family() {
                    Family::V4 => frame[20..22].copy_from_slice(&[0x1f, 0xff]),
                    Family::V6 => frame[56..58].copy_from_slice(&[0xff, 0xf8]),
                }
                let first = First::carried(at.before_ms(9), ports);
                Case::egress(frame)
                    .on(ifindex)
                    .flow(path.key(), taking(path, at))
                    .after_first(fragment.fragmented(), first)
                    .drops(Outcome::TxDropMalformed)
            }));
        }
        check(datapath, rows);
    });
}

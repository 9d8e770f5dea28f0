//! IPv4 options and IPv6 options headers travel with the packet; whatever else
//! stands before the transport header is refused.

use etherparse::IpNumber;
use xdptun_common::tunnel::config::Request;
use xdptun_common::tunnel::event::Kind;
use xdptun_common::tunnel::outcome::{Outcome, Sent};
use xdptun_common::tunnel::state::{ANSWER_AGAIN, State};
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::path::syn_options;
use xdptun_test_datapath::{Case, Family, Packet, Path, Program, Row, check, flags, row};

use crate::datapath;
use crate::effects::{acknowledged, closed, in_state};
use crate::established::disguises;
use crate::opening::{opens, reopens, waits};
use crate::restored::{restores, segment};

/// The bytes between the fixed IP header and the transport header.
#[derive(Clone, Debug)]
pub enum Options {
    /// Words of IPv4 options.
    Words(usize),
    /// IPv6 extension headers: type, and length in units of eight bytes.
    Chain(Vec<(u8, u8)>),
    /// A fragment header around a datagram that is whole (RFC 6946).
    AtomicFragment,
}

impl Options {
    /// The packet with them.
    pub fn on(&self, packet: Packet) -> Packet {
        match self {
            Self::Words(words) => packet.ip_options(*words),
            Self::Chain(chain) => chain.iter().fold(packet, |packet, (number, units)| {
                packet.extension(IpNumber(*number), *units)
            }),
            Self::AtomicFragment => packet.fragment(0, false),
        }
    }

    /// Their length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Words(words) => words * 4,
            Self::Chain(chain) => chain.iter().map(|(_, units)| usize::from(*units) * 8).sum(),
            Self::AtomicFragment => 8,
        }
    }
}

/// Hop-by-hop options, as IPv6 extension header.
const HOP_BY_HOP: u8 = 0;
/// Destination options, as IPv6 extension header.
const DESTINATION: u8 = 60;

/// All that travel: each length that there is, and chains of them.
pub fn carried(family: Family) -> Vec<Options> {
    if family == Family::V4 {
        return (1..=10).map(Options::Words).collect();
    }
    let single = [HOP_BY_HOP, DESTINATION].map(|number| (1..=8).map(move |units| (number, units)));
    let several = [
        vec![(HOP_BY_HOP, 1), (DESTINATION, 1)],
        vec![(HOP_BY_HOP, 4), (DESTINATION, 4)],
        vec![(DESTINATION, 3), (DESTINATION, 2)],
        vec![(HOP_BY_HOP, 1), (DESTINATION, 7)],
        vec![(HOP_BY_HOP, 1), (DESTINATION, 2), (DESTINATION, 1)],
        vec![(HOP_BY_HOP, 2), (DESTINATION, 5), (DESTINATION, 1)],
        vec![(DESTINATION, 1); 8],
    ];
    let single = single.into_iter().flatten().map(|header| vec![header]);
    single.chain(several).map(Options::Chain).collect()
}

/// Options that cannot be carried: longer than 64 bytes, or of another kind.
pub fn refused(family: Family) -> Vec<Options> {
    if family == Family::V4 {
        return Vec::new();
    }
    let (routing, authentication) = (43, 51);
    let (mobility, host_identity, shim) = (135, 139, 140);
    [
        vec![(HOP_BY_HOP, 9)],
        vec![(DESTINATION, 9)],
        vec![(DESTINATION, 32)],
        vec![(HOP_BY_HOP, 8), (DESTINATION, 1)],
        vec![(HOP_BY_HOP, 4), (DESTINATION, 4), (DESTINATION, 1)],
        vec![(routing, 1)],
        vec![(routing, 3)],
        vec![(authentication, 2)],
        vec![(mobility, 1)],
        vec![(host_identity, 1)],
        vec![(shim, 2)],
        vec![(HOP_BY_HOP, 1), (routing, 3)],
        vec![(DESTINATION, 1), (authentication, 2)],
        vec![(authentication, 2), (DESTINATION, 1)],
        vec![(HOP_BY_HOP, 1), (DESTINATION, 4), (routing, 1)],
    ]
    .map(Options::Chain)
    .into_iter()
    .chain([Options::AtomicFragment])
    .collect()
}

/// A row for each kind of options that travels.
fn each(rows: impl Fn(Path, Options) -> Vec<Row>) -> Vec<Row> {
    let paths = Family::ALL.map(Path::server).into_iter();
    paths
        .flat_map(|path| carried(path.family()).into_iter().map(move |it| (path, it)))
        .flat_map(|(path, options)| rows(path, options))
        .collect()
}

/// Payload lengths at the edges of what is moved about.
fn lengths() -> impl Iterator<Item = usize> {
    (0..=2).chain(26..=30).chain(46..=50).chain([1400])
}

/// Datagrams of established flows that become segments.
pub fn leaving() -> Vec<Row> {
    each(|path, options| {
        let mut rows = Vec::new();
        for len in lengths() {
            let datagram = options.on(path.outbound().payload(payload(len)).tos(9).ttl(7).id(5));
            for (name, datagram) in [
                ("", datagram.clone()),
                (", no checksum", datagram.clone().without_checksum()),
            ] {
                rows.push(row(format!("{options:?}, {len} bytes{name}"), move |at| {
                    disguises(at, path, &datagram, len)
                }));
            }
            rows.push(row(format!("{options:?}, {len} bytes, padded"), {
                let frame = datagram.bytes().len() + 3;
                move |at| {
                    let padded = datagram.clone().padded_to(frame);
                    disguises(at, path, &datagram, len).meets(padded)
                }
            }));
        }
        rows
    })
}

#[test]
fn datagrams_leave_with_their_options() {
    check(&mut datapath(), leaving());
}

#[test]
fn datagrams_arrive_with_their_options() {
    let rows = each(|path, options| {
        let mut rows = Vec::new();
        for len in lengths() {
            let datagram = options.on(path.inbound().payload(payload(len)).tos(9).ttl(7).id(5));
            for tcp_words in [0, 3, 10] {
                let datagram = datagram.clone();
                let name = format!("{options:?}, {len} bytes, {tcp_words} words of TCP options");
                rows.push(row(name, move |at| {
                    let segment = segment(&path.established(at), &datagram);
                    restores(Program::Ingress, at, path, &datagram, len)
                        .meets(segment.options(&payload(tcp_words * 4)))
                }));
            }
            rows.push(row(format!("{options:?}, {len} bytes, padded"), {
                move |at| {
                    let segment = segment(&path.established(at), &datagram);
                    let frame = segment.bytes().len() + 5;
                    restores(Program::Ingress, at, path, &datagram, len)
                        .meets(segment.padded_to(frame))
                        .passes_as(datagram.clone().padded_to(frame - 12))
                }
            }));
        }
        rows
    });
    check(&mut datapath(), rows);
}

/// The payload is not looked at, with options no more than without.
#[test]
fn damage_stays_visible() {
    let rows = each(|path, options| {
        let damaged = |packet: Packet| {
            let mut bytes = packet.bytes();
            *bytes.last_mut().expect("payload") ^= 0x40;
            bytes
        };
        let out = options.on(path.outbound().payload(payload(33)));
        let back = options.on(path.inbound().payload(payload(33)));
        vec![
            row(format!("out, {options:?}"), move |at| {
                let flow = path.established(at);
                let segment = out
                    .clone()
                    .segment(flags::DATA, flow.snd_nxt, flow.rcv_nxt)
                    .window(xdptun_test_datapath::moment::window(flow.rcv_nxt));
                disguises(at, path, &out, 33)
                    .meets(damaged(out.clone()))
                    .passes_as(damaged(segment))
            }),
            row(format!("in, {options:?}"), move |at| {
                let segment = segment(&path.established(at), &back);
                restores(Program::Ingress, at, path, &back, 33)
                    .meets(damaged(segment))
                    .passes_as(damaged(back.clone()))
            }),
        ]
    });
    check(&mut datapath(), rows);
}

/// A waiting datagram keeps its options; the SYN has none.
#[test]
fn a_flow_opens_without_the_options() {
    let rows = each(|path, options| {
        let datagram = options.on(path.outbound().payload(payload(60)));
        let name = |of: &str| format!("{of}, {options:?}");
        let datagrams = [(); 4].map(|()| datagram.clone());
        let [first, again, early, late] = datagrams;
        vec![
            row(name("no flow"), move |at| opens(at, path, &first)),
            row(name("closed"), move |at| {
                let closed = in_state(path.established(at), State::Closed);
                reopens(at, path, &again, closed)
            }),
            row(name("SYN sent"), move |at| {
                waits(path, path.opening(at), &early)
            }),
            row(name("closing"), move |at| {
                Case::egress(&late)
                    .flow(path.key(), in_state(path.established(at), State::FinSent))
                    .drops(Outcome::TxDropClosing)
            }),
        ]
    });
    check(&mut datapath(), rows);
}

/// A segment of the peer, with TCP options too.
fn from_peer(path: Path, flags: u8, sequence: u32, acknowledgment: u32) -> Packet {
    let segment = path.inbound().segment(flags, sequence, acknowledgment);
    segment.options(&[1; 8])
}

/// They are answered, if at all, without options.
#[test]
fn control_segments_with_options() {
    let rows = each(|path, options| {
        let key = path.key();
        let arrives = {
            let options = options.clone();
            move |packet: Packet| Case::ingress(options.on(packet))
        };
        let name = |of: &str| format!("{of}, {options:?}");
        let [syn, stray, reset, fin, probe] = [(); 5].map(|()| arrives.clone());
        const FIN_ACK: u8 = flags::FIN | flags::ACK;
        vec![
            row(name("SYN"), move |at| {
                let packet = path.inbound().segment(flags::SYN, 9, 0);
                let answer = path.control(at, flags::SYN | flags::ACK, at.isn(&key), 10);
                syn(packet.options(&syn_options(path.family())))
                    .answers(answer)
                    .counts(Outcome::RxSyn)
                    .sends(Sent::SynAck)
            }),
            row(name("data for nobody"), move |at| {
                stray(from_peer(path, flags::DATA, 5, 77).payload(payload(20)))
                    .answers(path.control(at, flags::RST, 77, 0))
                    .counts(Outcome::RxDropNoFlow)
                    .sends(Sent::Rst)
            }),
            row(name("RST"), move |at| {
                let flow = path.established(at);
                reset(from_peer(path, flags::RST, flow.rcv_nxt, 0))
                    .flow(key, flow)
                    .drops(Outcome::RxRst)
                    .reports(Kind::Reset, key)
                    .changes(key, |flow| closed(flow, at))
            }),
            row(name("FIN"), move |at| {
                let flow = path.established(at);
                let rcv_nxt = flow.rcv_nxt.wrapping_add(1);
                fin(from_peer(path, FIN_ACK, flow.rcv_nxt, flow.snd_nxt))
                    .flow(key, flow)
                    .answers(path.control(at, FIN_ACK, flow.snd_nxt, rcv_nxt))
                    .counts(Outcome::RxFin)
                    .sends(Sent::Fin)
                    .reports(Kind::Finished, key)
                    .changes(key, |flow| {
                        closed(flow, at);
                        flow.rcv_nxt = rcv_nxt;
                        flow.snd_nxt = flow.snd_nxt.wrapping_add(1);
                    })
            }),
            row(name("probe"), move |at| {
                let flow = path.established(at);
                let sequence = flow.rcv_nxt.wrapping_sub(1);
                probe(from_peer(path, flags::ACK, sequence, flow.snd_nxt))
                    .flow(key, flow)
                    .answers(path.control(at, flags::ACK, flow.snd_nxt, flow.rcv_nxt))
                    .counts(Outcome::RxAck)
                    .sends(Sent::Ack)
                    .changes(key, |flow| {
                        flow.answers_earned_at = at.tick() + ANSWER_AGAIN;
                    })
                    .changes(key, |flow| flow.received_at = at.ns())
            }),
            row(name("to be acknowledged"), {
                let options = options.clone();
                move |at| {
                    let flow = path.established(at);
                    let data = path.inbound().payload(payload(50));
                    let data = data.segment(flags::DATA, flow.rcv_nxt, flow.snd_nxt);
                    Case::egress(options.on(data))
                        .marked(Request::Acknowledge.mark())
                        .unmarks()
                        .flow(key, flow)
                        .passes_as(path.control(at, flags::ACK, flow.snd_nxt, flow.rcv_nxt))
                        .counts(Outcome::TxRequested)
                        .sends(Sent::Ack)
                        .changes(key, |flow| acknowledged(flow, at))
                }
            }),
        ]
    });
    check(&mut datapath(), rows);
}

/// With a flow and without one, both ways.
#[test]
fn other_headers_are_refused() {
    let mut rows = Vec::new();
    let path = Path::server(Family::V6);
    for options in refused(Family::V6) {
        let out = options.on(path.outbound().payload(payload(50)));
        let back = path.inbound().payload(payload(50));
        let back = options.on(back.segment(flags::DATA, 0xffff_fff0, 0xffff_ffe0));
        for (name, program, packet, outcome) in [
            ("out", Program::Egress, out, Outcome::TxDropOptions),
            ("in", Program::Ingress, back, Outcome::RxDropOptions),
        ] {
            let again = packet.clone();
            rows.push(row(
                format!("{name}, {options:?}, established"),
                move |at| {
                    Case::new(program, &packet)
                        .flow(path.key(), path.established(at))
                        .drops(outcome)
                },
            ));
            rows.push(row(format!("{name}, {options:?}, no flow"), move |_| {
                Case::new(program, &again).drops(outcome)
            }));
        }
    }
    check(&mut datapath(), rows);
}

/// IPv4 has no other: with options, a header of 60 bytes is the longest.
#[test]
fn every_kind_of_options_is_tried() {
    let lengths = |options: Vec<Options>| options.iter().map(Options::len).collect::<Vec<_>>();
    assert_eq!(lengths(carried(Family::V4)).last(), Some(&40));
    let longest = lengths(carried(Family::V6)).into_iter().max();
    assert_eq!(longest, Some(64));
    assert!(lengths(refused(Family::V6)).contains(&72));
}

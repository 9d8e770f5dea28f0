//! Ingress: flows come up, from either side.

use xdptun_common::tunnel::event::Kind;
use xdptun_common::tunnel::isn::{LIFETIME, REPEATS, far_from};
use xdptun_common::tunnel::outcome::{Outcome, Sent};
use xdptun_common::tunnel::state::{Flow, KeptFields, RESTARTED, State};
use xdptun_common::tunnel::window::{asking, challenging};
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::path::syn_options;
use xdptun_test_datapath::{Case, Family, Moment, Packet, Path, Row, check, flags, row};

use crate::effects::{begun, in_state, restored};
use crate::{datapath, paths};

const SYN_ACK: u8 = flags::SYN | flags::ACK;
/// A peer's initial sequence number, about to pass zero.
const PEER: u32 = u32::MAX;

/// A segment of the peer without payload.
fn from_peer(path: Path, flags: u8, sequence: u32, acknowledgment: u32) -> Packet {
    let segment = path.inbound().segment(flags, sequence, acknowledgment);
    if flags & flags::SYN == 0 {
        return segment;
    }
    segment.options(&syn_options(path.family()))
}

/// The segment becomes `answer`, the reset of one that belongs to no flow.
fn refused(case: Case, answer: Packet) -> Case {
    case.answers(answer)
        .counts(Outcome::RxDropNoFlow)
        .sends(Sent::Rst)
}

/// It would be reset, if that had not just happened.
fn withheld(case: Case) -> Case {
    case.drops(Outcome::RxDropNoFlow).sends(Sent::Limited)
}

fn servers() -> [Path; 2] {
    Family::ALL.map(Path::server)
}

/// The flow of an acknowledgement that completes a handshake.
pub fn completed(at: Moment, path: Path, iss: u32, rcv_nxt: u32) -> Flow {
    let mut flow = Flow {
        state: State::Established as u32,
        rcv_nxt,
        acked: rcv_nxt,
        syns: 0,
        syn_at: 0,
        established_at: at.ns(),
        label: at.label(&path.key()),
        kept_fields: KeptFields::new(at.identification(&path.key(), iss)),
        ..path.opening(at)
    };
    begun(&mut flow, at, iss);
    flow
}

/// A firewall that saw two numbers would follow the second, and the peer takes what comes first.
#[test]
fn a_repeated_syn_gets_the_number_that_it_got_before() {
    let mut rows: Vec<Row> = Vec::new();
    for path in servers() {
        let key = path.key();
        let [mss, sack, scale] = offers(path);
        let options = [mss, sack, scale].concat();
        // A flow that is forgotten since was there when the first SYN came.
        let moved = |number| far_from(0x5000_0000, number);
        for (name, sequence, epochs, is_kept) in [
            ("in the same epoch", PEER, 0, true),
            ("in the next", PEER, 1, true),
            ("as late as it may be", PEER, REPEATS, true),
            ("later", PEER, REPEATS + 1, false),
            ("another SYN", PEER.wrapping_add(1), 1, false),
        ] {
            let options = options.clone();
            rows.push(row(format!("{path:?} {name}"), move |at| {
                let number = moved(at.earlier_isn(&key, epochs));
                let iss = if is_kept { number } else { at.isn(&key) };
                let answer = path.control(at, SYN_ACK, iss, PEER.wrapping_add(1));
                Case::ingress(from_peer(path, flags::SYN, PEER, 0))
                    .was_answered(key, sequence, number)
                    .keeps_answer(key, PEER, Some(iss))
                    .answers(answer.options(&options))
                    .counts(Outcome::RxSyn)
                    .sends(Sent::SynAck)
            }));
        }
    }
    check(&mut datapath(), rows);
}

#[test]
fn a_syn_is_answered_without_a_flow() {
    let mut rows: Vec<Row> = Vec::new();
    for path in servers() {
        let key = path.key();
        let answers = move |at: Moment, syn: Packet, granted: u8, options: &[u8]| {
            let answer = path.control(at, SYN_ACK | granted, at.isn(&key), PEER.wrapping_add(1));
            Case::ingress(syn)
                .answers(answer.options(options))
                .counts(Outcome::RxSyn)
                .sends(Sent::SynAck)
        };
        let syn = move |flags| from_peer(path, flags::SYN | flags, PEER, 0);
        let table = [
            ("as we send it", syn(0)),
            (
                "as Linux sends it",
                syn(0).options(&[
                    2, 4, 5, 180, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 7,
                ]),
            ),
            (
                "with other IP fields",
                syn(0).tos(0x48).ttl(9).id(77).without_df(),
            ),
            ("with URG and PSH", syn(flags::URG | flags::PSH)),
            ("with data", syn(0).payload(payload(600))),
            ("padded", syn(0).padded_to(90)),
        ];
        let [mss, sack, scale] = offers(path);
        let all = [mss, sack, scale].concat();
        for (name, packet) in table {
            let all = all.clone();
            rows.push(row(format!("{path:?} {name}"), move |at| {
                answers(at, packet.clone(), 0, &all)
            }));
        }
        let offering = |offered: &[u8]| syn(0).options(offered);
        let strange = [30, 4, 0, 0];
        for (name, packet, expected) in [
            ("no options", offering(&[]), vec![mss]),
            ("MSS", offering(&[2, 4, 5, 180]), vec![mss]),
            ("SACK alone", offering(&[1, 1, 4, 2]), vec![mss, sack]),
            ("scale alone", offering(&[3, 3, 7, 1]), vec![mss, scale]),
            (
                "in another order",
                offering(&[3, 3, 7, 4, 2, 0, 0, 0]),
                vec![mss, sack, scale],
            ),
            ("an end", offering(&[0, 3, 3, 7]), vec![mss]),
            (
                "unknown ones",
                offering(&[strange, sack].concat()),
                vec![mss, sack],
            ),
            (
                "scale of another length",
                offering(&[3, 4, 7, 7, 1, 1, 4, 2]),
                vec![mss, sack],
            ),
            (
                "SACK of another length",
                offering(&[4, 3, 0, 1, 1, 3, 3, 7]),
                vec![mss, scale],
            ),
            (
                "a length of zero",
                offering(&[30, 0, 1, 1, 1, 3, 3, 7]),
                vec![mss],
            ),
            (
                "a length of one",
                offering(&[30, 1, 1, 1, 1, 3, 3, 7]),
                vec![mss],
            ),
            (
                "one beyond the header",
                offering(&[1, 4, 2, 30]),
                vec![mss, sack],
            ),
            (
                "a length beyond the header",
                offering(&[4, 2, 30, 3]),
                vec![mss, sack],
            ),
            ("nothing in 40 bytes", offering(&[1; 40]), vec![mss]),
            (
                "the last of 40 bytes",
                offering(&[&[1; 37][..], &[3, 3, 7]].concat()),
                vec![mss, scale],
            ),
        ] {
            rows.push(row(format!("{path:?} {name}"), move |at| {
                answers(at, packet.clone(), 0, &expected.concat())
            }));
        }
        let asks = flags::ECE | flags::CWR;
        for (name, packet, granted) in [
            ("with ECN", syn(asks), flags::ECE),
            ("with ECE alone", syn(flags::ECE), 0),
            ("with CWR alone", syn(flags::CWR), 0),
            ("with ECN, and marked", syn(asks).tos(2), 0),
        ] {
            let all = all.clone();
            rows.push(row(format!("{path:?} {name}"), move |at| {
                answers(at, packet.clone(), granted, &all)
            }));
        }
        rows.push(row(
            format!("{path:?}, from port to same port"),
            move |at| {
                let path = Path::new(path.family(), 8000, 8000);
                Case::ingress(from_peer(path, flags::SYN, PEER, 0))
                    .answers(path.control(at, SYN_ACK, at.isn(&path.key()), PEER.wrapping_add(1)))
                    .counts(Outcome::RxSyn)
                    .sends(Sent::SynAck)
            },
        ));
    }
    check(&mut datapath(), rows);
}

/// The options of our SYN, each with its padding: maximum segment size, SACK permitted,
/// window scale.
fn offers(path: Path) -> [[u8; 4]; 3] {
    let options = syn_options(path.family());
    let (words, _) = options.as_chunks::<4>();
    [words[0], words[1], words[2]]
}

/// An attacker that spoofs segments must not use this host as an amplifier. The SYN-ACK to a
/// SYN without options is 4 bytes longer, as Linux's is: it names the maximum segment size.
#[test]
fn no_answer_is_longer_than_its_cause() {
    use xdptun_test_datapath::{Program, Skb};

    let mut datapath = datapath();
    let mut longer = Vec::new();
    for path in servers() {
        for flags in [
            flags::SYN,
            SYN_ACK,
            flags::ACK,
            flags::DATA,
            flags::FIN | flags::ACK,
        ] {
            datapath.reset();
            let segment = path.inbound().segment(flags, 1, 2).bytes();
            let ran = datapath.run(Program::Ingress, &segment, Skb::default());
            assert_eq!(ran.verdict, 7, "flags {flags:#x} are answered");
            let added = if flags == flags::SYN { 4 } else { 0 };
            if ran.packet.len() > segment.len() + added {
                longer.push(format!(
                    "{:?}, flags {flags:#x}: {} bytes answer {}",
                    path.family(),
                    ran.packet.len(),
                    segment.len()
                ));
            }
        }
    }
    assert!(longer.is_empty(), "{longer:#?}");
}

#[test]
fn a_cookie_makes_the_flow() {
    let mut rows: Vec<Row> = Vec::new();
    for path in servers() {
        let key = path.key();
        for (name, epochs) in [
            ("", 0),
            (" of the epoch before", 1),
            (" of the oldest epoch", LIFETIME),
        ] {
            rows.push(row(format!("{path:?}, ACK{name}"), move |at| {
                let iss = at.earlier_isn(&key, epochs);
                Case::ingress(from_peer(path, flags::ACK, 1000, iss.wrapping_add(1)))
                    .drops(Outcome::RxAck)
                    .reports(Kind::Established, key)
                    .adds(key, completed(at, path, iss, 1000))
            }));
        }
        for len in [0, 1, 31, 100, 1400] {
            rows.push(row(format!("{path:?}, {len} bytes of data"), move |at| {
                let iss = at.isn(&key);
                let datagram = path.inbound().payload(payload(len));
                let segment = datagram
                    .clone()
                    .segment(flags::DATA, 1000, iss.wrapping_add(1));
                let mut flow = completed(at, path, iss, 1000 + len as u32);
                restored(&mut flow, at, len);
                Case::ingress(segment)
                    .passes_as(datagram)
                    .counts(Outcome::RxRestored)
                    .reports(Kind::Established, key)
                    .adds(key, flow)
            }));
        }
        rows.push(row(format!("{path:?}, table full"), move |at| {
            let iss = at.isn(&key);
            let case = Case::ingress(from_peer(path, flags::ACK, 1000, iss.wrapping_add(1)))
                .drops(Outcome::RxDropTableFull);
            crate::full_table(at)
                .into_iter()
                .fold(case, |case, (key, flow)| case.flow(key, flow))
        }));
        rows.push(row(format!("{path:?}, into a closed flow"), move |at| {
            let iss = at.isn(&key);
            let mut closed = in_state(path.established(at), State::Closed);
            closed.link = [0x55; 14];
            Case::ingress(from_peer(path, flags::ACK, 1000, iss.wrapping_add(1)))
                .flow(key, closed)
                .drops(Outcome::RxAck)
                .reports(Kind::Established, key)
                .changes(key, |flow| {
                    flow.state = State::Established as u32;
                    begun(flow, at, iss);
                    flow.rcv_nxt = 1000;
                    flow.acked = 1000;
                    (flow.syns, flow.syn_at) = (0, 0);
                    flow.opened_at = at.ns();
                    flow.established_at = at.ns();
                    flow.received_at = at.ns();
                    flow.link = path.outbound().link();
                })
        }));
    }
    check(&mut datapath(), rows);
}

/// RFC 9293 section 3.10.7.1: a segment without a connection is answered with a reset
/// that its sender accepts.
#[test]
fn segments_of_no_flow_are_reset() {
    let mut rows: Vec<Row> = Vec::new();
    for path in servers() {
        let key = path.key();
        let reset = move |at, segment: Packet, flags, sequence, acknowledgment| {
            let answer = path.control(at, flags, sequence, acknowledgment);
            refused(Case::ingress(segment), answer)
        };
        const RST_ACK: u8 = flags::RST | flags::ACK;
        rows.push(row(format!("{path:?}, wrong cookie"), move |at| {
            let number = at.isn(&key).wrapping_add(2);
            let segment = from_peer(path, flags::ACK, 1000, number);
            reset(at, segment, flags::RST, number, 0)
        }));
        // However many are under way, one reset answers them all.
        for (since_ms, due) in [(0, false), (499, false), (501, true)] {
            let name = format!("{path:?}, {since_ms} ms after the last");
            rows.push(row(name, move |at| {
                let number = at.isn(&key).wrapping_add(2);
                let segment = from_peer(path, flags::ACK, 1000, number);
                let case = match due {
                    true => reset(at, segment, flags::RST, number, 0),
                    false => withheld(Case::ingress(segment)),
                };
                case.was_reset(key, number, at.before_ms(since_ms))
            }));
        }
        rows.push(row(format!("{path:?}, another was reset"), move |at| {
            let number = at.isn(&key).wrapping_add(2);
            let segment = from_peer(path, flags::ACK, 1000, number);
            reset(at, segment, flags::RST, number, 0).was_reset(key.reversed(), number, at.ns())
        }));
        // Otherwise a guess would keep the true reset from leaving.
        rows.push(row(
            format!("{path:?}, another number was reset"),
            move |at| {
                let number = at.isn(&key).wrapping_add(2);
                let segment = from_peer(path, flags::ACK, 1000, number);
                reset(at, segment, flags::RST, number, 0).was_reset(key, number + 1, at.ns())
            },
        ));
        rows.push(row(format!("{path:?}, cookie too old"), move |at| {
            let number = at.earlier_isn(&key, LIFETIME + 1).wrapping_add(1);
            let segment = from_peer(path, flags::ACK, 1000, number);
            reset(at, segment, flags::RST, number, 0)
        }));
        rows.push(row(format!("{path:?}, the peer's own cookie"), move |at| {
            let number = at.isn(&path.reversed().key()).wrapping_add(1);
            let segment = from_peer(path, flags::ACK, 1000, number);
            reset(at, segment, flags::RST, number, 0)
        }));
        for len in [0, 1, 12, 13, 1400, 3000] {
            rows.push(row(format!("{path:?}, {len} bytes"), move |at| {
                let segment = path.inbound().payload(payload(len));
                let segment = segment.segment(flags::DATA, 1000, 77);
                reset(at, segment, flags::RST, 77, 0)
            }));
        }
        for (name, flags) in [
            ("SYN-ACK", SYN_ACK),
            ("FIN-ACK", flags::FIN | flags::ACK),
            ("FIN with the right cookie", flags::FIN | flags::ACK),
        ] {
            rows.push(row(format!("{path:?}, {name}"), move |at| {
                let number = at.isn(&key).wrapping_add(1);
                let segment = from_peer(path, flags, 1000, number);
                reset(at, segment, flags::RST, number, 0)
            }));
        }
        // As an open port of Linux does.
        for (name, flags) in [
            ("no flags", 0),
            ("PSH", flags::PSH),
            ("FIN", flags::FIN),
            ("SYN and FIN", flags::SYN | flags::FIN),
            ("FIN, PSH and URG", flags::FIN | flags::PSH | flags::URG),
        ] {
            rows.push(row(format!("{path:?}, {name}"), move |_| {
                let segment = path.inbound().payload(payload(5));
                let segment = segment.segment(flags, u32::MAX - 2, 77);
                Case::ingress(segment).drops(Outcome::RxDropNoFlow)
            }));
        }
        rows.push(row(
            format!("{path:?}, as IPv4 or IPv6 padding"),
            move |at| {
                let segment = from_peer(path, flags::ACK, 1000, 5).padded_to(80);
                reset(at, segment, flags::RST, 5, 0)
            },
        ));
        // Never a reset to a reset.
        for flags in [flags::RST, RST_ACK, flags::RST | flags::SYN] {
            rows.push(row(format!("{path:?}, reset {flags:#x}"), move |_| {
                let segment = path.inbound().segment(flags, 1000, 77);
                Case::ingress(segment).drops(Outcome::RxDropNoFlow)
            }));
        }
    }
    check(&mut datapath(), rows);
}

/// A flow that sent its first SYN a while ago.
fn syn_sent(at: Moment, path: Path) -> Flow {
    let old = path.established(at);
    Flow {
        sent_at: old.opened_at,
        received_at: old.opened_at,
        data_at: old.opened_at,
        opened_at: old.opened_at,
        syn_at: old.syn_at,
        ..path.opening(at)
    }
}

/// A flow whose SYN crossed the peer's.
fn syn_received(at: Moment, path: Path) -> Flow {
    Flow {
        state: State::SynReceived as u32,
        rcv_nxt: PEER.wrapping_add(1),
        ..syn_sent(at, path)
    }
}

/// The flow is open, and the peer's next number is `rcv_nxt`.
fn open(flow: &mut Flow, at: Moment, rcv_nxt: u32) {
    flow.state = State::Established as u32;
    flow.rcv_nxt = rcv_nxt;
    flow.acked = rcv_nxt;
    flow.established_at = at.ns();
    flow.received_at = at.ns();
}

/// The peer answers our SYN.
pub fn accepts(at: Moment, path: Path) -> Case {
    let mut flow = syn_sent(at, path);
    flow.link = [0x55; 14];
    // Its window is not in the units of the others, and says nothing of fragments.
    let answer = from_peer(path, SYN_ACK, PEER, flow.snd_nxt).window(0xf100);
    Case::ingress(answer)
        .flow(path.key(), flow)
        .answers(path.control_of(at, &flow, flags::ACK, flow.snd_nxt, PEER.wrapping_add(1)))
        .counts(Outcome::RxSynAck)
        .sends(Sent::Ack)
        .reports(Kind::Established, path.key())
        .changes(path.key(), |flow| {
            open(flow, at, PEER.wrapping_add(1));
            flow.link = path.outbound().link();
        })
}

#[test]
fn the_answer_to_our_syn() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        let key = path.key();
        let case = move |at, flags, sequence, from_iss: u32| {
            let flow = syn_sent(at, path);
            let number = flow.iss.wrapping_add(from_iss);
            Case::ingress(from_peer(path, flags, sequence, number)).flow(key, flow)
        };
        rows.push(row(format!("{path:?} SYN-ACK"), move |at| {
            accepts(at, path)
        }));
        rows.push(row(format!("{path:?} SYN-ACK of another SYN"), move |at| {
            let number = at.isn(&key).wrapping_add(2);
            let case = case(at, SYN_ACK, PEER, 2);
            refused(case, path.control(at, flags::RST, number, 0))
                .changes(key, |flow| flow.syns = RESTARTED)
        }));
        rows.push(row(
            format!("{path:?} the same a moment later"),
            move |at| {
                let case = case(at, SYN_ACK, PEER, 2);
                withheld(case.was_reset(key, at.isn(&key).wrapping_add(2), at.before_ms(10)))
            },
        ));
        rows.push(row(format!("{path:?} SYN that crossed ours"), move |at| {
            let iss = at.isn(&key);
            case(at, flags::SYN, PEER, 0)
                .answers(path.control(at, SYN_ACK, iss, PEER.wrapping_add(1)))
                .counts(Outcome::RxSyn)
                .sends(Sent::SynAck)
                .changes(key, |flow| {
                    flow.state = State::SynReceived as u32;
                    flow.rcv_nxt = PEER.wrapping_add(1);
                })
        }));
        rows.push(row(format!("{path:?} refused"), move |at| {
            case(at, flags::RST | flags::ACK, 0, 1).drops(Outcome::RxRefused)
        }));
        rows.push(row(format!("{path:?} someone else's reset"), move |at| {
            case(at, flags::RST | flags::ACK, 0, 2).drops(Outcome::RxDropReset)
        }));
        rows.push(row(format!("{path:?} reset without ACK"), move |at| {
            case(at, flags::RST, 0, 1).drops(Outcome::RxDropReset)
        }));
        rows.push(row(format!("{path:?} data that names our number"), {
            move |at| {
                let flow = syn_sent(at, path);
                let datagram = path.inbound().payload(payload(60));
                let segment = datagram.clone().segment(flags::DATA, 500, flow.snd_nxt);
                Case::ingress(segment)
                    .flow(key, flow)
                    .passes_as(datagram)
                    .counts(Outcome::RxRestored)
                    .reports(Kind::Established, key)
                    .changes(key, |flow| {
                        open(flow, at, 560);
                        restored(flow, at, 60);
                    })
            }
        }));
        rows.push(row(format!("{path:?} data of an old flow"), move |at| {
            let flow = syn_sent(at, path);
            let number = flow.iss.wrapping_sub(7000);
            let segment = path.inbound().payload(payload(60));
            let case = Case::ingress(segment.segment(flags::DATA, 500, number)).flow(key, flow);
            refused(case, path.control(at, flags::RST, number, 0))
                .changes(key, |flow| flow.syns = RESTARTED)
        }));
    }
    check(&mut datapath(), rows);
}

/// A flow that was opened again `ms` ago, while its peer still has the old one.
fn opened_again(at: Moment, path: Path, ms: u64) -> Flow {
    Flow {
        opened_at: at.before_ms(ms),
        syn_at: at.before_ms(ms),
        ..syn_sent(at, path)
    }
}

/// Segments in flight when the SYN left have old numbers: a reset with them would end
/// nothing at the peer, but perhaps the new connection in a firewall between.
#[test]
fn only_the_latest_numbers_are_reset_while_the_first_syn_is_under_way() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        let key = path.key();
        for state in [State::SynSent, State::SynReceived] {
            for (name, flags, exact, ms, reset) in [
                ("data", flags::DATA, false, 900, false),
                ("ACK", flags::ACK, false, 900, false),
                ("SYN-ACK", SYN_ACK, false, 900, false),
                ("challenge", flags::ACK, true, 0, true),
                // An older peer, or a middlebox between, cannot say what it is.
                ("late ACK", flags::ACK, false, 1001, true),
            ] {
                for mark in [asking as fn(u16) -> u16, challenging] {
                    let name = format!("{path:?} {state:?} {name} {:#x}", mark(0));
                    rows.push(row(name, move |at| {
                        let flow = in_state(opened_again(at, path, ms), state);
                        let number = flow.iss.wrapping_sub(7000);
                        let window = if exact { mark(0xf000) } else { 0xf000 };
                        let segment = from_peer(path, flags, 500, number).window(window);
                        let case = Case::ingress(segment).flow(key, flow);
                        if !reset {
                            return withheld(case);
                        }
                        let case = refused(case, path.control(at, flags::RST, number, 0));
                        match state {
                            State::SynSent => case.changes(key, |flow| flow.syns = RESTARTED),
                            _ => case,
                        }
                    }));
                }
            }
        }
    }
    check(&mut datapath(), rows);
}

/// The next SYN follows a reset. An answer to an older SYN would complete a
/// connection that firewalls on the path have just seen reset.
#[test]
fn no_answer_to_a_syn_of_before_the_reset() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        let key = path.key();
        let restarted = move |at, syns| Flow {
            syns: RESTARTED | syns,
            ..opened_again(at, path, 20)
        };
        rows.push(row(format!("{path:?}"), move |at| {
            let flow = restarted(at, 0);
            Case::ingress(from_peer(path, SYN_ACK, PEER, flow.snd_nxt))
                .flow(key, flow)
                .drops(Outcome::RxDropNoFlow)
        }));
        rows.push(row(format!("{path:?}, which followed"), move |at| {
            let flow = restarted(at, 1);
            Case::ingress(from_peer(path, SYN_ACK, PEER, flow.snd_nxt))
                .flow(key, flow)
                .answers(path.control_of(at, &flow, flags::ACK, flow.snd_nxt, PEER.wrapping_add(1)))
                .counts(Outcome::RxSynAck)
                .sends(Sent::Ack)
                .reports(Kind::Established, key)
                .changes(key, |flow| open(flow, at, PEER.wrapping_add(1)))
        }));
        // Spoofed challenges are answered with resets, but do not stop the handshake.
        for syns in [0, 1, 2] {
            rows.push(row(format!("{path:?}, reset after {syns}"), move |at| {
                let flow = restarted(at, syns);
                let number = flow.iss.wrapping_sub(7000);
                let segment = from_peer(path, flags::ACK, 500, number);
                let case = Case::ingress(segment.window(challenging(0xf000))).flow(key, flow);
                refused(case, path.control(at, flags::RST, number, 0))
            }));
        }
    }
    check(&mut datapath(), rows);
}

#[test]
fn both_opened_at_once() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        let key = path.key();
        rows.push(row(format!("{path:?} SYN-ACK"), move |at| {
            let flow = syn_received(at, path);
            Case::ingress(from_peer(path, SYN_ACK, PEER, flow.snd_nxt))
                .flow(key, flow)
                .answers(path.control_of(at, &flow, flags::ACK, flow.snd_nxt, PEER.wrapping_add(1)))
                .counts(Outcome::RxSynAck)
                .sends(Sent::Ack)
                .reports(Kind::Established, key)
                .changes(key, |flow| open(flow, at, PEER.wrapping_add(1)))
        }));
        rows.push(row(format!("{path:?} ACK"), move |at| {
            let flow = syn_received(at, path);
            Case::ingress(from_peer(path, flags::ACK, flow.rcv_nxt, flow.snd_nxt))
                .flow(key, flow)
                .drops(Outcome::RxAck)
                .reports(Kind::Established, key)
                .changes(key, |flow| open(flow, at, flow.rcv_nxt))
        }));
        rows.push(row(format!("{path:?} data"), move |at| {
            let flow = syn_received(at, path);
            let datagram = path.inbound().payload(payload(90));
            let segment = datagram.clone();
            let segment = segment.segment(flags::DATA, flow.rcv_nxt, flow.snd_nxt);
            Case::ingress(segment)
                .flow(key, flow)
                .passes_as(datagram)
                .counts(Outcome::RxRestored)
                .reports(Kind::Established, key)
                .changes(key, |flow| {
                    open(flow, at, flow.rcv_nxt.wrapping_add(90));
                    restored(flow, at, 90);
                })
        }));
        rows.push(row(format!("{path:?} the SYN again"), move |at| {
            let flow = syn_received(at, path);
            Case::ingress(from_peer(path, flags::SYN, PEER, 0))
                .flow(key, flow)
                .answers(path.control(at, SYN_ACK, flow.iss, PEER.wrapping_add(1)))
                .counts(Outcome::RxSyn)
                .sends(Sent::SynAck)
        }));
        rows.push(row(format!("{path:?} exact reset"), move |at| {
            let flow = syn_received(at, path);
            Case::ingress(from_peer(path, flags::RST, flow.rcv_nxt, 0))
                .flow(key, flow)
                .drops(Outcome::RxRefused)
                .changes(key, |flow| flow.state = State::SynSent as u32)
        }));
        rows.push(row(format!("{path:?} other reset"), move |at| {
            let flow = syn_received(at, path);
            Case::ingress(from_peer(path, flags::RST, flow.rcv_nxt.wrapping_add(1), 0))
                .flow(key, flow)
                .drops(Outcome::RxDropReset)
        }));
    }
    check(&mut datapath(), rows);
}

/// A closed flow listens like a port without one, and knows its last ACK.
#[test]
fn a_closed_flow_listens() {
    let mut rows: Vec<Row> = Vec::new();
    for path in servers() {
        let key = path.key();
        let closed = move |at| in_state(path.established(at), State::Closed);
        rows.push(row(format!("{path:?} SYN"), move |at| {
            let isn = far_from(closed(at).snd_nxt, at.isn(&key));
            Case::ingress(from_peer(path, flags::SYN, PEER, 0))
                .flow(key, closed(at))
                .answers(path.control(at, SYN_ACK, isn, PEER.wrapping_add(1)))
                .counts(Outcome::RxSyn)
                .sends(Sent::SynAck)
        }));
        rows.push(row(format!("{path:?} the last ACK"), move |at| {
            let flow = closed(at);
            Case::ingress(from_peer(path, flags::ACK, flow.rcv_nxt, flow.snd_nxt))
                .flow(key, flow)
                .drops(Outcome::RxAck)
                .changes(key, |flow| flow.received_at = at.ns())
        }));
        rows.push(row(format!("{path:?} data"), move |at| {
            let flow = closed(at);
            let segment = path.inbound().payload(payload(10));
            let segment = segment.segment(flags::DATA, flow.rcv_nxt, flow.snd_nxt);
            let case = Case::ingress(segment).flow(key, flow);
            refused(case, path.control(at, flags::RST, flow.snd_nxt, 0))
        }));
        // All that was under way when it ended deserves one reset, whatever the
        // numbers; a number that was never sent has its own.
        for (name, sequence, number, limited) in [
            ("more data", 10u32, 0u32, true),
            (
                "older data",
                0u32.wrapping_sub(5000),
                300u32.wrapping_neg(),
                true,
            ),
            ("data of nobody", 0, 1, false),
            ("a challenge", 0, 300u32.wrapping_neg(), false),
        ] {
            rows.push(row(format!("{path:?} {name} after a reset"), move |at| {
                let flow = closed(at);
                let number = flow.snd_nxt.wrapping_add(number);
                let segment = path.inbound().payload(payload(10));
                let sequence = flow.rcv_nxt.wrapping_add(sequence);
                let window = match name {
                    "a challenge" => challenging(0xf000),
                    _ => 0xf000,
                };
                let segment = segment.segment(flags::DATA, sequence, number);
                let case = Case::ingress(segment.window(window))
                    .flow(key, flow)
                    .was_reset(key, 0, at.before_ms(10));
                if limited {
                    return withheld(case);
                }
                refused(case, path.control(at, flags::RST, number, 0))
            }));
        }
    }
    check(&mut datapath(), rows);
}

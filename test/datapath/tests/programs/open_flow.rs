//! Ingress: control segments of a flow that is open (RFC 9293, RFC 5961).

use xdptun_common::tunnel::ack::AckMarks;
use xdptun_common::tunnel::event::Kind;
use xdptun_common::tunnel::outcome::{Outcome, Sent};
use xdptun_common::tunnel::state::{ANSWER_AGAIN, Flow, MAX_STEP, State};
use xdptun_common::tunnel::window::challenging;
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::path::OLDEST_ACK;
use xdptun_test_datapath::{Case, Family, Moment, Packet, Path, Program, Row, check, flags, row};

use crate::effects::{closed, in_state, restored};
use crate::{datapath, paths};

/// How far a segment may lie from what is expected.
pub const WINDOW: u32 = 1 << 26;

/// A segment of the peer: `ahead` is where its numbers lie from those expected.
pub fn segment(flow: &Flow, path: Path, flags: u8, ahead: [u32; 2], len: usize) -> Packet {
    let [sequence, acknowledgment] = ahead;
    path.inbound().payload(payload(len)).segment(
        flags,
        flow.rcv_nxt.wrapping_add(sequence),
        flow.snd_nxt.wrapping_add(acknowledgment),
    )
}

/// The flow answers with its own numbers and stays.
fn challenges(case: Case, at: Moment, path: Path, flow: &Flow, outcome: Outcome) -> Case {
    let challenge = path.control(at, flags::ACK, flow.snd_nxt, flow.rcv_nxt);
    case.answers(challenge.marked(challenging))
        .counts(outcome)
        .sends(Sent::ChallengeAck)
        .changes(path.key(), |flow| {
            flow.answers_earned_at = at.tick() + ANSWER_AGAIN;
        })
}

fn both_open_states() -> impl Iterator<Item = (Path, State)> {
    paths().flat_map(|path| [(path, State::Established), (path, State::FinSent)])
}

#[test]
fn a_reset_counts_with_the_exact_number_only() {
    let mut rows: Vec<Row> = Vec::new();
    for (path, state) in both_open_states() {
        for flags in [flags::RST, flags::RST | flags::ACK] {
            let name = format!("{path:?} {state:?} {flags:#x}");
            let case = move |at, ahead| {
                let flow = in_state(path.established(at), state);
                let reset = segment(&flow, path, flags, [ahead, 0], 0);
                Case::ingress(reset).flow(path.key(), flow)
            };
            rows.push(row(format!("{name} exact"), move |at| {
                case(at, 0)
                    .drops(Outcome::RxRst)
                    .reports(Kind::Reset, path.key())
                    .changes(path.key(), |flow| closed(flow, at))
                    .changes(path.key(), |flow| flow.link = path.outbound().link())
            }));
            for ahead in [1, u32::MAX, 5000, WINDOW, WINDOW.wrapping_neg()] {
                rows.push(row(format!("{name} {ahead:#x} ahead"), move |at| {
                    let flow = in_state(path.established(at), state);
                    challenges(case(at, ahead), at, path, &flow, Outcome::RxDropReset)
                }));
            }
            for ahead in [WINDOW + 1, (WINDOW + 1).wrapping_neg(), 1 << 31] {
                rows.push(row(format!("{name} {ahead:#x} ahead"), move |at| {
                    case(at, ahead).drops(Outcome::RxDropReset)
                }));
            }
        }
    }
    check(&mut datapath(), rows);
}

#[test]
fn a_syn_is_challenged() {
    let mut rows: Vec<Row> = Vec::new();
    for (path, state) in both_open_states() {
        for (flags, ahead) in [
            (flags::SYN, 0),
            (flags::SYN, 1 << 30),
            (flags::SYN | flags::ACK, u32::MAX),
            (flags::SYN | flags::FIN, 0),
        ] {
            let name = format!("{path:?} {state:?} {flags:#x} {ahead:#x}");
            rows.push(row(name, move |at| {
                let flow = in_state(path.established(at), state);
                let case = Case::ingress(segment(&flow, path, flags, [ahead, 0], 0))
                    .flow(path.key(), flow);
                challenges(case, at, path, &flow, Outcome::RxSyn)
            }));
        }
    }
    check(&mut datapath(), rows);
}

#[test]
fn a_fin_ends_the_flow() {
    let mut rows: Vec<Row> = Vec::new();
    const FIN_ACK: u8 = flags::FIN | flags::ACK;
    for path in paths() {
        let key = path.key();
        rows.push(row(format!("{path:?} established"), move |at| {
            let flow = path.established(at);
            let rcv_nxt = flow.rcv_nxt.wrapping_add(1);
            Case::ingress(segment(&flow, path, FIN_ACK, [0, 0], 0))
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
        }));
        rows.push(row(format!("{path:?} answer to ours"), move |at| {
            let flow = in_state(path.established(at), State::FinSent);
            let rcv_nxt = flow.rcv_nxt.wrapping_add(1);
            Case::ingress(segment(&flow, path, FIN_ACK, [0, 0], 0))
                .flow(key, flow)
                .answers(path.control(at, flags::ACK, flow.snd_nxt, rcv_nxt))
                .counts(Outcome::RxFin)
                .sends(Sent::Ack)
                .reports(Kind::Finished, key)
                .changes(key, |flow| {
                    closed(flow, at);
                    flow.rcv_nxt = rcv_nxt;
                })
        }));
        for ahead in [1, u32::MAX - 1, 60_000] {
            rows.push(row(format!("{path:?}, {ahead:#x} ahead"), move |at| {
                let flow = path.established(at);
                let case =
                    Case::ingress(segment(&flow, path, FIN_ACK, [ahead, 0], 0)).flow(key, flow);
                challenges(case, at, path, &flow, Outcome::RxDropFin)
            }));
        }
        rows.push(row(format!("{path:?} without ACK"), move |at| {
            let flow = path.established(at);
            Case::ingress(segment(&flow, path, flags::FIN, [0, 0], 0))
                .flow(key, flow)
                .drops(Outcome::RxDropSequence)
        }));
    }
    check(&mut datapath(), rows);
}

#[test]
fn numbers_out_of_the_window() {
    let mut rows: Vec<Row> = Vec::new();
    const FAR: u32 = WINDOW + 1;
    for (path, state) in both_open_states() {
        let key = path.key();
        let flow = move |at| in_state(path.established(at), state);
        // The peer's acknowledgement may be a little old, but not of data never
        // sent.
        let far = [
            [FAR, 0],
            [FAR.wrapping_neg(), 0],
            [0, (OLDEST_ACK + 1).wrapping_neg()],
            [0, FAR.wrapping_neg()],
            [0, 1],
            [0, FAR],
            [1 << 31, (1 << 31) - 1],
        ];
        for ahead in far {
            let fin = flags::FIN | flags::ACK;
            let kinds = [0, 1, 1000].map(|len| (flags::DATA, len));
            for (flags, len) in kinds.into_iter().chain([(fin, 0)]) {
                let name = format!("{path:?} {state:?} {ahead:x?} {flags:#x} {len} bytes");
                rows.push(row(name, move |at| {
                    let flow = flow(at);
                    let case =
                        Case::ingress(segment(&flow, path, flags, ahead, len)).flow(key, flow);
                    challenges(case, at, path, &flow, Outcome::RxDropSequence)
                }));
            }
            // A reset would have a number of the sender's choice.
            rows.push(row(format!("{path:?} {state:?} {ahead:x?} ACK"), {
                move |at| {
                    let flow = flow(at);
                    Case::ingress(segment(&flow, path, flags::ACK, ahead, 0))
                        .flow(key, flow)
                        .drops(Outcome::RxDropSequence)
                }
            }));
        }
        rows.push(row(format!("{path:?} {state:?} data without ACK"), {
            move |at| {
                let flow = flow(at);
                Case::ingress(segment(&flow, path, flags::PSH, [0, 0], 50))
                    .flow(key, flow)
                    .drops(Outcome::RxDropSequence)
            }
        }));
    }
    check(&mut datapath(), rows);
}

/// Datagrams are not put in order: one inside the window is restored at once, however
/// old its acknowledgement, and the number that is acknowledged moves forward only, one
/// step at a time.
#[test]
fn data_anywhere_in_the_window() {
    const UNDER_WAY: u32 = 500;
    let mut rows: Vec<Row> = Vec::new();
    for program in Program::INBOUND {
        for path in paths() {
            for ahead in [
                [WINDOW, 0],
                [MAX_STEP, 0],
                [MAX_STEP - 40, 0],
                [100, 0],
                [100, UNDER_WAY.wrapping_neg()],
                [100, (UNDER_WAY + 1).wrapping_neg()],
                [WINDOW, OLDEST_ACK.wrapping_neg()],
                [WINDOW.wrapping_neg(), 0],
                [39u32.wrapping_neg(), 0],
                [40u32.wrapping_neg(), 0],
            ] {
                let name = format!("{program:?} {path:?} {ahead:x?}");
                rows.push(row(name, move |at| {
                    let mut flow = path.established(at);
                    flow.snd_una = flow.snd_nxt.wrapping_sub(UNDER_WAY);
                    let number = flow.snd_nxt.wrapping_add(ahead[1]);
                    let end = flow.rcv_nxt.wrapping_add(ahead[0]).wrapping_add(40);
                    // Nothing to acknowledge at once, so that XDP takes it too.
                    if ahead[0] >= MAX_STEP - 40 {
                        flow.acked = end;
                    }
                    let step = end.wrapping_sub(flow.rcv_nxt).cast_signed();
                    let step = step.clamp(0, MAX_STEP.cast_signed()).cast_unsigned();
                    let datagram = path.inbound().payload(payload(40));
                    Case::new(program, segment(&flow, path, flags::DATA, ahead, 40))
                        .flow(path.key(), flow)
                        .passes_as(datagram)
                        .counts(Outcome::RxRestored)
                        .changes(path.key(), |flow| {
                            flow.rcv_nxt = flow.rcv_nxt.wrapping_add(step);
                            if ahead[1] == 0 {
                                flow.snd_una = number;
                            }
                            restored(flow, at, 40);
                        })
                }));
            }
        }
    }
    check(&mut datapath(), rows);
}

/// On a long and fast path the peer's acknowledgements are far behind, and still the
/// latest.
#[test]
fn however_much_is_under_way() {
    let mut rows: Vec<Row> = Vec::new();
    for program in Program::INBOUND {
        for path in paths() {
            for under_way in [WINDOW, 2 * WINDOW, 1 << 30] {
                let name = format!("{program:?} {path:?} {under_way:#x}");
                rows.push(row(name, move |at| {
                    let mut flow = path.established(at);
                    flow.snd_nxt = flow.snd_una.wrapping_add(under_way);
                    let ahead = [0, under_way.wrapping_neg()];
                    Case::new(program, segment(&flow, path, flags::DATA, ahead, 40))
                        .flow(path.key(), flow)
                        .passes_as(path.inbound().payload(payload(40)))
                        .counts(Outcome::RxRestored)
                        .changes(path.key(), |flow| {
                            flow.rcv_nxt = flow.rcv_nxt.wrapping_add(40);
                            restored(flow, at, 40);
                        })
                }));
            }
        }
    }
    check(&mut datapath(), rows);
}

/// How old an acknowledgement may be goes by time: what was the latest half a second ago
/// is taken, and on a flow that is idle nothing but the latest.
#[test]
fn an_acknowledgement_grows_old() {
    const PERIOD: u32 = AckMarks::PERIOD;
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        for (since, behind, taken) in [
            (PERIOD - 1, OLDEST_ACK, true),
            (PERIOD, OLDEST_ACK, false),
            (PERIOD, OLDEST_ACK / 2, true),
            (2 * PERIOD - 1, OLDEST_ACK / 2, true),
            (2 * PERIOD, OLDEST_ACK / 2, false),
            (2 * PERIOD, 1, false),
            (2 * PERIOD, 0, true),
            (1000 * PERIOD, 0, true),
        ] {
            let name = format!("{path:?}, {behind} behind after {since} ticks");
            rows.push(row(name, move |at| {
                let mut flow = path.established(at);
                flow.ack_marks.since = at.tick().wrapping_sub(since);
                let ahead = [0, behind.wrapping_neg()];
                let case = Case::ingress(segment(&flow, path, flags::DATA, ahead, 40))
                    .flow(path.key(), flow);
                if !taken {
                    return challenges(case, at, path, &flow, Outcome::RxDropSequence);
                }
                case.passes_as(path.inbound().payload(payload(40)))
                    .counts(Outcome::RxRestored)
                    .changes(path.key(), |flow| {
                        flow.rcv_nxt = flow.rcv_nxt.wrapping_add(40);
                        restored(flow, at, 40);
                    })
            }));
        }
        // Each new acknowledgement may begin a period.
        for since in [PERIOD - 1, PERIOD, 2 * PERIOD - 1, 2 * PERIOD] {
            rows.push(row(
                format!("{path:?}, news after {since} ticks"),
                move |at| {
                    let mut flow = path.established(at);
                    flow.ack_marks.since = at.tick().wrapping_sub(since);
                    flow.snd_nxt = flow.snd_una.wrapping_add(500);
                    let before = flow.snd_una;
                    Case::ingress(segment(&flow, path, flags::ACK, [0, 0], 0))
                        .flow(path.key(), flow)
                        .drops(Outcome::RxAck)
                        .changes(path.key(), |flow| {
                            flow.snd_una = flow.snd_nxt;
                            flow.received_at = at.ns();
                            if since >= PERIOD {
                                let older = match since / PERIOD {
                                    1 => flow.ack_marks.numbers[1],
                                    _ => before,
                                };
                                flow.ack_marks.numbers = [older, before];
                                flow.ack_marks.since = at.tick();
                            }
                        })
                },
            ));
        }
    }
    check(&mut datapath(), rows);
}

/// After a silence longer than any window the acknowledgement alone tells that data is the
/// peer's, and the flow goes on there.
#[test]
fn data_after_a_silence() {
    let mut rows: Vec<Row> = Vec::new();
    for program in Program::INBOUND {
        for path in paths() {
            for ahead in [WINDOW + 1, 1 << 30, (WINDOW + 41).wrapping_neg()] {
                for (ms, silent) in [(500, false), (560, true)] {
                    let name = format!("{program:?} {path:?} {ahead:#x}, {ms} ms");
                    rows.push(row(name, move |at| {
                        let mut flow = path.established(at);
                        flow.received_at = at.before_ms(ms);
                        let end = flow.rcv_nxt.wrapping_add(ahead).wrapping_add(40);
                        flow.acked = end;
                        let data = segment(&flow, path, flags::DATA, [ahead, 0], 40);
                        let case = Case::new(program, data).flow(path.key(), flow);
                        match (silent, program) {
                            (false, Program::Ingress) => {
                                challenges(case, at, path, &flow, Outcome::RxDropSequence)
                            }
                            (false, _) => case,
                            (true, _) => case
                                .passes_as(path.inbound().payload(payload(40)))
                                .counts(Outcome::RxRestored)
                                .changes(path.key(), |flow| {
                                    flow.rcv_nxt = end;
                                    restored(flow, at, 40);
                                }),
                        }
                    }));
                }
            }
        }
    }
    check(&mut datapath(), rows);
}

#[test]
fn acknowledgements_and_probes() {
    let mut rows: Vec<Row> = Vec::new();
    for (path, state) in both_open_states() {
        let key = path.key();
        let case = move |at, ahead| {
            let flow = in_state(path.established(at), state);
            Case::ingress(segment(&flow, path, flags::ACK, ahead, 0))
                .flow(key, flow)
                .changes(key, |flow| flow.received_at = at.ns())
        };
        for ahead in [
            [0, 0],
            [0, u32::MAX],
            [7, 0],
            [0, OLDEST_ACK.wrapping_neg()],
        ] {
            rows.push(row(format!("{path:?} {state:?} ACK {ahead:x?}"), {
                move |at| case(at, ahead).drops(Outcome::RxAck)
            }));
        }
        for ahead in [[u32::MAX, 0], [u32::MAX, 500u32.wrapping_neg()]] {
            rows.push(row(format!("{path:?} {state:?} probe {ahead:x?}"), {
                move |at| {
                    let flow = in_state(path.established(at), state);
                    case(at, ahead)
                        .answers(path.control(at, flags::ACK, flow.snd_nxt, flow.rcv_nxt))
                        .counts(Outcome::RxAck)
                        .sends(Sent::Ack)
                        .changes(key, |flow| {
                            flow.answers_earned_at = at.tick() + ANSWER_AGAIN;
                        })
                }
            }));
        }
    }
    check(&mut datapath(), rows);
}

#[test]
fn segments_that_cannot_be_restored() {
    let mut rows: Vec<Row> = Vec::new();
    let mut refuse = |name: String, path: Path, packet: Vec<u8>, outcome| {
        rows.push(row(name, move |at| {
            Case::ingress(packet.clone())
                .flow(path.key(), path.established(at))
                .drops(outcome)
        }));
    };
    // The numbers of `established`; what is wrong must be seen before them.
    let data = |path: Path| {
        let datagram = path.inbound().payload(payload(60));
        datagram.segment(flags::DATA, 0xffff_fff0, 0xffff_ffe0)
    };
    for path in paths() {
        let family = path.family();
        let transport = 14 + family.header_len();
        for (name, data_offset) in [("data offset 0", 0x00), ("data offset 4", 0x40)] {
            let mut bytes = data(path).bytes();
            bytes[transport + 12] = data_offset;
            refuse(
                format!("{path:?} {name}"),
                path,
                bytes,
                Outcome::RxDropMalformed,
            );
        }
        let mut bytes = data(path).payload(payload(39)).bytes();
        bytes[transport + 12] = 0xf0;
        refuse(
            format!("{path:?} header longer than the segment"),
            path,
            bytes,
            Outcome::RxDropMalformed,
        );
        refuse(
            format!("{path:?} shorter than a header by IP's word"),
            path,
            data(path).transport_len(19).bytes(),
            Outcome::RxDropMalformed,
        );
        for cut in [8, 12, 19] {
            let mut bytes = data(path).bytes();
            bytes.truncate(transport + cut);
            refuse(
                format!("{path:?} frame ends {cut} bytes into the header"),
                path,
                bytes,
                Outcome::RxDropMalformed,
            );
        }
        let mut bytes = data(path).options(&[1; 40]).bytes();
        bytes.truncate(transport + 40);
        refuse(
            format!("{path:?} frame ends inside the options"),
            path,
            bytes,
            Outcome::RxDropMalformed,
        );
    }
    rows.extend(Family::ALL.map(|family| {
        row(format!("{family:?} merged by the receiver"), move |at| {
            let path = Path::client(family);
            let flow = path.established(at);
            Case::ingress(segment(&flow, path, flags::DATA, [0, 0], 2000))
                .merged(1000)
                .flow(path.key(), flow)
                .drops(Outcome::RxDropMerged)
        })
    }));
    check(&mut datapath(), rows);
}

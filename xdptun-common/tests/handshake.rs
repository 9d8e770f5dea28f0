//! `handshake`: each state and segment, row by row, then whole conversations.

#[path = "common/host.rs"]
mod host;

use host::{DATA, FIN_ACK, Host, Link, Packet, SYN_ACK};
use proptest::prelude::*;
use xdptun_common::tunnel::handshake::{
    ANYWHERE, Admission, Endpoint, Reaction, Reply, Segment, listen, receive,
};
use xdptun_common::tunnel::isn::Secret;
use xdptun_common::tunnel::outcome::{Outcome, Sent};
use xdptun_common::tunnel::state::{MAX_STEP, State};
use xdptun_common::tunnel::window::MAX_WINDOW;
use xdptun_common::wire::Flags;

/// Our initial number, which is also the one that a SYN-ACK would carry now.
const ISS: u32 = 0xffff_ff00;
/// The number that a SYN-ACK carried a while ago.
const EARLIER: u32 = 500;
/// The number of the flow that this one replaces, as near as `far_from` has it.
const PREDECESSORS: u32 = ISS.wrapping_sub(6 << 28);
/// The peer's initial number.
const IRS: u32 = 0xffff_fff0;

const SYN_SENT: Endpoint = Endpoint {
    state: State::SynSent,
    iss: ISS,
    snd_una: ISS + 1,
    snd_nxt: ISS + 1,
    rcv_nxt: 0,
    oldest_ack: ISS + 1,
    reach: MAX_WINDOW,
};
const SYN_RECEIVED: Endpoint = Endpoint {
    state: State::SynReceived,
    rcv_nxt: IRS + 1,
    ..SYN_SENT
};
/// 600 bytes sent and acknowledged, 300 received: all numbers passed zero.
const OPEN: Endpoint = Endpoint {
    state: State::Established,
    iss: ISS,
    snd_una: ISS.wrapping_add(601),
    snd_nxt: ISS.wrapping_add(601),
    rcv_nxt: IRS.wrapping_add(301),
    oldest_ack: ISS.wrapping_add(101),
    reach: MAX_WINDOW,
};
const FIN_SENT: Endpoint = Endpoint {
    state: State::FinSent,
    snd_nxt: OPEN.snd_nxt + 1,
    ..OPEN
};
const CLOSED: Endpoint = Endpoint {
    state: State::Closed,
    ..FIN_SENT
};
const SEQ: u32 = OPEN.rcv_nxt;
const ACK: u32 = OPEN.snd_nxt;

const fn seg(flags: Flags, sequence: u32, acknowledgment: u32, len: u32) -> Segment {
    Segment {
        flags,
        sequence,
        acknowledgment,
        len,
        asks: false,
        exact: false,
    }
}

/// The same segment as a challenge.
const fn challenging(segment: Segment) -> Segment {
    Segment {
        exact: true,
        ..segment
    }
}

/// The same segment as a probe.
const fn asking(segment: Segment) -> Segment {
    Segment {
        asks: true,
        ..challenging(segment)
    }
}

const fn reply(kind: Sent, flags: Flags, sequence: u32, acknowledgment: u32) -> Option<Reply> {
    Some(Reply {
        kind,
        flags,
        sequence,
        acknowledgment,
    })
}

const fn rst(sequence: u32) -> Option<Reply> {
    reply(Sent::Rst, Flags::RST, sequence, 0)
}

const RST_ACK: Flags = Flags::RST.with(Flags::ACK);
const CHALLENGE: Option<Reply> = reply(Sent::ChallengeAck, Flags::ACK, ACK, SEQ);

fn gave(isn: u32) -> bool {
    [ISS, EARLIER, PREDECESSORS].contains(&isn)
}

/// Admits callers that prove that they know a secret: those whose initial number is
/// [`IRS`].
struct Hidden;

impl Admission for Hidden {
    fn gave(&self, iss: u32) -> bool {
        gave(iss)
    }

    fn admits(&self, syn: &Segment) -> bool {
        syn.sequence == IRS
    }

    fn is_hidden(&self) -> bool {
        true
    }
}

/// A segment, and what it must lead to.
type Row = (&'static str, Segment, Endpoint, Outcome, Option<Reply>);

#[track_caller]
fn assert_rows(react: impl Fn(&Segment) -> Reaction, rows: &[Row]) {
    for (name, segment, endpoint, outcome, reply) in rows {
        let expected = Reaction {
            endpoint: *endpoint,
            outcome: *outcome,
            reply: reply.unwrap_or(Reply::NONE),
        };
        assert_eq!(react(segment), expected, "{name}: {segment:?}");
    }
}

#[track_caller]
fn assert_received(endpoint: Endpoint, rows: &[Row]) {
    assert_rows(|segment| receive(endpoint, segment, &gave), rows);
}

/// A flow made by a cookie.
const fn made(iss: u32, rcv_nxt: u32) -> Endpoint {
    Endpoint {
        state: State::Established,
        iss,
        snd_una: iss.wrapping_add(1),
        snd_nxt: iss.wrapping_add(1),
        rcv_nxt,
        oldest_ack: iss.wrapping_add(1),
        reach: MAX_WINDOW,
    }
}

#[test]
fn listening() {
    let nothing = Endpoint {
        state: State::Closed,
        iss: ISS,
        snd_una: ISS,
        snd_nxt: ISS,
        rcv_nxt: 0,
        oldest_ack: ISS,
        reach: MAX_WINDOW,
    };
    let reset = Outcome::RxDropNoFlow;
    assert_rows(
        |segment| listen(segment, ISS, &gave),
        &[
            (
                "a SYN costs no memory",
                seg(Flags::SYN, IRS, 0, 0),
                nothing,
                Outcome::RxSyn,
                reply(Sent::SynAck, SYN_ACK, ISS, IRS + 1),
            ),
            (
                "the number wraps",
                seg(Flags::SYN, u32::MAX, 0, 0),
                nothing,
                Outcome::RxSyn,
                reply(Sent::SynAck, SYN_ACK, ISS, 0),
            ),
            (
                "the ACK of our SYN-ACK",
                seg(Flags::ACK, IRS + 1, ISS + 1, 0),
                made(ISS, IRS + 1),
                Outcome::RxAck,
                None,
            ),
            (
                "of one before the epoch changed",
                seg(Flags::ACK, IRS + 1, EARLIER + 1, 0),
                made(EARLIER, IRS + 1),
                Outcome::RxAck,
                None,
            ),
            (
                "the ACK is lost, the first datagram says the same",
                seg(DATA, IRS + 1, ISS + 1, 100),
                made(ISS, IRS.wrapping_add(101)),
                Outcome::RxRestored,
                None,
            ),
            (
                "an empty one",
                seg(DATA, IRS + 1, ISS + 1, 0),
                made(ISS, IRS + 1),
                Outcome::RxRestored,
                None,
            ),
            (
                "an ACK of anything else",
                seg(Flags::ACK, 7, ISS, 0),
                nothing,
                reset,
                rst(ISS),
            ),
            (
                "data of a lost flow",
                seg(DATA, 7, ACK, 10),
                nothing,
                reset,
                rst(ACK),
            ),
            (
                "FIN of a lost flow",
                seg(FIN_ACK, 7, ISS + 1, 0),
                nothing,
                reset,
                rst(ISS + 1),
            ),
            (
                "SYN-ACK to nobody",
                seg(SYN_ACK, 7, 99, 0),
                nothing,
                reset,
                rst(99),
            ),
            (
                "data without ACK",
                seg(Flags::PSH, 7, ISS + 1, 10),
                nothing,
                reset,
                None,
            ),
            (
                "SYN and FIN",
                seg(Flags::SYN | Flags::FIN, 7, 0, 0),
                nothing,
                reset,
                None,
            ),
            (
                "no flags at all",
                seg(Flags(0), 7, ISS + 1, 0),
                nothing,
                reset,
                None,
            ),
            ("RST", seg(Flags::RST, 7, 0, 0), nothing, reset, None),
            (
                "RST and ACK",
                seg(RST_ACK, 7, ISS + 1, 0),
                nothing,
                reset,
                None,
            ),
            (
                "RST and SYN",
                seg(Flags::RST | Flags::SYN, 7, 0, 0),
                nothing,
                reset,
                None,
            ),
        ],
    );
}

#[test]
fn syn_sent() {
    let crossed = |irs: u32| Endpoint {
        state: State::SynReceived,
        rcv_nxt: irs + 1,
        ..SYN_SENT
    };
    assert_received(
        SYN_SENT,
        &[
            (
                "SYN-ACK",
                seg(SYN_ACK, IRS, ISS + 1, 0),
                made(ISS, IRS + 1),
                Outcome::RxSynAck,
                reply(Sent::Ack, Flags::ACK, ISS + 1, IRS + 1),
            ),
            (
                "SYN-ACK of another SYN",
                seg(SYN_ACK, IRS, ISS, 0),
                SYN_SENT,
                Outcome::RxDropNoFlow,
                rst(ISS),
            ),
            (
                "simultaneous open",
                seg(Flags::SYN, IRS, 0, 0),
                crossed(IRS),
                Outcome::RxSyn,
                reply(Sent::SynAck, SYN_ACK, ISS, IRS + 1),
            ),
            (
                "the peer answers the SYN-ACK that we sent before we opened",
                seg(Flags::ACK, IRS + 1, ISS + 1, 0),
                made(ISS, IRS + 1),
                Outcome::RxAck,
                None,
            ),
            (
                "the peer has not received a byte of the flow that this one replaces",
                seg(Flags::ACK, IRS + 1, PREDECESSORS + 1, 0),
                SYN_SENT,
                Outcome::RxDropNoFlow,
                rst(PREDECESSORS + 1),
            ),
            (
                "in an earlier epoch, with data",
                seg(DATA, IRS + 1, EARLIER + 1, 5),
                made(EARLIER, IRS + 6),
                Outcome::RxRestored,
                None,
            ),
            (
                "a challenge ACK: the peer has an old flow, the exact reset ends it",
                seg(Flags::ACK, SEQ, ACK, 0),
                SYN_SENT,
                Outcome::RxDropNoFlow,
                rst(ACK),
            ),
            (
                "data of an old flow",
                seg(DATA, SEQ, ACK, 100),
                SYN_SENT,
                Outcome::RxDropNoFlow,
                rst(ACK),
            ),
            (
                "FIN of an old flow",
                seg(FIN_ACK, SEQ, ISS + 1, 0),
                SYN_SENT,
                Outcome::RxDropNoFlow,
                rst(ISS + 1),
            ),
            (
                "refused",
                seg(RST_ACK, 0, ISS + 1, 0),
                SYN_SENT,
                Outcome::RxRefused,
                None,
            ),
            (
                "RST of another SYN",
                seg(RST_ACK, 0, ISS, 0),
                SYN_SENT,
                Outcome::RxDropReset,
                None,
            ),
            (
                "RST without ACK",
                seg(Flags::RST, 0, ISS + 1, 0),
                SYN_SENT,
                Outcome::RxDropReset,
                None,
            ),
        ],
    );
}

#[test]
fn syn_received() {
    let other = 77;
    assert_received(
        SYN_RECEIVED,
        &[
            (
                "SYN-ACK",
                seg(SYN_ACK, IRS, ISS + 1, 0),
                made(ISS, IRS + 1),
                Outcome::RxSynAck,
                reply(Sent::Ack, Flags::ACK, ISS + 1, IRS + 1),
            ),
            (
                "SYN-ACK of a peer that started over: its number counts",
                seg(SYN_ACK, other, ISS + 1, 0),
                made(ISS, other + 1),
                Outcome::RxSynAck,
                reply(Sent::Ack, Flags::ACK, ISS + 1, other + 1),
            ),
            (
                "SYN-ACK that has not seen our last SYN",
                seg(SYN_ACK, IRS, ISS, 0),
                SYN_RECEIVED,
                Outcome::RxSyn,
                reply(Sent::SynAck, SYN_ACK, ISS, IRS + 1),
            ),
            (
                "SYN-ACK in which nothing fits",
                seg(SYN_ACK, other, ISS, 0),
                SYN_RECEIVED,
                Outcome::RxDropNoFlow,
                rst(ISS),
            ),
            (
                "SYN again",
                seg(Flags::SYN, IRS, 0, 0),
                SYN_RECEIVED,
                Outcome::RxSyn,
                reply(Sent::SynAck, SYN_ACK, ISS, IRS + 1),
            ),
            (
                "SYN of a peer that started over",
                seg(Flags::SYN, other, 0, 0),
                Endpoint {
                    rcv_nxt: other + 1,
                    ..SYN_RECEIVED
                },
                Outcome::RxSyn,
                reply(Sent::SynAck, SYN_ACK, ISS, other + 1),
            ),
            (
                "ACK of our SYN",
                seg(Flags::ACK, IRS + 1, ISS + 1, 0),
                made(ISS, IRS + 1),
                Outcome::RxAck,
                None,
            ),
            (
                "a probe, one behind, proves as much",
                seg(Flags::ACK, IRS, ISS + 1, 0),
                made(ISS, IRS + 1),
                Outcome::RxAck,
                None,
            ),
            (
                "data, the second datagram first",
                seg(DATA, IRS + 9, ISS + 1, 100),
                made(ISS, IRS.wrapping_add(109)),
                Outcome::RxRestored,
                None,
            ),
            (
                "data that contradicts the SYN: who knows our number is right",
                seg(DATA, IRS ^ 0x4000_0000, ISS + 1, 100),
                made(ISS, (IRS ^ 0x4000_0000).wrapping_add(100)),
                Outcome::RxRestored,
                None,
            ),
            (
                "ACK of an earlier SYN-ACK",
                seg(Flags::ACK, other, EARLIER + 1, 0),
                made(EARLIER, other),
                Outcome::RxAck,
                None,
            ),
            (
                "ACK of anything else",
                seg(Flags::ACK, IRS + 1, ISS + 2, 0),
                SYN_RECEIVED,
                Outcome::RxDropNoFlow,
                rst(ISS + 2),
            ),
            (
                "FIN",
                seg(FIN_ACK, IRS + 1, ISS + 1, 0),
                SYN_RECEIVED,
                Outcome::RxDropNoFlow,
                rst(ISS + 1),
            ),
            (
                "exact RST: back to where it came from",
                seg(Flags::RST, IRS + 1, 0, 0),
                Endpoint {
                    state: State::SynSent,
                    ..SYN_RECEIVED
                },
                Outcome::RxRefused,
                None,
            ),
            (
                "RST nearby",
                seg(Flags::RST, IRS + 2, 0, 0),
                SYN_RECEIVED,
                Outcome::RxDropReset,
                None,
            ),
        ],
    );
}

#[test]
fn established() {
    let at = |rcv_nxt| Endpoint { rcv_nxt, ..OPEN };
    let over = Endpoint {
        state: State::Closed,
        rcv_nxt: SEQ + 1,
        ..OPEN
    };
    let window = MAX_WINDOW;
    let (restored, dropped) = (Outcome::RxRestored, Outcome::RxDropSequence);
    assert_received(
        OPEN,
        &[
            (
                "the next datagram",
                seg(DATA, SEQ, ACK, 10),
                at(SEQ + 10),
                restored,
                None,
            ),
            (
                "without PSH",
                seg(Flags::ACK, SEQ, ACK, 10),
                at(SEQ + 10),
                restored,
                None,
            ),
            ("an empty one", seg(DATA, SEQ, ACK, 0), OPEN, restored, None),
            (
                "one ahead",
                seg(DATA, SEQ + 50, ACK, 10),
                at(SEQ + 60),
                restored,
                None,
            ),
            (
                "a late one",
                seg(DATA, SEQ - 50, ACK, 10),
                OPEN,
                restored,
                None,
            ),
            (
                "a late one that ends ahead",
                seg(DATA, SEQ - 5, ACK, 10),
                at(SEQ + 5),
                restored,
                None,
            ),
            (
                "the last in the window",
                seg(DATA, SEQ + window, ACK, 10),
                at(SEQ + MAX_STEP),
                restored,
                None,
            ),
            (
                "beyond the window",
                seg(DATA, SEQ + window + 1, ACK, 10),
                OPEN,
                dropped,
                CHALLENGE,
            ),
            (
                "behind the window",
                seg(DATA, SEQ.wrapping_sub(window + 1), ACK, 10),
                OPEN,
                dropped,
                CHALLENGE,
            ),
            (
                "an older ACK",
                seg(DATA, SEQ, ACK - 1, 10),
                at(SEQ + 10),
                restored,
                None,
            ),
            (
                "the oldest ACK",
                seg(DATA, SEQ, OPEN.oldest_ack, 10),
                at(SEQ + 10),
                restored,
                None,
            ),
            (
                "a too old ACK",
                seg(DATA, SEQ, OPEN.oldest_ack.wrapping_sub(1), 10),
                OPEN,
                dropped,
                CHALLENGE,
            ),
            (
                "an ACK of what nobody sent",
                seg(DATA, SEQ, ACK + 1, 10),
                OPEN,
                dropped,
                CHALLENGE,
            ),
            (
                "data without ACK",
                seg(Flags::PSH, SEQ, ACK, 10),
                OPEN,
                dropped,
                None,
            ),
            (
                "an ACK",
                seg(Flags::ACK, SEQ, ACK, 0),
                OPEN,
                Outcome::RxAck,
                None,
            ),
            (
                "a keepalive probe",
                seg(Flags::ACK, SEQ - 1, ACK, 0),
                OPEN,
                Outcome::RxAck,
                reply(Sent::Ack, Flags::ACK, ACK, SEQ),
            ),
            (
                "what looks like a probe of a peer that lost a byte",
                seg(Flags::ACK, SEQ - 1, ACK + 1, 0),
                OPEN,
                dropped,
                None,
            ),
            (
                "a probe after the last datagram was lost",
                asking(seg(Flags::ACK, SEQ + 99, ACK, 0)),
                OPEN,
                Outcome::RxAck,
                reply(Sent::Ack, Flags::ACK, ACK, SEQ),
            ),
            (
                "an ACK that makes no sense",
                seg(Flags::ACK, SEQ + window + 1, ACK, 0),
                OPEN,
                dropped,
                None,
            ),
            (
                "a SYN",
                seg(Flags::SYN, IRS, 0, 0),
                OPEN,
                Outcome::RxSyn,
                CHALLENGE,
            ),
            (
                "a SYN with the next number",
                seg(Flags::SYN, SEQ, 0, 0),
                OPEN,
                Outcome::RxSyn,
                CHALLENGE,
            ),
            (
                "SYN-ACK again",
                seg(SYN_ACK, IRS, ISS + 1, 0),
                OPEN,
                Outcome::RxSyn,
                CHALLENGE,
            ),
            (
                "FIN",
                seg(FIN_ACK, SEQ, ACK, 0),
                Endpoint {
                    snd_nxt: ACK + 1,
                    ..over
                },
                Outcome::RxFin,
                reply(Sent::Fin, FIN_ACK, ACK, SEQ + 1),
            ),
            (
                "FIN ahead",
                seg(FIN_ACK, SEQ + 1, ACK, 0),
                OPEN,
                Outcome::RxDropFin,
                CHALLENGE,
            ),
            (
                "FIN that was counted already",
                seg(FIN_ACK, SEQ - 1, ACK, 0),
                Endpoint {
                    snd_nxt: ACK + 1,
                    rcv_nxt: SEQ,
                    ..over
                },
                Outcome::RxFin,
                reply(Sent::Fin, FIN_ACK, ACK, SEQ),
            ),
            (
                "FIN behind",
                seg(FIN_ACK, SEQ - 2, ACK, 0),
                OPEN,
                Outcome::RxDropFin,
                CHALLENGE,
            ),
            (
                "FIN far off",
                seg(FIN_ACK, SEQ ^ 1 << 31, ACK, 0),
                OPEN,
                dropped,
                CHALLENGE,
            ),
            (
                "FIN without ACK",
                seg(Flags::FIN, SEQ, 0, 0),
                OPEN,
                dropped,
                None,
            ),
            (
                "RST",
                seg(Flags::RST, SEQ, 0, 0),
                Endpoint {
                    state: State::Closed,
                    ..OPEN
                },
                Outcome::RxRst,
                None,
            ),
            (
                "RST ahead",
                seg(Flags::RST, SEQ + 1, 0, 0),
                OPEN,
                Outcome::RxDropReset,
                CHALLENGE,
            ),
            (
                "RST behind",
                seg(Flags::RST, SEQ - 1, 0, 0),
                OPEN,
                Outcome::RxDropReset,
                CHALLENGE,
            ),
            (
                "RST at the end of the window",
                seg(RST_ACK, SEQ + window, ACK, 0),
                OPEN,
                Outcome::RxDropReset,
                CHALLENGE,
            ),
            (
                "RST beyond the window",
                seg(RST_ACK, SEQ + window + 1, ACK, 0),
                OPEN,
                Outcome::RxDropReset,
                None,
            ),
        ],
    );
}

#[test]
fn fin_sent() {
    let challenge = reply(Sent::ChallengeAck, Flags::ACK, FIN_SENT.snd_nxt, SEQ);
    assert_received(
        FIN_SENT,
        &[
            (
                "the peer's FIN, in answer to ours",
                seg(FIN_ACK, SEQ, FIN_SENT.snd_nxt, 0),
                Endpoint {
                    rcv_nxt: SEQ + 1,
                    ..CLOSED
                },
                Outcome::RxFin,
                reply(Sent::Ack, Flags::ACK, FIN_SENT.snd_nxt, SEQ + 1),
            ),
            (
                "both FINs crossed",
                seg(FIN_ACK, SEQ, ACK, 0),
                Endpoint {
                    rcv_nxt: SEQ + 1,
                    ..CLOSED
                },
                Outcome::RxFin,
                reply(Sent::Ack, Flags::ACK, FIN_SENT.snd_nxt, SEQ + 1),
            ),
            (
                "data that was under way",
                seg(DATA, SEQ, ACK, 10),
                Endpoint {
                    rcv_nxt: SEQ + 10,
                    ..FIN_SENT
                },
                Outcome::RxRestored,
                None,
            ),
            (
                "FIN behind a lost datagram",
                seg(FIN_ACK, SEQ + 10, ACK, 0),
                FIN_SENT,
                Outcome::RxDropFin,
                challenge,
            ),
            (
                "RST",
                seg(Flags::RST, SEQ, 0, 0),
                CLOSED,
                Outcome::RxRst,
                None,
            ),
            (
                "a challenge: the peer misses ten bytes before the FIN",
                challenging(seg(Flags::ACK, SEQ, ACK - 10, 0)),
                FIN_SENT,
                Outcome::RxAck,
                reply(Sent::Fin, FIN_ACK, ACK - 10, SEQ),
            ),
            (
                "the same, and we miss seven: the FIN names what the peer takes",
                challenging(seg(Flags::ACK, SEQ + 7, ACK - 10, 0)),
                Endpoint {
                    rcv_nxt: SEQ + 7,
                    ..FIN_SENT
                },
                Outcome::RxAck,
                reply(Sent::Fin, FIN_ACK, ACK - 10, SEQ + 7),
            ),
            (
                "a probe that misses nothing but the FIN",
                asking(seg(Flags::ACK, SEQ - 1, ACK, 0)),
                FIN_SENT,
                Outcome::RxAck,
                reply(Sent::Fin, FIN_ACK, ACK, SEQ),
            ),
            (
                "a probe that misses nothing",
                asking(seg(Flags::ACK, SEQ - 1, FIN_SENT.snd_nxt, 0)),
                Endpoint {
                    snd_una: FIN_SENT.snd_nxt,
                    ..FIN_SENT
                },
                Outcome::RxAck,
                reply(Sent::Ack, Flags::ACK, FIN_SENT.snd_nxt, SEQ),
            ),
            (
                "an acknowledgement that left before the FIN came",
                seg(Flags::ACK, SEQ, ACK - 10, 0),
                FIN_SENT,
                Outcome::RxAck,
                None,
            ),
            (
                "SYN",
                seg(Flags::SYN, 7, 0, 0),
                FIN_SENT,
                Outcome::RxSyn,
                challenge,
            ),
        ],
    );
}

#[test]
fn closed() {
    assert_received(
        CLOSED,
        &[
            (
                "the last ACK of a clean end",
                seg(Flags::ACK, SEQ, CLOSED.snd_nxt, 0),
                CLOSED,
                Outcome::RxAck,
                None,
            ),
            (
                "the same after a loss",
                seg(Flags::ACK, SEQ + 1000, CLOSED.snd_nxt, 0),
                CLOSED,
                Outcome::RxAck,
                None,
            ),
            (
                "another ACK",
                seg(Flags::ACK, SEQ, CLOSED.snd_nxt - 1, 0),
                CLOSED,
                Outcome::RxDropNoFlow,
                rst(CLOSED.snd_nxt - 1),
            ),
            (
                "a probe",
                asking(seg(Flags::ACK, SEQ - 1, CLOSED.snd_nxt, 0)),
                CLOSED,
                Outcome::RxDropNoFlow,
                rst(CLOSED.snd_nxt),
            ),
            (
                "data",
                seg(DATA, SEQ, ACK, 10),
                CLOSED,
                Outcome::RxDropNoFlow,
                rst(ACK),
            ),
            (
                "SYN: as a listener, and nothing is forgotten",
                seg(Flags::SYN, 7, 0, 0),
                CLOSED,
                Outcome::RxSyn,
                reply(Sent::SynAck, SYN_ACK, ISS, 8),
            ),
            (
                "the ACK of that",
                seg(Flags::ACK, 8, ISS + 1, 0),
                made(ISS, 8),
                Outcome::RxAck,
                None,
            ),
            (
                "RST",
                seg(Flags::RST, SEQ, 0, 0),
                CLOSED,
                Outcome::RxDropNoFlow,
                None,
            ),
        ],
    );
}

/// With bytes under way: what the peer says of them moves the window of what it
/// may say.
#[test]
fn under_way() {
    let una = ACK - 300;
    let at = |snd_una, rcv_nxt| Endpoint {
        snd_una,
        rcv_nxt,
        ..OPEN
    };
    let restored = Outcome::RxRestored;
    assert_received(
        at(una, SEQ),
        &[
            (
                "the last byte sent",
                seg(DATA, SEQ, ACK, 10),
                at(ACK, SEQ + 10),
                restored,
                None,
            ),
            (
                "some of it",
                seg(DATA, SEQ, una + 1, 10),
                at(una + 1, SEQ + 10),
                restored,
                None,
            ),
            (
                "nothing new",
                seg(DATA, SEQ, una, 10),
                at(una, SEQ + 10),
                restored,
                None,
            ),
            (
                "overtaken",
                seg(DATA, SEQ, una - 1, 10),
                at(una, SEQ + 10),
                restored,
                None,
            ),
            (
                "without data",
                seg(Flags::ACK, SEQ, ACK, 0),
                at(ACK, SEQ),
                Outcome::RxAck,
                None,
            ),
        ],
    );
    // However many bytes are under way on a long and fast path.
    let much = Endpoint {
        snd_nxt: ACK.wrapping_add(MAX_WINDOW * 4),
        ..OPEN
    };
    assert_received(
        much,
        &[(
            "data that was sent before most of it",
            seg(DATA, SEQ, ACK, 10),
            Endpoint {
                rcv_nxt: SEQ + 10,
                ..much
            },
            restored,
            None,
        )],
    );
}

/// After a silence the acknowledgement number alone tells, and the sequence number is
/// where the peer goes on.
#[test]
fn after_a_silence() {
    let silent = Endpoint {
        reach: ANYWHERE,
        ..OPEN
    };
    let far = SEQ.wrapping_add(MAX_WINDOW * 7);
    let at = |rcv_nxt| Endpoint { rcv_nxt, ..silent };
    assert_received(
        silent,
        &[
            (
                "data from far ahead",
                seg(DATA, far, ACK, 10),
                at(far.wrapping_add(10)),
                Outcome::RxRestored,
                None,
            ),
            (
                "but not if it acknowledges what nobody sent",
                seg(DATA, far, ACK + 1, 10),
                silent,
                Outcome::RxDropSequence,
                CHALLENGE,
            ),
            (
                "a probe from far ahead",
                asking(seg(Flags::ACK, far, ACK, 0)),
                silent,
                Outcome::RxAck,
                reply(Sent::Ack, Flags::ACK, ACK, SEQ),
            ),
            (
                "a reset is as exact as ever",
                seg(Flags::RST, far, 0, 0),
                silent,
                Outcome::RxDropReset,
                None,
            ),
        ],
    );
}

/// What a forged segment moved, the peer's own numbers move back. But what was lost is not
/// acknowledged, as firewalls that have not seen it would drop that.
#[test]
fn numbers_that_were_moved_heal() {
    let at = |rcv_nxt: u32| Endpoint { rcv_nxt, ..OPEN };
    for by in [2, 1000, MAX_STEP, MAX_WINDOW - 1] {
        let (ahead, behind) = (SEQ.wrapping_add(by), SEQ.wrapping_sub(by));
        let answer = |number| reply(Sent::Ack, Flags::ACK, ACK, number);
        let probe = asking(seg(Flags::ACK, SEQ - 1, ACK, 0));
        let challenge = challenging(seg(Flags::ACK, SEQ, ACK, 0));
        let refusal = challenging(seg(Flags::ACK, SEQ, ACK - 9, 0));
        let old = seg(Flags::ACK, SEQ, ACK - 9, 0);
        for (number, rows) in [
            (
                ahead,
                [
                    ("a probe", probe, OPEN, Outcome::RxAck, answer(SEQ)),
                    ("a challenge", challenge, OPEN, Outcome::RxAck, None),
                    ("a refusal", refusal, OPEN, Outcome::RxAck, None),
                    ("an old one", old, at(ahead), Outcome::RxAck, None),
                ],
            ),
            (
                behind,
                [
                    ("a probe", probe, at(behind), Outcome::RxAck, answer(behind)),
                    ("a challenge", challenge, at(behind), Outcome::RxAck, None),
                    ("a refusal", refusal, at(behind), Outcome::RxAck, None),
                    ("an old one", old, at(behind), Outcome::RxAck, None),
                ],
            ),
        ] {
            assert_received(at(number), &rows);
        }
    }
}

#[test]
fn hidden_from_who_does_not_know_the_secret() {
    const NOTHING: Endpoint = Endpoint {
        state: State::Closed,
        iss: ISS,
        snd_una: ISS,
        snd_nxt: ISS,
        rcv_nxt: 0,
        oldest_ack: ISS,
        reach: MAX_WINDOW,
    };
    let unproven = Outcome::RxDropUnproven;
    let turned_away = |name, flags, endpoint| -> Row {
        (
            name,
            seg(flags, IRS + 1, ISS + 7, 0),
            endpoint,
            unproven,
            None,
        )
    };
    assert_rows(
        |segment| listen(segment, ISS, &Hidden),
        &[
            (
                "a SYN that is a proof",
                seg(Flags::SYN, IRS, 0, 0),
                NOTHING,
                Outcome::RxSyn,
                reply(Sent::SynAck, SYN_ACK, ISS, IRS + 1),
            ),
            (
                "the end of that handshake",
                seg(Flags::ACK, IRS + 1, ISS + 1, 0),
                made(ISS, IRS + 1),
                Outcome::RxAck,
                None,
            ),
            turned_away("a SYN that is none", Flags::SYN, NOTHING),
            turned_away("an answer to nobody", SYN_ACK, NOTHING),
            turned_away("a guess", Flags::ACK, NOTHING),
            turned_away("data of another connection", DATA, NOTHING),
            turned_away("FIN", Flags::FIN, NOTHING),
            turned_away("no flags", Flags(0), NOTHING),
            turned_away("all flags", Flags(0x3f), NOTHING),
            turned_away("a reset", Flags::RST, NOTHING),
        ],
    );
    let remember = |reaction: Reaction| match reaction.answers_without_flow() {
        true => reaction.with_flow(),
        false => reaction,
    };
    assert_rows(
        |segment| remember(listen(segment, ISS, &Hidden)),
        &[
            (
                "a SYN whose flow a TCP connection would answer is remembered",
                seg(Flags::SYN, IRS, 0, 0),
                SYN_RECEIVED,
                Outcome::RxSyn,
                reply(Sent::SynAck, SYN_ACK, ISS, IRS + 1),
            ),
            turned_away("only if it is a proof", Flags::SYN, NOTHING),
        ],
    );
    for endpoint in [SYN_SENT, SYN_RECEIVED] {
        assert_rows(
            |segment| receive(endpoint, segment, &Hidden),
            &[
                turned_away(
                    "a SYN that crosses ours and is no proof",
                    Flags::SYN,
                    endpoint,
                ),
                (
                    "one that is",
                    seg(Flags::SYN, IRS, 0, 0),
                    SYN_RECEIVED,
                    Outcome::RxSyn,
                    reply(Sent::SynAck, SYN_ACK, ISS, IRS + 1),
                ),
                (
                    "an answer to our SYN need not be",
                    seg(SYN_ACK, 9, ISS + 1, 0),
                    Endpoint {
                        rcv_nxt: 10,
                        state: State::Established,
                        ..endpoint
                    },
                    Outcome::RxSynAck,
                    reply(Sent::Ack, Flags::ACK, ISS + 1, 10),
                ),
            ],
        );
    }
    assert_rows(
        |segment| receive(CLOSED, segment, &Hidden),
        &[turned_away("a SYN after the end", Flags::SYN, CLOSED)],
    );
}

proptest! {
    /// A host with a secret answers no segment of an unknown sender, and treats its open flows
    /// as any host does.
    #[test]
    fn an_unknown_sender_gets_no_answer_of_a_hidden_port(flags in 0u8..0x40, sequence: u32, acknowledgment: u32, len in 0..1500u32) {
        prop_assume!(sequence != IRS && !gave(acknowledgment.wrapping_sub(1)));
        let segment = seg(Flags(flags), sequence, acknowledgment, len);
        let reaction = listen(&segment, ISS, &Hidden);
        prop_assert_eq!((reaction.outcome, reaction.reply), (Outcome::RxDropUnproven, Reply::NONE));
        for endpoint in [OPEN, FIN_SENT] {
            prop_assert_eq!(receive(endpoint, &segment, &Hidden), receive(endpoint, &segment, &gave));
        }
    }

    /// The one test of the fast path is the state machine's own decision.
    #[test]
    fn the_fast_path_takes_what_the_state_machine_takes(
        flags in 0u8..0x40, sequence in -3..=3i32, acknowledgment in -3..=3i32, len in 0..3u32,
        far in prop::sample::select(vec![0, MAX_WINDOW - 1, 0u32.wrapping_sub(MAX_WINDOW)]),
    ) {
        let near = |right: u32, offset: i32| right.wrapping_add(far).wrapping_add(offset.cast_unsigned());
        for endpoint in [SYN_SENT, SYN_RECEIVED, OPEN, FIN_SENT, CLOSED] {
            let segment = seg(Flags(flags), near(endpoint.rcv_nxt, sequence), near(endpoint.snd_nxt, acknowledgment), len);
            let reaction = receive(endpoint, &segment, &|_| false);
            let taken = endpoint.state == State::Established && reaction.outcome == Outcome::RxRestored;
            prop_assert_eq!(endpoint.takes_datagram(&segment), taken, "{:?} {:?}", endpoint, segment);
            if taken {
                prop_assert_eq!(reaction.reply, Reply::NONE);
            }
        }
    }

    /// Of a flow with nothing under way, an attacker who does not know the exact
    /// acknowledgement number moves nothing.
    #[test]
    fn no_guess_moves_a_number(flags in 0u8..0x40, far in -(1 << 26)..(1i32 << 26), acknowledgment: u32, len in 0..1500u32) {
        prop_assume!(acknowledgment != ACK);
        let segment = seg(Flags(flags & !Flags::RST.0), SEQ.wrapping_add(far.cast_unsigned()), acknowledgment, len);
        prop_assert_eq!(receive(OPEN, &segment, &gave).endpoint, OPEN);
    }

    /// An attacker who does not know the numbers cannot end a flow; nor
    /// make it answer with more than one segment without data.
    #[test]
    fn no_guess_ends_a_flow(flags in 0u8..0x40, sequence: u32, acknowledgment: u32, len in 0..1500u32) {
        for endpoint in [OPEN, FIN_SENT] {
            prop_assume!(sequence != endpoint.rcv_nxt && sequence.wrapping_add(len) != endpoint.rcv_nxt);
            let segment = seg(Flags(flags), sequence, acknowledgment, len);
            let reaction = receive(endpoint, &segment, &gave);
            prop_assert_eq!(reaction.endpoint.state, endpoint.state);
        }
    }
}

/// Sequence of control segments and datagrams on a wire, for people.
fn names(wire: &[Packet]) -> Vec<Flags> {
    wire.iter().map(|packet| packet.segment.flags).collect()
}

/// Takes packets off a wire and plays them to the other end; returns the answers.
fn exchange(link: &mut Link, to: usize) -> Vec<Flags> {
    for _ in 0..link.wires[to].len() {
        link.deliver(to, 0);
    }
    names(&link.wires[1 - to])
}

fn established_link() -> Link {
    let mut link = Link::new([1, 2]);
    link.send(0, 1, 100);
    link.send(1, 2, 100);
    link.settle();
    assert_consistent(&link);
    link
}

#[track_caller]
fn assert_consistent(link: &Link) {
    assert_eq!(link.states(), [State::Established; 2]);
    let [a, b] = link
        .hosts
        .each_ref()
        .map(|host: &Host| host.flow.expect("a flow"));
    assert_eq!((a.rcv_nxt, b.rcv_nxt), (b.snd_nxt, a.snd_nxt));
}

#[test]
fn an_open_takes_three_segments_and_no_state_before_the_third() {
    let mut link = Link::new([1, 2]);
    link.send(0, 1, 100);
    assert_eq!(exchange(&mut link, 1), [SYN_ACK]);
    assert!(link.hosts[1].flow.is_none(), "a SYN is worth no memory");
    assert_eq!(exchange(&mut link, 0), [Flags::ACK, DATA]);
    assert_eq!(exchange(&mut link, 1), []);
    assert_consistent(&link);
    assert_eq!(link.hosts[1].delivered, [1]);
}

#[test]
fn an_open_survives_the_loss_of_any_one_segment() {
    for lost in 0..4 {
        let mut link = Link::new([1, 2]);
        link.send(0, 1, 100);
        let mut seen = 0;
        for _ in 0..3 {
            let sent = link.hosts[0].retransmit();
            link.emit(0, sent.filter(|_| seen > 0));
            while let Some(to) = (0..2).find(|to| !link.wires[*to].is_empty()) {
                if seen == lost {
                    link.wires[to].remove(0);
                } else {
                    link.deliver(to, 0);
                }
                seen += 1;
            }
        }
        link.send(0, 2, 100);
        link.send(1, 3, 100);
        link.settle();
        assert_eq!(
            link.states(),
            [State::Established; 2],
            "segment {lost} lost"
        );
        assert_eq!(
            link.hosts[1].delivered.last(),
            Some(&2),
            "segment {lost} lost"
        );
        assert_eq!(
            link.hosts[0].delivered.last(),
            Some(&3),
            "segment {lost} lost"
        );
    }
}

#[test]
fn both_open_at_once() {
    let mut link = Link::new([1, 2]);
    link.send(0, 1, 100);
    link.send(1, 2, 100);
    let crossing = link.wires[1].clone();
    assert_eq!(exchange(&mut link, 0), [Flags::SYN, SYN_ACK]);
    assert_eq!(names(&crossing), [Flags::SYN]);
    assert_eq!(exchange(&mut link, 1), [SYN_ACK, Flags::ACK, DATA]);
    link.settle();
    assert_consistent(&link);
    assert_eq!(link.hosts[0].delivered, [2]);
    assert_eq!(link.hosts[1].delivered, [1]);
}

/// One opens, and before its SYN-ACK is acknowledged the other opens, too.
#[test]
fn an_open_meets_the_handshake_of_the_other() {
    let mut link = Link::new([1, 2]);
    link.send(0, 1, 100);
    exchange(&mut link, 1);
    link.send(1, 2, 100);
    link.settle();
    assert_consistent(&link);
    assert_eq!(link.hosts[0].delivered, [2]);
    assert_eq!(link.hosts[1].delivered, [1]);
}

/// Challenge ACK, reset, new handshake (RFC 9293 section 3.5.1, figure 9).
#[test]
fn a_host_that_lost_its_flow_opens_it_anew() {
    for new_secret in [2, 3] {
        let mut link = established_link();
        link.hosts[1].flow = None;
        link.hosts[1].secret = Secret::new([new_secret, 2]);
        link.send(1, 3, 100);
        assert_eq!(names(&link.wires[0]), [Flags::SYN]);
        assert_eq!(exchange(&mut link, 0), [Flags::ACK]);
        assert_eq!(exchange(&mut link, 1), [Flags::RST]);
        assert_eq!(exchange(&mut link, 0), []);
        assert_eq!(link.states(), [State::Closed, State::SynSent]);
        let again = link.hosts[1].retransmit();
        link.emit(1, again);
        link.settle();
        assert_consistent(&link);
        assert_eq!(link.hosts[0].delivered, [2, 3]);
    }
}

/// The other way round: data to a host that has no flow is answered with the
/// reset that closes it, and the next datagram opens it anew.
#[test]
fn data_to_a_host_that_lost_the_flow_closes_it() {
    let mut link = established_link();
    link.hosts[1].flow = None;
    link.send(0, 3, 100);
    assert_eq!(exchange(&mut link, 1), [Flags::RST]);
    assert_eq!(exchange(&mut link, 0), []);
    assert_eq!(link.states(), [State::Closed; 2]);
    link.send(0, 4, 100);
    link.settle();
    assert_consistent(&link);
    assert_eq!(link.hosts[1].delivered, [1, 4]);
}

#[test]
fn a_clean_end_needs_no_reset() {
    let mut link = established_link();
    let fin = link.hosts[0].finish();
    link.emit(0, fin);
    assert_eq!(exchange(&mut link, 1), [FIN_ACK]);
    assert_eq!(exchange(&mut link, 0), [Flags::ACK]);
    assert_eq!(exchange(&mut link, 1), []);
    assert_eq!(link.states(), [State::Closed; 2]);
    assert!(
        link.hosts[0].finish().is_none(),
        "there is nothing to end any more"
    );
}

#[test]
fn two_ends_that_finish_at_once_need_no_reset() {
    let mut link = established_link();
    for host in 0..2 {
        let fin = link.hosts[host].finish();
        link.emit(host, fin);
    }
    assert_eq!(exchange(&mut link, 1), [FIN_ACK, Flags::ACK]);
    assert_eq!(exchange(&mut link, 0), [Flags::ACK]);
    assert_eq!(exchange(&mut link, 1), []);
    assert_eq!(link.states(), [State::Closed; 2]);
}

/// After a clean end, either side may open the flow anew; in this epoch, with the same
/// numbers.
#[test]
fn a_finished_flow_opens_again() {
    for opener in 0..2 {
        for wait in [0, 1 << 40] {
            let mut link = established_link();
            let fin = link.hosts[0].finish();
            link.emit(0, fin);
            link.settle();
            for host in &mut link.hosts {
                host.now += wait;
                host.delivered.clear();
            }
            link.send(opener, 7, 100);
            link.settle();
            assert_consistent(&link);
            assert_eq!(link.hosts[1 - opener].delivered, [7]);
        }
    }
}

/// A SYN with a false sender, while both ends open and the peer is done: the
/// flow has the numbers of the two, not those of the third.
#[test]
fn a_spoofed_syn_does_not_spoil_an_open() {
    let mut link = Link::new([1, 2]);
    link.send(0, 1, 100);
    link.send(1, 2, 100);
    exchange(&mut link, 0);
    exchange(&mut link, 1);
    assert_eq!(
        link.states(),
        [State::SynReceived, State::Established],
        "the case is made"
    );
    // Of what the peer sent meanwhile, only its datagram arrives.
    link.wires[0].retain(|packet| packet.datagram.is_some());
    let spoofed = Packet {
        segment: seg(Flags::SYN, 0x1234_5678, 0, 0),
        datagram: None,
    };
    let _answer_to_nobody = link.hosts[0].take(&spoofed);
    link.settle();
    assert_consistent(&link);
    assert_eq!(link.hosts[0].delivered, [2]);
    assert_eq!(link.hosts[1].delivered, [1]);
}

/// The peer has no listener: a forged SYN makes it answer
/// with a reset, which must not end the open.
#[test]
fn a_spoofed_syn_does_not_end_an_open() {
    let mut link = Link::new([1, 2]);
    link.send(0, 1, 100);
    link.wires[1].clear();
    let spoofed = Packet {
        segment: seg(Flags::SYN, 0x1234_5678, 0, 0),
        datagram: None,
    };
    let answer = link.hosts[0].take(&spoofed);
    link.emit(0, answer);
    assert_eq!(exchange(&mut link, 1), [Flags::RST]);
    assert_eq!(exchange(&mut link, 0), []);
    assert_eq!(link.hosts[0].state(), State::SynSent);
    let again = link.hosts[0].retransmit();
    link.emit(0, again);
    link.settle();
    assert_consistent(&link);
    assert_eq!(link.hosts[1].delivered, [1]);
}

/// More is lost than the window holds: after a silence the receiver goes on where the
/// sender is.
#[test]
fn an_outage_longer_than_the_window_is_survived() {
    for bytes in [
        MAX_WINDOW - 200,
        MAX_WINDOW + 200,
        1 << 30,
        1 << 31,
        3 << 30,
    ] {
        let mut link = established_link();
        let flow = link.hosts[0].flow.as_mut().expect("established");
        flow.snd_nxt = flow.snd_nxt.wrapping_add(bytes);
        for number in 10..16 {
            for host in 0..2 {
                link.send(host, number, 100);
                link.settle();
            }
            for host in &mut link.hosts {
                host.silent = true;
            }
            for (host, asked) in [(0, false), (1, false), (0, true), (1, true)] {
                let sent = link.hosts[host].doubt(asked);
                link.emit(host, sent);
                link.settle();
            }
            for host in 0..2 {
                let again = link.hosts[host].retransmit();
                link.emit(host, again);
                link.settle();
            }
        }
        for host in &link.hosts {
            assert_eq!(host.delivered.last(), Some(&15), "{bytes} bytes lost");
        }
        // One step for each segment.
        for number in 16..16 + MAX_WINDOW / MAX_STEP {
            for host in 0..2 {
                link.send(host, number, 100);
                link.settle();
            }
        }
        assert_consistent(&link);
    }
}

/// A keepalive probe is answered once, whichever end is a byte ahead.
#[test]
fn a_probe_is_answered_once() {
    for ahead in [[0, 0], [1, 0], [0, 1], [1, 1]] {
        let mut link = established_link();
        for (host, bytes) in link.hosts.iter_mut().zip(ahead) {
            let flow = host.flow.as_mut().expect("established");
            flow.rcv_nxt = flow.rcv_nxt.wrapping_add(bytes);
        }
        let probe = link.hosts[0].probe();
        link.emit(0, probe);
        assert!(link.settle() <= 2, "{ahead:?}");
        if ahead == [0, 0] {
            let probe = link.hosts[0].probe();
            link.emit(0, probe);
            assert_eq!(exchange(&mut link, 1), [Flags::ACK]);
        }
    }
}

//! Egress: the first datagrams of a flow wait with the daemon, and a SYN leaves.

use xdptun_common::report::frame::LARGE_FRAME;
use xdptun_common::tunnel::event::SMALL_FRAME;
use xdptun_common::tunnel::isn::far_from;
use xdptun_common::tunnel::outcome::{Outcome, Sent};
use xdptun_common::tunnel::state::{Flow, MOST_SYNS, RESTARTED, State};
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::{
    Case, Family, Moment, Packet, Path, Program, Row, Skb, check, flags, row,
};

use crate::effects::{begun, in_state};
use crate::{datapath, paths};

const MS: u64 = 1_000_000;

/// The datagram is queued, and a SYN of a new flow leaves in its place.
pub fn opens(at: Moment, path: Path, datagram: &Packet) -> Case {
    let mut opened = path.opening(at);
    opened.kept_fields = opened.kept_fields.seen(datagram.fields());
    opened.label = datagram.fields().label;
    let unopened = Flow { syns: 0, ..opened };
    Case::egress(datagram)
        .passes_as(path.control_of(at, &unopened, flags::SYN, opened.iss, 0))
        .counts(Outcome::TxOpened)
        .sends(Sent::Syn)
        .queues(path.key(), datagram)
        .adds(path.key(), opened)
}

/// The datagram is queued and nothing leaves.
pub fn waits(path: Path, flow: Flow, datagram: &Packet) -> Case {
    Case::egress(datagram)
        .flow(path.key(), flow)
        .swallows()
        .counts(Outcome::TxQueued)
        .queues(path.key(), datagram)
}

/// The first datagram of a flow, of each length.
pub fn first_datagrams() -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        // Around the length of what is pulled out and put back, and of the
        // small and the large record.
        let small = SMALL_FRAME - 14 - path.family().header_len() - 8;
        let lengths = (0..=24).chain([44, 45, 100, 1400, 1472, small, small + 1, 3000]);
        for len in lengths {
            rows.push(row(format!("{path:?}, {len} bytes"), move |at| {
                opens(at, path, &path.outbound().payload(payload(len)))
            }));
        }
        rows.push(row(format!("{path:?}, other IP fields"), move |at| {
            let datagram = path.outbound().payload(payload(30));
            let datagram = datagram.tos(0xff).ttl(3).id(9).without_df();
            opens(at, path, &datagram.without_checksum())
        }));
        rows.push(row(format!("{path:?}, padded"), move |at| {
            let datagram = path.outbound().payload(payload(1));
            opens(at, path, &datagram).meets(datagram.padded_to(100))
        }));
    }
    const { assert!(LARGE_FRAME > SMALL_FRAME) };
    rows
}

#[test]
fn the_first_datagram_opens_the_flow() {
    check(&mut datapath(), first_datagrams());
}

#[test]
fn the_next_datagrams_wait_for_the_time_of_the_next_syn() {
    let mut rows: Vec<Row> = Vec::new();
    for (state, syns, timeout_ms) in [
        (State::SynSent, 0, 50),
        (State::SynSent, 1, 500),
        (State::SynSent, 2, 1000),
        (State::SynSent, 3, 1000),
        // As many as are counted: without a daemon they go on for days.
        (State::SynSent, MOST_SYNS - 1, 1000),
        (State::SynSent, MOST_SYNS, 1000),
        (State::SynSent, RESTARTED | MOST_SYNS, 1000),
        (State::SynReceived, 1, 500),
    ] {
        for family in Family::ALL {
            let path = Path::client(family);
            let datagram = path.outbound().payload(payload(77));
            let waits = move |flow| waits(path, flow, &datagram);
            let flow = move |at: Moment, before: u64| {
                let mut flow = in_state(path.opening(at), state);
                flow.opened_at = at.before_ms(9000);
                flow.syns = syns;
                flow.syn_at = at.before(before);
                flow
            };
            let name = format!("{family:?} {state:?} after {syns} SYNs");
            rows.push(row(format!("{name}, at once"), {
                let waits = waits.clone();
                move |at| waits(flow(at, 0))
            }));
            // A claim makes the time odd; and a CPU that is a tick behind may
            // meet the claim of one that is not.
            for (ahead, ns) in [("the same tick", 1), ("the tick before", 4 * MS)] {
                let waits = waits.clone();
                rows.push(row(format!("{name}, in {ahead}"), move |at| {
                    let mut flow = flow(at, 0);
                    flow.syn_at += ns;
                    waits(flow)
                }));
            }
            rows.push(row(format!("{name}, not yet"), move |at| {
                waits(flow(at, timeout_ms * MS - 1))
            }));
            rows.push(row(format!("{name}, due"), move |at| {
                let datagram = path.outbound().payload(payload(200));
                let flow = flow(at, timeout_ms * MS);
                opens(at, path, &datagram)
                    .passes_as(path.control_of(at, &flow, flags::SYN, flow.iss, 0))
                    .flow(path.key(), flow)
                    .changes(path.key(), |flow| {
                        flow.syns += u16::from(flow.syns & !RESTARTED < MOST_SYNS);
                        flow.syn_at = at.ns();
                    })
            }));
        }
    }
    check(&mut datapath(), rows);
}

/// Several flows, because whether a claim is met in the same tick depends on
/// the clock.
#[test]
fn a_burst_opens_with_one_syn() {
    let mut datapath = datapath();
    for port in 1..=50 {
        datapath.reset();
        let path = Path::new(Family::V4, 8000, port);
        let datagram = path.outbound().payload(payload(100)).bytes();
        for _ in 0..20 {
            let _ = datapath.run(Program::Egress, &datagram, Skb::default());
        }
        let counted = datapath.counted();
        assert_eq!(
            counted.get(Sent::Syn.name()),
            Some(&1),
            "flow {port}: {counted:?}"
        );
        assert_eq!(datapath.reported().len(), 20);
    }
}

#[test]
fn a_syn_is_repeated_with_the_same_number() {
    let rows = Family::ALL.map(|family| {
        row(format!("{family:?}"), move |at| {
            let path = Path::client(family);
            // A number of an earlier epoch, which must be kept.
            let iss = at.earlier_isn(&path.key(), 1);
            let mut flow = path.opening(at);
            flow.iss = iss;
            flow.snd_nxt = iss.wrapping_add(1);
            flow.syn_at = at.before_ms(700);
            opens(at, path, &path.outbound().payload(payload(20)))
                .flow(path.key(), flow)
                .passes_as(path.control_of(at, &flow, flags::SYN, iss, 0))
                .changes(path.key(), |flow| {
                    flow.syns = 2;
                    flow.syn_at = at.ns();
                })
        })
    });
    check(&mut datapath(), rows);
}

/// The same into the entry of a closed flow, with a number far from the old ones.
pub fn reopens(at: Moment, path: Path, datagram: &Packet, closed: Flow) -> Case {
    let iss = far_from(closed.snd_nxt, at.isn(&path.key()));
    let mut reopened = Flow {
        // Means nothing before the flow is open.
        acked: closed.acked,
        sent_at: closed.sent_at,
        received_at: closed.received_at,
        unanswered_at: closed.unanswered_at,
        data_at: closed.data_at,
        tx_packets: closed.tx_packets,
        tx_bytes: closed.tx_bytes,
        rx_packets: closed.rx_packets,
        rx_bytes: closed.rx_bytes,
        kept_fields: closed.kept_fields.seen(datagram.fields()),
        label: datagram.fields().label,
        ..path.opening(at)
    };
    begun(&mut reopened, at, iss);
    let unopened = Flow {
        syns: 0,
        ..reopened
    };
    opens(at, path, datagram)
        .passes_as(path.control_of(at, &unopened, flags::SYN, iss, 0))
        .flow(path.key(), closed)
        .changes(path.key(), |flow| *flow = reopened)
}

#[test]
fn a_closed_flow_opens_again() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        for len in [0, 32, 1400] {
            rows.push(row(format!("{path:?}, {len} bytes"), move |at| {
                let mut closed = in_state(path.established(at), State::Closed);
                closed.link = [0x55; 14];
                // A SYN a moment ago does not hold up a new flow.
                closed.syn_at = at.ns();
                reopens(at, path, &path.outbound().payload(payload(len)), closed)
            }));
        }
    }
    // A flow that did not last is not opened again at once.
    for (name, age, ahead) in [("in the same tick", 0, 1), ("a moment ago", 399 * MS, 0)] {
        rows.push(row(format!("opened {name}"), move |at| {
            let path = Path::client(Family::V4);
            let mut closed = in_state(path.established(at), State::Closed);
            closed.opened_at = at.before(age);
            let iss = far_from(closed.snd_nxt, at.isn(&path.key()));
            waits(path, closed, &path.outbound().payload(payload(5))).changes(path.key(), |flow| {
                flow.state = State::SynSent as u32;
                begun(flow, at, iss);
                flow.rcv_nxt = 0;
                (flow.syns, flow.syn_at) = (1, flow.opened_at);
                // Two openings of one flow must differ in their time.
                (flow.opened_at, flow.established_at) = (at.ns() + ahead, 0);
            })
        }));
    }
    rows.push(row("in a full table", |at| {
        let path = Path::client(Family::V4);
        let mut others = crate::full_table(at);
        others.pop_first();
        let closed = in_state(path.established(at), State::Closed);
        let case = reopens(at, path, &path.outbound().payload(payload(9)), closed);
        others
            .into_iter()
            .fold(case, |case, (key, flow)| case.flow(key, flow))
    }));
    check(&mut datapath(), rows);
}

/// Without a reader of the events the ring fills. Then datagrams are lost and counted,
/// but SYNs still leave.
#[test]
fn without_a_daemon_syns_go_on() {
    let mut datapath = datapath();
    datapath.reset();
    let path = Path::client(Family::V4);
    let datagram = path.outbound().payload(payload(100)).bytes();
    let mut queued = 0;
    let counted = loop {
        // A SYN has just left, so none is due.
        let mut flow = path.opening(Moment::now());
        flow.syn_at &= !1;
        datapath.set_flows([(&path.key(), &flow)]);
        let ran = datapath.run(Program::Egress, &datagram, Skb::default());
        let counted = datapath.counted();
        if counted.contains_key(Outcome::TxLost.name()) {
            assert_eq!(ran.verdict, 2, "a lost datagram is dropped");
            break counted;
        }
        assert_eq!(counted.len(), 1);
        assert_eq!(counted[Outcome::TxQueued.name()], 1);
        queued += 1;
        assert!(queued < 10_000, "the ring never fills");
    };
    assert_eq!(counted.len(), 1);
    assert_eq!(counted[Outcome::TxLost.name()], 1);

    datapath.set_flows([]);
    let ran = datapath.run(Program::Egress, &datagram, Skb::default());
    assert_eq!(ran.verdict, u32::MAX, "the SYN leaves");
    let counted = datapath.counted();
    assert_eq!(counted.len(), 2, "{counted:?}");
    assert_eq!(counted[Outcome::TxOpenedLost.name()], 1);
    assert_eq!(counted[Sent::Syn.name()], 1);

    assert_eq!(datapath.reported().len(), queued);
}

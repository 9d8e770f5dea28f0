//! Flows that wait for their first answer have a share of the table.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use aya::TestRun as _;
use aya::programs::{SchedClassifier, TestRunOptions};
use xdptun_common::address::address_bytes;
use xdptun_common::tunnel::event::Kind;
use xdptun_common::tunnel::outcome::Outcome;
use xdptun_common::tunnel::share::{Tally, cost, kept, network, share, share_of_network};
use xdptun_common::tunnel::state::{Opener, State};
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::{
    Case, Datapath, Family, Moment, Path, Program, Row, Skb, check, flags, row,
};

use crate::effects::in_state;
use crate::handshake::{accepts, completed};
use crate::opening::opens;
use crate::{datapath, paths};

/// The table size that the programs are told; the table of the tests is smaller.
const MAX: u32 = 65_536;

/// How long it takes to earn a share back, in nanoseconds.
const ALL: u64 = share_of_network(MAX) as u64 * cost(MAX);

/// So many flows of peers and of this host were made, and none answered.
fn opened(peer: u32, host: u32) -> Tally {
    Tally {
        opened: [peer.into(), host.into()],
        answered: [0, 0],
    }
}

/// So many were made, and all were answered.
fn answered(peer: u32, host: u32) -> Tally {
    Tally {
        answered: [peer.into(), host.into()],
        ..opened(peer, host)
    }
}

/// The peer ends a handshake that it began.
fn completing(at: Moment, path: Path) -> Case {
    let cookie = at.isn(&path.key()).wrapping_add(1);
    Case::ingress(path.inbound().segment(flags::ACK, 1000, cookie))
}

fn completes(at: Moment, path: Path) -> Case {
    completing(at, path)
        .drops(Outcome::RxAck)
        .reports(Kind::Established, path.key())
        .adds(path.key(), completed(at, path, at.isn(&path.key()), 1000))
}

#[test]
fn peers_have_a_share() {
    let (share, most) = (share(MAX), MAX - kept(MAX));
    let mut rows: Vec<Row> = Vec::new();
    for path in Family::ALL.map(Path::server) {
        for (name, before) in [
            ("the last of the share", opened(share - 1, 0)),
            ("answered flows take none", answered(most - 1, 0)),
            ("nor does the host's", opened(share - 1, most - share)),
        ] {
            rows.push(row(format!("{path:?}: {name}"), move |at| {
                completes(at, path).after(before)
            }));
        }
        for (name, before, outcome) in [
            ("too many wait", opened(share, 0), Outcome::RxDropShare),
            (
                "the rest is kept",
                answered(most, 0),
                Outcome::RxDropTableFull,
            ),
            (
                "full of this host's flows",
                opened(0, most),
                Outcome::RxDropTableFull,
            ),
        ] {
            rows.push(row(format!("{path:?}: {name}"), move |at| {
                completing(at, path).drops(outcome).after(before)
            }));
            // Flows in the table go on.
            rows.push(row(format!("{path:?}: {name}, it answers"), move |at| {
                accepts(at, path).after(before)
            }));
        }
    }
    check(&mut datapath(), rows);
}

#[test]
fn this_host_has_one_too() {
    let (share, most) = (share(MAX), MAX - kept(MAX));
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        let datagram = || path.outbound().payload(payload(20));
        // Test runs have a socket of root's.
        for (name, before) in [
            ("the last of the share", opened(0, 2 * share - 1)),
            ("strangers leave it alone", opened(most, 0)),
        ] {
            let datagram = datagram();
            rows.push(row(format!("{path:?}: {name}"), move |at| {
                opens(at, path, &datagram).after(before)
            }));
        }
        let datagram = datagram();
        rows.push(row(format!("{path:?}: too many wait"), move |_| {
            Case::egress(&datagram)
                .drops(Outcome::TxDropOpening)
                .after(opened(0, 2 * share))
        }));
    }
    check(&mut datapath(), rows);
}

#[test]
fn one_network_has_a_part_of_it() {
    let mut rows: Vec<Row> = Vec::new();
    for path in Family::ALL.map(Path::server) {
        let own = network(address_bytes(path.remote.ip()));
        let other = network(address_bytes(path.family().stranger()));
        assert_ne!(own, other);
        let spent = move |at: Moment| at.ns() + ALL - cost(MAX) + 1;
        rows.push(row(format!("{path:?}: none left"), move |at| {
            completing(at, path)
                .drops(Outcome::RxDropShare)
                .charged(own, spent(at))
        }));
        rows.push(row(format!("{path:?}: one left"), move |at| {
            completes(at, path).charged(own, spent(at) - 1)
        }));
        rows.push(row(format!("{path:?}: of another network"), move |at| {
            completes(at, path).charged(other, spent(at))
        }));
    }
    check(&mut datapath(), rows);
}

/// Runs a program on a packet that is made at the moment.
fn run(datapath: &mut Datapath, case: impl Fn(Moment) -> (Program, Vec<u8>)) {
    let (program, packet) = case(Moment::now());
    datapath.run(program, &packet, Skb::default());
}

/// A whole conversation: the network is charged for the handshake until the first answer,
/// and an address next to it pays from the same share.
#[test]
fn an_answer_gives_the_share_back() {
    let mut datapath = datapath();
    for family in Family::ALL {
        datapath.reset();
        let path = Path::server(family);
        let network = network(address_bytes(path.remote.ip()));
        let complete = move |at: Moment| {
            let cookie = at.isn(&path.key()).wrapping_add(1);
            let segment = path.inbound().segment(flags::ACK, 1000, cookie);
            (Program::Ingress, segment.bytes())
        };
        let answer = move |_| {
            let datagram = path.outbound().payload(payload(50));
            (Program::Egress, datagram.bytes())
        };
        assert_eq!(datapath.earned_at(network), None, "{family:?}");
        run(&mut datapath, complete);
        let charged = datapath.earned_at(network).expect("it is charged");
        assert!(charged > Moment::now().ns(), "{family:?}");
        assert_eq!(datapath.opened(), opened(1, 0), "{family:?}");
        for _ in 0..3 {
            run(&mut datapath, answer);
            assert_eq!(datapath.opened(), answered(1, 0), "{family:?}");
            let earned_at = datapath.earned_at(network);
            assert_eq!(earned_at, Some(charged - cost(MAX)), "{family:?}");
        }
    }
}

/// One more than its share, as fast as the programs run; each at a port of its own.
#[test]
fn a_network_that_answers_nothing_is_stopped() {
    let mut datapath = datapath();
    for family in Family::ALL {
        datapath.reset();
        let refused = |datapath: &mut Datapath| {
            let counted = datapath.counted();
            counted
                .get(Outcome::RxDropShare.name())
                .copied()
                .unwrap_or(0)
        };
        let mut made = 0;
        for port in 1..=u16::MAX {
            let path = Path::new(family, xdptun_test_datapath::path::OWNED, port);
            // The table of the tests is small.
            datapath.set_flows([]);
            run(&mut datapath, |at| {
                let cookie = at.isn(&path.key()).wrapping_add(1);
                let segment = path.inbound().segment(flags::ACK, 1000, cookie);
                (Program::Ingress, segment.bytes())
            });
            if refused(&mut datapath) > 0 {
                break;
            }
            made += 1;
        }
        let share = share_of_network(MAX);
        // The share that it regained meanwhile.
        assert!((share..2 * share).contains(&made), "{family:?}: {made}");
        let waiting = datapath.opened().opened[Opener::Peer as usize];
        assert_eq!(waiting, u64::from(made), "{family:?}");
    }
}

/// The answer to a SYN-ACK and the first datagram may be looked at on two CPUs at once. One
/// of the two makes the flow: the other finds it, also if it was the last that had room, and
/// the network pays once.
#[test]
fn segments_that_race_make_one_flow() {
    let most = MAX - kept(MAX);
    let all_answered = [answered(most - 1, 0), answered(0, 0)];
    // The last room of the table; the last of the network's share.
    let places = all_answered.into_iter().zip([ALL / 2, ALL - cost(MAX)]);
    for (family, (before, owed)) in Family::ALL
        .into_iter()
        .flat_map(|family| places.clone().map(move |place| (family, place)))
    {
        let path = Path::server(family);
        let network = network(address_bytes(path.remote.ip()));
        race(path, |datapath, at| {
            let earned_at = at.ns() + owed;
            datapath.set_opened(before, &[(network, earned_at)]);
            move |datapath: &mut Datapath| {
                let opened = datapath.opened().opened[Opener::Peer as usize];
                assert_eq!(opened, before.opened[Opener::Peer as usize] + 1);
                let charged = datapath.earned_at(network);
                assert_eq!(charged, Some(earned_at + cost(MAX)), "{path:?}");
            }
        });
    }
}

/// The same where the flow before is still in the table.
#[test]
fn segments_that_race_open_a_closed_flow() {
    for path in Family::ALL.map(Path::server) {
        race(path, |datapath, at| {
            let closed = in_state(path.established(at), State::Closed);
            datapath.set_flows([(&path.key(), &closed)]);
            move |datapath: &mut Datapath| {
                let state = datapath.flows()[&path.key()].state();
                assert_eq!(state, State::Established, "{path:?}");
            }
        });
    }
}

/// Many times: the programs get the answer to a SYN-ACK and the first datagram at once, in
/// the state that `prepare` makes, and restore the datagram. What `prepare` returns looks at
/// what they left.
fn race<F: Fn(&mut Datapath)>(path: Path, prepare: impl Fn(&mut Datapath, Moment) -> F) {
    const ROUNDS: u32 = 1000;
    let cpus = thread::available_parallelism().unwrap().get();
    assert!(
        cpus > 1,
        "segments race on two CPUs, and this machine has one"
    );
    let mut datapath = datapath();
    datapath.load(Program::Ingress);
    for round in 0..ROUNDS {
        datapath.reset();
        datapath.set_flows([]);
        let at = Moment::now();
        let check = prepare(&mut datapath, at);
        let cookie = at.isn(&path.key()).wrapping_add(1);
        let segment = path.inbound().segment(flags::ACK, 1000, cookie);
        let [ack, data] = [segment.clone(), segment.payload(payload(20))];
        at_once(
            datapath.classifier(Program::Ingress),
            [&ack.bytes(), &data.bytes()],
        );
        let counted = datapath.counted();
        let restored = counted.get(Outcome::RxRestored.name());
        assert_eq!(restored, Some(&1), "{path:?}, round {round}: {counted:?}");
        check(&mut datapath);
    }
}

/// Runs a program on each of the packets, at the same time.
fn at_once(program: &SchedClassifier, packets: [&[u8]; 2]) {
    let ready = AtomicU32::new(0);
    thread::scope(|scope| {
        for packet in packets {
            let ready = &ready;
            scope.spawn(move || {
                let mut data_out = vec![0; 4096];
                let options = TestRunOptions {
                    data_in: Some(packet),
                    data_out: Some(&mut data_out),
                    ..TestRunOptions::default()
                };
                ready.fetch_add(1, Ordering::SeqCst);
                while ready.load(Ordering::SeqCst) < 2 {
                    spin_loop();
                }
                program.test_run(options).expect("the kernel runs it");
            });
        }
    });
}

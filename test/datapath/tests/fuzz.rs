//! A short run of the fuzzer, the same each time: `cargo xtask fuzz` runs longer.

use std::collections::BTreeSet;

use xdptun_common::nat64::outcome::{Count, Outcome as Nat64};
use xdptun_common::tunnel::outcome::{Outcome, Sent};
use xdptun_lab::{Direct, Host, link};
use xdptun_test_datapath::Program;
use xdptun_test_datapath::fuzz::attack;
use xdptun_test_datapath::fuzz::nat64;
use xdptun_test_datapath::fuzz::rig::Rig;
use xdptun_test_datapath::fuzz::tally::Tally;
use xdptun_test_datapath::fuzz::{PROGRAMS, Position};
use xdptun_test_datapath::kernel::require_root;

const SEED: u64 = 1;
const PACKETS: u64 = 60_000;
const ATTACKS: u64 = 2_000;

/// The outcomes that random packets must reach, so that no rule holds only for lack of
/// packets. Not among them: outcomes that one packet cannot cause (a full ring of events,
/// lack of memory).
fn within_reach(program: Program) -> BTreeSet<&'static str> {
    let outcomes: &[Outcome] = match program {
        Program::Egress => &[
            Outcome::TxDisguised,
            Outcome::TxQueued,
            Outcome::TxOpened,
            Outcome::TxRequested,
            Outcome::TxNotRequested,
            Outcome::TxDropMalformed,
            Outcome::TxSplit,
            Outcome::TxDropSuperPacket,
            Outcome::TxDropFragment,
            Outcome::TxDropVlan,
            Outcome::TxDropOptions,
            Outcome::TxTooBig,
            Outcome::TxDropTooBig,
            Outcome::TxDropDestination,
            Outcome::TxDropTableFull,
            Outcome::TxDropClosing,
        ],
        Program::Ingress => &[
            Outcome::RxRestored,
            Outcome::RxSyn,
            Outcome::RxSynAck,
            Outcome::RxAck,
            Outcome::RxFin,
            Outcome::RxRst,
            Outcome::RxRefused,
            Outcome::RxIcmp,
            Outcome::RxDropIcmp,
            Outcome::RxDropPlainUdp,
            Outcome::RxDropMalformed,
            Outcome::RxDropChecksum,
            Outcome::RxDropAddress,
            Outcome::RxDropFragment,
            Outcome::RxDropOptions,
            Outcome::RxSplit,
            Outcome::RxDropMerged,
            Outcome::RxDropNoFlow,
            Outcome::RxDropUnproven,
            Outcome::RxDropReset,
            Outcome::RxDropFin,
            Outcome::RxDropSequence,
            Outcome::RxDropTableFull,
        ],
        Program::Xdp | Program::XdpFrags => &[Outcome::RxRestored, Outcome::RxDropPlainUdp],
        Program::Splitter => &[],
    };
    let sent: &[Sent] = match program {
        Program::Egress => &[Sent::Syn, Sent::Ack, Sent::Probe, Sent::Fin],
        Program::Ingress => &[
            Sent::SynAck,
            Sent::Ack,
            Sent::ChallengeAck,
            Sent::Fin,
            Sent::Rst,
            Sent::Limited,
        ],
        Program::Xdp | Program::XdpFrags | Program::Splitter => &[],
    };
    let ends: &[&str] = match program {
        Program::Egress => &[Tally::UNCOUNTED, Tally::RETURNED],
        Program::Ingress | Program::Xdp | Program::XdpFrags => &[Tally::UNCOUNTED],
        Program::Splitter => &[Tally::SENT_HOME, Tally::ENDED],
    };
    let outcomes = outcomes.iter().map(|outcome| outcome.name());
    let sent = sent.iter().map(|sent| sent.name());
    outcomes.chain(sent).chain(ends.iter().copied()).collect()
}

#[test]
fn random_packets_break_no_rule_and_reach_every_outcome() {
    require_root();
    // A failed assertion must still remove the namespaces.
    let net = Direct::new().unwrap();
    let narrow = link::index(&net.a.netns, Host::DEV).unwrap();
    let fuzz = || {
        let mut rig = Rig::new(narrow);
        attacks(&mut rig);
        for (program, name) in PROGRAMS {
            let mut tally = Tally::default();
            for iteration in 0..PACKETS {
                let position = Position {
                    program,
                    seed: SEED,
                    iteration,
                };
                tally.add(&position.run(&mut rig).unwrap());
            }
            println!("{name}: {} packets\n{tally}", tally.packets());
            let missed: Vec<_> = within_reach(program)
                .into_iter()
                .filter(|end| tally.reached(end) == 0)
                .collect();
            assert!(missed.is_empty(), "{name} never reached {missed:?}");
        }
    };
    net.a.netns.enter(fuzz).unwrap();
}

/// The outcomes that forged packets must reach: one for each check against them.
const IN_THE_WAY: [Outcome; 11] = [
    Outcome::RxSyn,
    Outcome::RxDropIcmp,
    Outcome::RxDropPlainUdp,
    Outcome::RxDropChain,
    Outcome::RxDropFragment,
    Outcome::RxDropOptions,
    Outcome::RxDropNoFlow,
    Outcome::RxDropUnproven,
    Outcome::RxDropReset,
    Outcome::RxDropFin,
    Outcome::RxDropSequence,
];

fn attacks(rig: &mut Rig) {
    let mut tally = Tally::default();
    for iteration in 0..ATTACKS {
        let position = attack::Position {
            seed: SEED,
            iteration,
        };
        for fate in position.run(rig).unwrap() {
            tally.add_forged(&fate);
        }
    }
    println!("{}: {} packets\n{tally}", attack::NAME, tally.packets());
    let missed: Vec<_> = IN_THE_WAY
        .into_iter()
        .filter(|outcome| tally.reached(outcome.name()) == 0)
        .collect();
    assert!(missed.is_empty(), "attacks never met {missed:?}");
    let guessed = tally.reached(Tally::GUESSED);
    assert!(
        guessed * 10 < tally.packets(),
        "{guessed} of {} packets are no attack",
        tally.packets()
    );
}

/// The outcomes of NAT64 that random packets must reach.
const OF_NAT64: [Nat64; 19] = [
    Nat64::ToV4,
    Nat64::ToV4Error,
    Nat64::ToV4DropOutside,
    Nat64::ToV4DropPrivate,
    Nat64::ToV4DropNetwork,
    Nat64::ToV4DropProtocol,
    Nat64::ToV4DropFragment,
    Nat64::ToV4DropMessage,
    Nat64::ToV4DropExtensions,
    Nat64::ToV4DropDestination,
    Nat64::ToV4DropMalformed,
    Nat64::ToV6,
    Nat64::ToV6Error,
    Nat64::ToV6DropPrivate,
    Nat64::ToV6DropProtocol,
    Nat64::ToV6DropFragment,
    Nat64::ToV6DropMessage,
    Nat64::ToV6DropRedirect,
    Nat64::ToV6DropMalformed,
];

#[test]
fn nat64_translates_back_what_it_translated_and_leaves_alone_what_it_drops() {
    require_root();
    // Halves of fragments leave by its loopback device.
    let net = Direct::new().unwrap();
    let fuzz = || {
        let mut program = nat64::program();
        let mut tally = Tally::default();
        for iteration in 0..PACKETS {
            let position = nat64::Position {
                seed: SEED,
                iteration,
            };
            tally.add_ends(&position.run(&mut program).unwrap());
        }
        println!("{}: {} packets\n{tally}", nat64::NAME, tally.packets());
        let outcomes = OF_NAT64.iter().map(|outcome| outcome.name());
        let others = [Count::Cut, Count::Refusals].map(Count::name);
        let ends = [Tally::UNCOUNTED, Tally::RETURNED];
        let missed: Vec<_> = outcomes
            .chain(others)
            .chain(ends)
            .filter(|end| tally.reached(end) == 0)
            .collect();
        assert!(missed.is_empty(), "nat64 never reached {missed:?}");
    };
    net.a.netns.enter(fuzz).unwrap();
}

//! `share`: what flows that wait for their first answer may take of the table.

use std::net::IpAddr;

use proptest::prelude::*;
use xdptun_common::address::address_bytes;
use xdptun_common::read_plain;
use xdptun_common::tunnel::share::{
    Settled, Tally, charge, cleared, cost, kept, network, share, share_of_network,
};
use xdptun_common::tunnel::state::Opener;
use xdptun_common::tunnel::state::{Flow, REMEMBERED, State};

#[test]
fn shares_of_the_default_table() {
    assert_eq!(share(65_536), 16_384);
    assert_eq!(cleared(65_536), 12_288);
    assert_eq!(share_of_network(65_536), 2048);
    assert_eq!(kept(65_536), 4096);
}

proptest! {
    /// Both shares and what is kept fit into any table in which they mean something.
    #[test]
    fn shares_fit_the_table(max_flows in 1..=16_777_216u32) {
        prop_assert!(cleared(max_flows) <= share(max_flows));
        prop_assert!(share_of_network(max_flows) <= share(max_flows));
        prop_assert!(kept(max_flows) < max_flows);
        prop_assert!(max_flows < 64 || 2 * share(max_flows) + kept(max_flows) <= max_flows);
        prop_assert!(cost(max_flows) > 0);
    }

    /// Whatever the pauses, no more at once than the share, and no more over a time than the
    /// share and what is earned meanwhile.
    #[test]
    fn a_network_opens_no_more_than_its_share(
        pauses in prop::collection::vec(0..100_000_000u64, 1..400),
        max_flows in 1..4096u32,
    ) {
        let cost = cost(max_flows);
        let start = 1 << 40;
        let (mut now, mut earned_at, mut made) = (start, 0, 0u64);
        for pause in pauses {
            now += pause;
            if let Some(after) = charge(earned_at, now, cost) {
                (earned_at, made) = (after, made + 1);
            }
            let earned = (now - start) / cost + 1;
            prop_assert!(made <= u64::from(share_of_network(max_flows)) + earned);
        }
    }

    /// The numbers that the daemon notes are those that the programs find, whatever came
    /// before, and what is made and answered later changes them by as much.
    #[test]
    fn numbers_are_settled(
        opened in any::<[u64; 2]>(),
        answered in any::<[u64; 2]>(),
        waiting in prop::array::uniform2(0..1_000_000u64),
        entries in 0..2_000_000u64,
        more in prop::array::uniform2(0..1_000_000u64),
        fewer in prop::array::uniform2(0..1_000_000u64),
    ) {
        let mut tally = Tally { opened, answered };
        let settled = tally.settle(waiting, entries);
        prop_assert_eq!(tally.entries(&settled), entries.cast_signed());
        for opener in [Opener::Peer, Opener::Host] {
            let index = opener as usize;
            tally.opened[index] = tally.opened[index].wrapping_add(more[index]);
            tally.answered[index] = tally.answered[index].wrapping_add(fewer[index]);
            let now = waiting[index] + more[index];
            let now = now.cast_signed() - fewer[index].cast_signed();
            prop_assert_eq!(tally.waiting(&settled, opener), now);
        }
        let all = entries + more[0] + more[1];
        prop_assert_eq!(tally.entries(&settled), all.cast_signed());
    }
}

#[test]
fn a_new_table_is_empty() {
    let (tally, settled) = (Tally::default(), Settled::default());
    assert_eq!(tally.entries(&settled), 0);
    for opener in [Opener::Peer, Opener::Host] {
        assert_eq!(tally.waiting(&settled, opener), 0);
    }
}

#[test]
fn a_share_is_earned_back_and_can_be_used_at_once() {
    let cost = cost(65_536);
    let now = 1 << 50;
    let spend = |mut earned_at, now| {
        let mut made = 0;
        while let Some(after) = charge(earned_at, now, cost) {
            (earned_at, made) = (after, made + 1);
        }
        (earned_at, made)
    };
    let (earned_at, made) = spend(0, now);
    assert_eq!(made, share_of_network(65_536));
    let (earned_at, made) = spend(earned_at, now + 10 * cost);
    assert_eq!(made, 10);
    // Three were answered.
    let (_, made) = spend(earned_at - 3 * cost, now + 10 * cost);
    assert_eq!(made, 3);
}

#[test]
fn networks_are_addresses_of_ipv4_and_64_bits_of_ipv6() {
    let network = |address: &str| network(address_bytes(address.parse::<IpAddr>().unwrap()));
    assert_ne!(network("10.0.0.1"), network("10.0.0.2"));
    assert_eq!(network("10.0.0.1"), address_bytes([10, 0, 0, 1].into()));
    assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:1:2:3"));
    assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
    assert_ne!(network("::1"), network("0.0.0.1"));
}

#[test]
fn flows_wait_until_they_are_answered() {
    for state in State::ALL {
        for (syns, syn_at) in [(0, 0), (1, 7), (REMEMBERED, 0)] {
            let mut flow: Flow = read_plain(&[0; size_of::<Flow>()]).unwrap();
            flow.state = state as u32;
            (flow.syns, flow.syn_at) = (syns, syn_at);
            let waits = match (state, syns) {
                (State::SynSent, _) => Some(Opener::Host),
                (State::SynReceived, 0 | 1) => Some(Opener::Host),
                // It is answered, and its first datagram is about to leave.
                (State::Established, 1) => None,
                _ => Some(Opener::Peer),
            };
            assert_eq!(flow.waits(), waits, "{state:?} {syns}");
            // What came says nothing: a stranger can send as well.
            flow.rx_packets = 1;
            assert_eq!(flow.waits(), waits, "{state:?} {syns}");
            flow.tx_packets = 1;
            assert_eq!(flow.waits(), None, "{state:?} {syns}");
        }
    }
}

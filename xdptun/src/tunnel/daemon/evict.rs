//! Early removal of flows, so that others find room in the table: only flows that wait for
//! their first answer (`xdptun_common::tunnel::share`), the oldest first.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::share::{cleared, network, share_of_network};
use xdptun_common::tunnel::state::Flow;
use xdptun_common::tunnel::state::Opener;

use crate::host::clock::since;

/// The time that every flow has for its first answer.
const UNDISTURBED: Duration = Duration::from_millis(500);

/// Which of these flows are too many for a table of `max_flows`.
pub fn surplus(flows: &[(FlowKey, Flow)], max_flows: u32, now: u64) -> Vec<bool> {
    let mut waiting: [Vec<usize>; 2] = [Vec::new(), Vec::new()];
    for (place, (_, flow)) in flows.iter().enumerate() {
        if let Some(opener) = flow.waits() {
            waiting[opener as usize].push(place);
        }
    }
    let most = cleared(max_flows) as usize;
    let most_of_network = share_of_network(max_flows);
    let mut surplus = vec![false; flows.len()];
    for (opener, mut waiting) in [Opener::Peer, Opener::Host].into_iter().zip(waiting) {
        if waiting.len() <= most.min(most_of_network as usize) {
            continue;
        }
        // The latest first. A peer that goes on sending keeps its flow before others.
        waiting.sort_unstable_by_key(|place| {
            let flow = &flows[*place].1;
            Reverse(match opener {
                Opener::Peer => flow.data_at,
                Opener::Host => flow.opened_at,
            })
        });
        let (mut stay, mut of_network) = (0, HashMap::<_, u32>::new());
        for place in waiting {
            let (key, flow) = &flows[place];
            let is_over = match opener {
                Opener::Peer => {
                    let count = of_network.entry(network(key.remote_address())).or_default();
                    *count += 1;
                    *count > most_of_network
                }
                // The table does not tell which program of this host sent the datagrams.
                Opener::Host => false,
            };
            if !is_over && stay < most {
                stay += 1;
            } else if is_ripe(flow, opener, now) {
                surplus[place] = true;
            }
        }
    }
    surplus
}

/// Whether a flow may be removed if there are too many of its kind.
pub fn is_ripe(flow: &Flow, opener: Opener, now: u64) -> bool {
    flow.waits() == Some(opener) && since(now, flow.opened_at) > UNDISTURBED
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};

    use proptest::prelude::*;
    use xdptun_common::tunnel::state::State;

    use super::*;

    const MS: u64 = 1_000_000;
    const NOW: u64 = 1_000_000 * MS;

    /// A flow of a peer, in a state, with so many datagrams sent; `ago` in milliseconds.
    fn flow(peer: IpAddr, port: u16, state: State, sent: u64, ago: u64) -> (FlowKey, Flow) {
        let local = SocketAddr::from(([10, 0, 0, 1], 8000));
        let key = FlowKey::new(local, SocketAddr::new(peer, port));
        let mut flow: Flow = xdptun_common::read_plain(&[0; size_of::<Flow>()]).unwrap();
        let then = NOW - ago * MS;
        flow.state = state as u32;
        (flow.opened_at, flow.data_at, flow.tx_packets) = (then, then, sent);
        (key, flow)
    }

    fn peer(number: u16) -> IpAddr {
        let [high, low] = number.to_be_bytes();
        [10, 1, high, low].into()
    }

    /// A table of 1024 has a share of 256, which is cleared to 192; a network has 32.
    const MAX: u32 = 1024;

    fn places(flows: &[(FlowKey, Flow)]) -> Vec<usize> {
        let surplus = surplus(flows, MAX, NOW).into_iter().enumerate();
        surplus
            .filter(|(_, surplus)| *surplus)
            .map(|(place, _)| place)
            .collect()
    }

    #[test]
    fn one_network_keeps_its_share_and_the_latest() {
        let stranger = |port| {
            flow(
                peer(1),
                port,
                State::Established,
                0,
                10_000 - u64::from(port),
            )
        };
        let mut flows: Vec<_> = (0..40).map(stranger).collect();
        flows.push(flow(peer(2), 1, State::Established, 0, 10_000));
        assert_eq!(places(&flows), (0..8).collect::<Vec<_>>());
        // As old as these, but a datagram came a moment ago.
        flows[3].1.data_at = NOW;
        assert_eq!(places(&flows), [0, 1, 2, 4, 5, 6, 7, 8]);
        // Answered.
        flows[4].1.tx_packets = 1;
        assert_eq!(places(&flows), [0, 1, 2, 5, 6, 7, 8]);
    }

    #[test]
    fn neighbours_of_one_network_share() {
        let neighbour = |port: u16| {
            let address = [0x2001, 0xdb8, 0, 1, 0, 0, 0, port].into();
            flow(address, 9, State::Established, 0, 1000)
        };
        let apart = |port: u16| {
            let address = [0x2001, 0xdb8, 0, port, 0, 0, 0, 1].into();
            flow(address, 9, State::Established, 0, 1000)
        };
        let flows: Vec<_> = (0..40).map(neighbour).collect();
        assert_eq!(places(&flows).len(), 8);
        let flows: Vec<_> = (0..40).map(apart).collect();
        assert_eq!(places(&flows).len(), 0);
    }

    #[test]
    fn many_networks_have_one_share() {
        let stranger = |number| {
            flow(
                peer(number),
                1,
                State::Established,
                0,
                60_000 - u64::from(number),
            )
        };
        let flows: Vec<_> = (0..200).map(stranger).collect();
        assert_eq!(places(&flows), (0..8).collect::<Vec<_>>());
        let ended = |number| {
            flow(
                peer(number),
                1,
                State::Closed,
                0,
                60_000 - u64::from(number),
            )
        };
        let flows: Vec<_> = (0..200).map(ended).collect();
        assert_eq!(places(&flows), (0..8).collect::<Vec<_>>(), "ended");
    }

    #[test]
    fn what_this_host_calls_in_vain_has_a_share_too() {
        let called = |number| {
            flow(
                peer(number),
                1,
                State::SynSent,
                0,
                20_000 - u64::from(number),
            )
        };
        let mut flows: Vec<_> = (0..200).map(called).collect();
        assert_eq!(places(&flows), (0..8).collect::<Vec<_>>());
        // All at once, and not long ago.
        for (_, flow) in &mut flows {
            flow.opened_at = NOW - 500 * MS;
        }
        assert_eq!(places(&flows), Vec::<usize>::new());
        // To one peer, as behind a NAT.
        let flows: Vec<_> = (0..190)
            .map(|port| flow(peer(1), port, State::SynSent, 0, 20_000))
            .collect();
        assert_eq!(places(&flows), Vec::<usize>::new());
        // Opened again after data passed.
        let again = |number| flow(peer(number), 1, State::SynSent, 1, 20_000);
        let flows: Vec<_> = (0..400).map(again).collect();
        assert_eq!(places(&flows), Vec::<usize>::new());
    }

    proptest! {
        /// For any table.
        #[test]
        fn only_old_flows_that_wait_go(
            table in prop::collection::vec(
                (0..12u16, any::<u16>(), 0..5usize, 0..2u64, 0..2000u64), 0..600
            ),
            max_flows in prop_oneof![1..2000u32, Just(65536)],
        ) {
            let flows: Vec<_> = table
                .iter()
                .map(|(number, port, state, sent, ago)| {
                    flow(peer(*number), *port, State::ALL[*state], *sent, *ago)
                })
                .collect();
            let removed = surplus(&flows, max_flows, NOW);
            for ((_, flow), _) in flows.iter().zip(&removed).filter(|(_, removed)| **removed) {
                prop_assert!(flow.tx_packets == 0 && flow.opened_at < NOW - 500 * MS);
            }
            // Of those that may go, none stays beyond a share.
            let stay = |opener| {
                let all = flows.iter().zip(&removed);
                all.filter(move |((_, flow), removed)| {
                    !**removed && flow.waits() == Some(opener)
                })
                .map(|((key, flow), _)| (key, flow))
            };
            for opener in [Opener::Peer, Opener::Host] {
                let ripe = stay(opener).filter(|(_, flow)| is_ripe(flow, opener, NOW));
                prop_assert!(ripe.count() <= cleared(max_flows) as usize);
            }
            for number in 0..12 {
                let of_network = stay(Opener::Peer).filter(|(key, flow)| {
                    key.remote().ip() == peer(number) && is_ripe(flow, Opener::Peer, NOW)
                });
                prop_assert!(of_network.count() <= share_of_network(max_flows) as usize);
            }
            // None goes that has room: what stays is then as much as the share.
            if removed.contains(&true) {
                let least = cleared(max_flows).min(share_of_network(max_flows)) as usize;
                let [peer, host] = [Opener::Peer, Opener::Host].map(|opener| stay(opener).count());
                prop_assert!(peer.max(host) >= least);
            }
        }
    }
}

//! Segments that a device or the kernel merged before xdptun sees them (LRO,
//! GRO). Each was one datagram and must be one again.

use std::net::{SocketAddr, UdpSocket};

use nix::sys::socket::{setsockopt, sockopt};
use xdptun::datapath::map::Source;
use xdptun::host::clock::monotonic_ns;
use xdptun::tunnel::maps::Maps;
use xdptun_lab::{Family, Host, Kind, Offload, Relayed, Side, udp, xdptun as product};
use xdptun_test_net::mode::{self, Mode};
use xdptun_test_net::packet::{Sum, TcpPacket, data, merge};
use xdptun_test_net::socket;
use xdptun_test_net::{LIMIT, status};

/// Datagrams that arrive as one frame: payload of each but the last, how many,
/// payload of the last.
#[derive(Debug, Clone, Copy)]
struct Group {
    size: usize,
    count: usize,
    last: usize,
}

impl Group {
    fn lengths(self) -> Vec<usize> {
        let mut lengths = vec![self.size; self.count - 1];
        lengths.push(self.last);
        lengths
    }

    /// Whether the merged frame is longer than a segment could be.
    fn exceeds_mtu(self) -> bool {
        self.size * (self.count - 1) + self.last > 1500
    }

    fn datagrams(self) -> Vec<Vec<u8>> {
        let seeds = 0..;
        let lengths = self.lengths().into_iter().zip(seeds);
        lengths.map(|(len, seed)| udp::pattern(len, seed)).collect()
    }
}

fn groups(family: Family) -> Vec<Group> {
    let largest = 1500 - family.header_len() - 20;
    let mut groups: Vec<Group> = (2..=40)
        .map(|count| Group {
            size: 1000,
            count,
            last: 1000,
        })
        .collect();
    for last in [1, 2, 25, largest - 1, largest] {
        groups.push(Group {
            size: largest,
            count: 40,
            last,
        });
    }
    groups.extend([1, 3, 27, 48].map(|size| Group {
        size,
        count: 12,
        last: 1,
    }));
    groups
}

/// Makes the wire merge every `count` data segments of the client, changed by
/// `alter`, into one frame, and let everything else pass.
fn merge_on_the_way(net: &Relayed, count: usize, sum: Sum, alter: fn(&mut TcpPacket)) {
    let kind = net.kind;
    let mut waiting: Vec<TcpPacket> = Vec::new();
    net.relay.program(move |frame| match data(kind, &frame) {
        Some(mut segment) if frame.to == Side::B => {
            alter(&mut segment);
            waiting.push(segment);
            if waiting.len() < count {
                return Vec::new();
            }
            vec![merge(&std::mem::take(&mut waiting), frame.to, sum)]
        }
        _ => vec![frame],
    });
}

/// A flow that is open.
fn open(net: &Relayed, family: Family) -> (UdpSocket, UdpSocket) {
    net.relay.pass();
    socket::open(&net.a, &net.b, family).unwrap()
}

fn receive(server: &UdpSocket, from: SocketAddr, expected: &[Vec<u8>], context: &str) {
    for (number, expected) in expected.iter().enumerate() {
        let (payload, sender) = udp::receive(server, LIMIT)
            .unwrap_or_else(|error| panic!("{context}: after {number} datagrams: {error:#}"));
        assert_eq!(sender, from, "{context}");
        assert!(
            payload == *expected,
            "{context}: datagram {number} has {} bytes, not the {} sent, or others",
            payload.len(),
            expected.len()
        );
    }
}

fn merged_in(mode: Mode, kind: Kind) {
    let net = Relayed::new(kind, Offload::None).unwrap();
    let attached = mode.attach_to([&net.a, &net.b]).unwrap();
    for family in Family::BOTH {
        for sum in [Sum::Pending, Sum::Right] {
            let (client, server) = open(&net, family);
            let before = status::counters(&net.b.netns).unwrap();
            let (mut merged, mut datagrams) = (0, 0);
            let seen = groups(family)
                .into_iter()
                .filter(|group| mode.ingress == "tc" || group.exceeds_mtu());
            for group in seen {
                let context = format!("{mode:?}, {kind:?}, {family}, sum {sum:?}, {group:?}");
                merge_on_the_way(&net, group.count, sum, |_| {});
                let expected = group.datagrams();
                for datagram in &expected {
                    client.send(datagram).unwrap();
                }
                receive(&server, client.local_addr().unwrap(), &expected, &context);
                merged += 1;
                datagrams += group.count as u64;
            }
            let context = format!("{mode:?}, {kind:?}, {family}, sum {sum:?}");
            let moved = status::moved(&before, &status::counters(&net.b.netns).unwrap());
            let expected = status::expected(&[("rx_split", merged), ("rx_restored", datagrams)]);
            assert_eq!(status::apart_from_timed(moved), expected, "{context}");
        }
    }
    for attached in attached {
        attached.stop().unwrap();
    }
}

#[test]
fn through_tc() {
    for kind in Kind::BOTH {
        merged_in(mode::TC, kind);
    }
}

#[test]
fn through_clsact_filters() {
    merged_in(mode::TC_CLSACT, Kind::Tap);
}

#[test]
fn through_native_xdp() {
    merged_in(mode::XDP, Kind::Tap);
}

#[test]
fn through_generic_xdp() {
    for kind in Kind::BOTH {
        merged_in(mode::XDP_GENERIC, kind);
    }
}

/// Changes the host's flow with this peer so that no acknowledgement is due for an hour. One
/// is due if the host last sent a segment 480 ms ago, so this moves that time into the future.
/// The next segment that the host sends sets it back to the present. The daemon takes a time
/// in the future for the present.
fn owe_no_acknowledgement(host: &Host, peer: SocketAddr) {
    const HOUR_NS: u64 = 3600 * 1_000_000_000;
    let pins = product::pin_dir(&host.netns, Host::DEV).unwrap();
    let mut maps = Maps::open(&mut Source::Pins(&pins)).unwrap();
    let flows = maps.flows().unwrap().into_iter();
    let mut keys = flows.map(|(key, _)| key);
    let key = keys.find(|key| key.remote() == peer).unwrap();
    let mut flow = maps.take_flow(&key).unwrap().unwrap();
    flow.sent_at = monotonic_ns() + HOUR_NS;
    maps.put_back(&key, &flow).unwrap();
}

/// Merged segments that are no longer than one could be look like one to XDP. In
/// the stack's XDP what comes of it is dropped. XDP leaves a segment to tc if an
/// acknowledgement is due, so none may be due here, however slow the machine is.
#[test]
fn what_generic_xdp_cannot_see_is_dropped() {
    let net = Relayed::new(Kind::Tap, Offload::None).unwrap();
    let [near, _far] = mode::XDP_GENERIC.attach_to([&net.a, &net.b]).unwrap();
    for family in Family::BOTH {
        let (client, server) = open(&net, family);
        // The server never answers, so the client's daemon would probe. An answer to a probe
        // moves counters and sets `sent_at`. Probes that are on the way arrive before the
        // datagram that follows.
        let still = near.process().suspend().unwrap();
        client.send(b"behind all probes").unwrap();
        udp::receive(&server, LIMIT).unwrap();
        owe_no_acknowledgement(&net.b, client.local_addr().unwrap());
        let before = status::counters(&net.b.netns).unwrap();
        merge_on_the_way(&net, 12, Sum::Right, |_| {});
        let small = Group {
            size: 27,
            count: 12,
            last: 1,
        };
        for datagram in small.datagrams() {
            client.send(&datagram).unwrap();
        }
        status::wait_moved(
            &net.b.netns,
            &before,
            &[("rx_drop_merged", 1), ("rx_restored", 1)],
        )
        .unwrap();
        net.relay.pass();
        client.send(b"the next one").unwrap();
        let (next, _) = udp::receive(&server, LIMIT).unwrap();
        assert_eq!(next, b"the next one", "{family}");
        still.resume();
    }
}

/// A receiver that asked for merged datagrams gets the same bytes, whole
/// datagrams, and their size.
#[test]
fn for_a_receiver_that_merges_again() {
    let net = Relayed::new(Kind::Tap, Offload::None).unwrap();
    let _attached = mode::TC.attach_to([&net.a, &net.b]).unwrap();
    for family in Family::BOTH {
        let (client, server) = open(&net, family);
        setsockopt(&server, sockopt::UdpGroSegment, &true).unwrap();
        for group in groups(family) {
            merge_on_the_way(&net, group.count, Sum::Pending, |_| {});
            let expected = group.datagrams();
            for datagram in &expected {
                client.send(datagram).unwrap();
            }
            let expected = expected.concat();
            let mut received = Vec::new();
            while received.len() < expected.len() {
                let (payload, _) = udp::receive(&server, LIMIT).unwrap_or_else(|error| {
                    panic!(
                        "{family}, {group:?}: after {} bytes: {error:#}",
                        received.len()
                    )
                });
                received.extend(payload);
            }
            assert!(received == expected, "{family}, {group:?}");
        }
    }
}

/// Segments with the same options are merged as well.
#[test]
fn with_options_of_tcp_and_of_ip() {
    for kind in Kind::BOTH {
        let net = Relayed::new(kind, Offload::None).unwrap();
        let _attached = mode::TC.attach_to([&net.a, &net.b]).unwrap();
        for family in Family::BOTH {
            let (client, server) = open(&net, family);
            let alterations: [fn(&mut TcpPacket); 2] = [
                |packet| packet.set_tcp_options(&[1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]),
                |packet| {
                    packet.set_v4_options(&[148, 4, 0, 0]);
                    packet.set_v6_options(None, Some(&[0x1e, 4, 1, 2, 3, 4]));
                },
            ];
            for (layer, alter) in ["TCP", "IP"].into_iter().zip(alterations) {
                let group = Group {
                    size: 1000,
                    count: 10,
                    last: 7,
                };
                merge_on_the_way(&net, group.count, Sum::Pending, alter);
                let before = status::counters(&net.b.netns).unwrap();
                let datagrams = group.datagrams();
                for datagram in &datagrams {
                    client.send(datagram).unwrap();
                }
                let context = format!("{kind:?}, {family}, options of {layer}");
                receive(&server, client.local_addr().unwrap(), &datagrams, &context);
                let moved = status::moved(&before, &status::counters(&net.b.netns).unwrap());
                let expected = status::expected(&[("rx_split", 1), ("rx_restored", 10)]);
                assert_eq!(status::apart_from_timed(moved), expected, "{context}");
            }
        }
    }
}

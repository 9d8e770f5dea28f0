//! The segments of a flow from its first one on.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::time::Duration;

use xdptun_lab::{Direct, Family, WireStats, udp};
use xdptun_test_net::mode;
use xdptun_test_net::nets::Plain;
use xdptun_test_net::wire::{Segment, SynOptions, Wire, describe, distance, segments, syn_options};
use xdptun_test_net::{LIMIT, PORT, socket, status};

/// The segments between two ends, without those of other flows.
fn between<'a>(all: &[Segment<'a>], a: SocketAddr, b: SocketAddr) -> Vec<Segment<'a>> {
    let ends = [(a, b), (b, a)];
    let of_flow = |segment: &&Segment<'_>| ends.contains(&(segment.source, segment.destination));
    all.iter().filter(of_flow).cloned().collect()
}

fn sent_by<'a, 'b>(all: &'b [Segment<'a>], from: SocketAddr) -> Vec<&'b Segment<'a>> {
    all.iter()
        .filter(|segment| segment.source == from)
        .collect()
}

/// The handshake of a flow, and what came besides. The first datagram may overtake the ACK on
/// another core; both complete the handshake.
fn opening<'a>(flow: &[Segment<'a>]) -> ([Segment<'a>; 3], Vec<Segment<'a>>) {
    let mut rest = flow.to_vec();
    let overtaken = rest.len() > 3 && rest[2].is_data() && rest[3].flags() == ".";
    let ack = rest.remove(if overtaken { 3 } else { 2 });
    let syn_ack = rest.remove(1);
    ([rest.remove(0), syn_ack, ack], rest)
}

#[test]
fn a_flow_opens_with_three_segments_and_then_counts_bytes() {
    let net = Direct::new().unwrap();
    net.offload("tx", false).unwrap();
    let _attached = mode::TC.attach_both(&net).unwrap();
    for family in Family::BOTH {
        let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
        let client = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
        let (near, far) = (client.local_addr().unwrap(), server.address());
        let lengths = [7, 0, 1, 1200, 333, 64, 1440, 2];
        let wire = Wire::watch(&[&net.a, &net.b]).unwrap();
        for (seed, length) in (0..).zip(lengths) {
            udp::exchange(&client, far, &udp::pattern(length, seed), LIMIT).unwrap();
        }
        let frames = wire.stop().unwrap();
        let flow = between(&segments(&frames, PORT), near, far);
        let shown = describe(&flow);

        let (opening, rest) = opening(&flow);
        let [syn, syn_ack, ack] = &opening;
        assert_eq!(
            [syn.flags(), syn_ack.flags(), ack.flags()],
            ["S", "S.", "."],
            "{shown}"
        );
        assert_eq!(
            [syn.source, syn_ack.source, ack.source],
            [near, far, near],
            "{shown}"
        );
        assert_eq!(syn_ack.header().ack_number, syn.end(), "{shown}");
        assert_eq!(ack.header().ack_number, syn_ack.end(), "{shown}");
        assert_eq!(ack.header().seq, syn.end(), "{shown}");
        assert!(
            opening.iter().all(|segment| segment.payload.is_empty()),
            "{shown}"
        );
        assert_ne!(syn.header().seq, syn_ack.header().seq, "{shown}");
        for segment in [syn, syn_ack] {
            let options = syn_options(segment.header().options);
            let mss = match family {
                Family::V4 => 1460,
                Family::V6 => 1440,
            };
            let expected = SynOptions {
                mss: Some(mss),
                sack_permitted: true,
                window_scale: options.window_scale,
            };
            assert_eq!(options, expected);
            // RFC 7323 section 2.3.
            assert!(
                options
                    .window_scale
                    .is_some_and(|shift| (1..=14).contains(&shift))
            );
        }
        assert!(
            rest.iter()
                .all(|segment| ["P.", "."].contains(&segment.flags().as_str())),
            "{shown}"
        );
        assert!(
            rest.iter()
                .all(|segment| segment.header().options.is_empty()),
            "{shown}"
        );

        for from in [near, far] {
            let mut next = if from == near {
                syn.end()
            } else {
                syn_ack.end()
            };
            let mut acknowledged = if from == near {
                syn_ack.end()
            } else {
                syn.end()
            };
            let mut window = None;
            let all = sent_by(&rest, from);
            for segment in &all {
                let tcp = segment.header();
                assert_eq!(tcp.seq, next, "{}{shown}", segment.packet);
                next = segment.end();
                assert!(
                    distance(tcp.ack_number, acknowledged) >= 0,
                    "{}{shown}",
                    segment.packet
                );
                acknowledged = tcp.ack_number;
                if segment.is_data() {
                    // Like that of Linux while its programs read in time: it grows in 16 MiB.
                    let grown = (tcp.ack_number >> 24) as u16;
                    let first = *window.get_or_insert(tcp.window - grown);
                    assert_eq!(tcp.window - grown, first, "{}{shown}", segment.packet);
                }
            }
            let data = all.iter().filter(|segment| segment.is_data());
            assert_eq!(data.count(), lengths.len(), "{shown}");
            // Each answer acknowledges what it answers.
            let other = if from == near { far } else { near };
            let heard = sent_by(&rest, other).last().map(|segment| segment.end());
            if from == far {
                assert_eq!(Some(acknowledged), heard, "{shown}");
            }
        }
    }
}

#[test]
fn every_flow_has_its_own_initial_sequence_numbers() {
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach_both(&net).unwrap();
    let wire = Wire::watch(&[&net.a, &net.b]).unwrap();
    for family in Family::BOTH {
        let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
        // Kept, so that no two of them get the same port and with it the same flow.
        let clients = [(); 16].map(|()| {
            let client = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
            udp::exchange(&client, server.address(), b"hello", LIMIT).unwrap();
            client
        });
        drop(clients);
    }
    let frames = wire.stop().unwrap();
    let numbers: HashSet<u32> = segments(&frames, PORT)
        .iter()
        .filter(|segment| segment.header().syn)
        .map(|segment| segment.header().seq)
        .collect();
    // 64 random numbers of 32 bits: two of them are equal once in two million.
    assert_eq!(numbers.len(), 2 * 2 * 16);
    let top_bytes: HashSet<u8> = numbers
        .iter()
        .map(|number| number.to_be_bytes()[0])
        .collect();
    assert!(
        top_bytes.len() > 16,
        "not spread over the whole range: {numbers:x?}"
    );
}

/// Two hundred datagrams of each flow leave their sockets before the handshake
/// can end, because the router holds the SYNs back until then.
#[test]
fn a_burst_that_opens_a_flow_arrives_whole() {
    const FLOWS: usize = 6;
    const COUNT: u8 = 200;
    /// The first pause between SYNs, less a tick of the kernel's coarse clock.
    const PAUSE: Duration = Duration::from_millis(485);
    let net = Plain::new().unwrap();
    net.0.offload("tx", false).unwrap();
    let (client, server) = (net.0.client(), &net.0.server);
    let _attached = mode::TC.attach_to([client, server]).unwrap();
    for family in Family::BOTH {
        let sink = socket::roomy(&server.netns, server.socket(family, PORT)).unwrap();
        let to = sink.local_addr().unwrap();
        let payloads: Vec<_> = (0..COUNT)
            .map(|seed| udp::pattern(usize::from(seed) * 7, seed))
            .collect();
        let before = status::counters(&client.netns).unwrap();
        let wire = Wire::watch(&[client, server]).unwrap();
        net.hold().unwrap();
        let mut clients = Vec::new();
        for flow in 1..=FLOWS {
            let socket = udp::bind(&client.netns, client.socket(family, 0)).unwrap();
            for payload in &payloads {
                socket.send_to(payload, to).unwrap();
            }
            clients.push(socket.local_addr().unwrap());
            // Looked at for every flow, so that they start at different times.
            let moved = status::moved(&before, &status::counters(&client.netns).unwrap());
            let queued = (moved["tx_opened"], moved.get("tx_queued").copied());
            let waiting = flow as u64 * (u64::from(COUNT) - 1);
            assert_eq!(queued, (flow as u64, Some(waiting)), "{family}: {moved:?}");
        }
        net.release().unwrap();
        let mut arrived: HashMap<SocketAddr, Vec<Vec<u8>>> = HashMap::new();
        for count in 0..FLOWS * usize::from(COUNT) {
            let (payload, from) = udp::receive(&sink, LIMIT)
                .unwrap_or_else(|error| panic!("{family}, after {count}: {error:#}"));
            arrived.entry(from).or_default().push(payload);
        }
        let frames = wire.stop().unwrap();
        let stats = WireStats::of(PORT, &frames);
        assert_eq!((stats.udp_datagrams, stats.rst), (0, 0), "{stats:#?}");
        let moved = status::moved(&before, &status::counters(&client.netns).unwrap());
        assert_eq!(
            moved["tx_disguised"],
            (FLOWS * payloads.len()) as u64,
            "{moved:?}"
        );

        let all = segments(&frames, PORT);
        for end in clients {
            let mut found = arrived.remove(&end).unwrap_or_default();
            let mut expected = payloads.clone();
            found.sort();
            expected.sort();
            assert!(
                found == expected,
                "{family}: other datagrams arrived than were sent"
            );

            let sent = sent_by(&all, end);
            let syns: Vec<_> = sent
                .iter()
                .filter(|segment| segment.flags() == "S")
                .collect();
            for pair in syns.windows(2) {
                let pause = pair[1].time - pair[0].time;
                assert!(pause >= PAUSE, "{family}: SYNs {pause:?} apart");
            }
            // The queue keeps its order, and every byte has its number.
            let mut next = syns[0].end();
            let data: Vec<_> = sent.iter().filter(|segment| segment.is_data()).collect();
            for (segment, payload) in data.iter().zip(&payloads) {
                assert_eq!(segment.header().seq, next, "{}", segment.packet);
                assert_eq!(segment.payload, payload, "{}", segment.packet);
                next = segment.end();
            }
        }
    }
}

/// The same without anybody in between: some of the burst may wait, the rest
/// goes straight on, and the two must not get in each other's way.
#[test]
fn a_burst_across_the_end_of_the_handshake_arrives_whole() {
    const FLOWS: u8 = 20;
    const COUNT: u8 = 50;
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach_both(&net).unwrap();
    for family in Family::BOTH {
        let sink = socket::roomy(&net.b.netns, net.b.socket(family, PORT)).unwrap();
        let to = sink.local_addr().unwrap();
        let wire = Wire::watch(&[&net.a, &net.b]).unwrap();
        for flow in 0..FLOWS {
            let client = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
            let mut payloads: Vec<_> = (0..COUNT).map(|number| vec![number, flow, 0x55]).collect();
            for payload in &payloads {
                client.send_to(payload, to).unwrap();
            }
            let mut arrived = Vec::new();
            for _ in 0..COUNT {
                let (payload, from) = udp::receive(&sink, LIMIT)
                    .unwrap_or_else(|error| panic!("{family}, flow {flow}: {error:#}"));
                assert_eq!(from, client.local_addr().unwrap());
                arrived.push(payload);
            }
            arrived.sort();
            payloads.sort();
            assert_eq!(arrived, payloads, "{family}, flow {flow}");
        }
        let stats = WireStats::of(PORT, &wire.stop().unwrap());
        assert_eq!(stats.udp_datagrams, 0, "{stats:#?}");
        assert_eq!(
            stats.data_segments,
            u64::from(FLOWS) * u64::from(COUNT),
            "{stats:#?}"
        );
        assert_eq!((stats.bad_checksums, stats.rst), (0, 0), "{stats:#?}");
    }
}

//! Traffic in one direction only, and a lot of it.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use xdptun_lab::topology::{Dropped, Router};
use xdptun_lab::{Capture, Direct, Family, Host, Netns, Routed, WireStats, udp, wait};
use xdptun_test_net::mode::{self, Mode};
use xdptun_test_net::wire::{describe, distance, packets};
use xdptun_test_net::{LIMIT, PORT, socket, status};

/// Unacknowledged bytes after which an acknowledgement is due.
const ACK_BYTES: u32 = 256 * 1024;
/// The same in the first half second.
const EARLY_BYTES: u32 = 32 * 1024;
const PAYLOAD: usize = 1400;

/// The receiver's own view: after every segment, how much of what has come it
/// has not acknowledged yet.
#[test]
fn the_receiver_acknowledges_what_it_gets() {
    for mode in [mode::TC, mode::XDP_GENERIC] {
        let net = Direct::new().unwrap();
        let _attached = mode.attach_both(&net).unwrap();
        for family in Family::BOTH {
            let sink = socket::roomy(&net.b.netns, net.b.socket(family, PORT)).unwrap();
            let client = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
            let to = sink.local_addr().unwrap();
            // Seen from the sender: what XDP restores is not visible as TCP at
            // the receiver.
            let capture = Capture::start(&net.a.netns, Host::DEV).unwrap();
            for number in 0..3000u32 {
                let mut payload = udp::pattern(PAYLOAD, 0);
                payload[..4].copy_from_slice(&number.to_be_bytes());
                client.send_to(&payload, to).unwrap();
                let (received, _) = udp::receive(&sink, LIMIT).unwrap();
                assert!(
                    received == payload,
                    "{mode:?} {family}: datagram {number} differs"
                );
            }
            let frames = capture.stop().unwrap();
            let all = packets(&frames, PORT);
            let near = client.local_addr().unwrap();
            let (mut sent, mut acknowledged) = (None, None);
            let (mut acks, mut most) = (0u32, 0);
            for segment in &all {
                let tcp = segment.header();
                assert!(!tcp.rst, "{}", segment.packet);
                if segment.source == near {
                    sent = Some(segment.end());
                } else {
                    assert!(segment.payload.is_empty(), "{}", segment.packet);
                    acks += u32::from(segment.flags() == ".");
                    assert!(acknowledged.is_none_or(|last| distance(tcp.ack_number, last) >= 0));
                    acknowledged = Some(tcp.ack_number);
                }
                if let (Some(sent), Some(acknowledged)) = (sent, acknowledged) {
                    most = most.max(distance(sent, acknowledged));
                }
            }
            let slack = 2 * u32::try_from(PAYLOAD).unwrap();
            assert!(
                most.unsigned_abs() <= ACK_BYTES + slack,
                "{mode:?} {family}: {most} bytes unacknowledged"
            );
            let total = 3000 * u32::try_from(PAYLOAD).unwrap();
            let needed = total / (ACK_BYTES + slack);
            let first = &all[..all.len().min(8)];
            assert!(
                acks >= needed,
                "{mode:?} {family}: {acks} ACKs: {}",
                describe(first)
            );
            let most = total / EARLY_BYTES + 50;
            assert!(acks <= most, "{mode:?} {family}: {acks} ACKs");
        }
    }
}

/// Datagrams under way at most. Each CPU's backlog takes 1000 packets
/// (`net.core.netdev_max_backlog`), so with fewer under way than that nothing
/// between the sockets has a reason to lose any, and every one must arrive.
const UNDER_WAY: u64 = 400;
/// How far the capture may be behind; its buffer holds several times as many.
const UNSEEN: u64 = 20_000;

fn fill(payload: &mut [u8], number: u64) {
    let (words, _) = payload.as_chunks_mut::<8>();
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for word in &mut *words {
        // xorshift64: cheap, and no two datagrams are alike.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *word = state.to_le_bytes();
    }
    words[0] = number.to_le_bytes();
}

/// Sends `bytes` through the strict router, each datagram checked on arrival.
///
/// Asserted: all datagrams arrive once and unchanged; the client disguised and
/// the server restored exactly as many; the wire shows exactly their bytes with
/// good checksums and no reset; the router found nothing invalid.
fn flood(mode: Mode, family: Family, bytes: u64, limit: Duration) {
    let limit = wait::stretched(limit).unwrap();
    let net = Routed::new().unwrap();
    net.offload("tx", false).unwrap();
    let (client, server) = (net.client(), &net.server);
    let _attached = mode.attach_to([client, server]).unwrap();
    let sink = socket::roomy(&server.netns, server.socket(family, PORT)).unwrap();
    let source = udp::bind(&client.netns, client.socket(family, 0)).unwrap();
    let to = sink.local_addr().unwrap();
    let counters = || [client, server].map(|host| status::counters(&host.netns).unwrap());
    let before = counters();
    let count = bytes.div_ceil(PAYLOAD as u64);
    let capture = Capture::fold(
        &net.router.netns,
        Router::WAN,
        WireStats::new(PORT),
        WireStats::add,
    )
    .unwrap();

    let received = AtomicU64::new(0);
    let started = Instant::now();
    thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(&sink, count, &received));
        send(&source, to, count, &received, &capture, started + limit);
        receiver.join().unwrap();
    });
    let elapsed = started.elapsed();
    assert!(
        elapsed < limit,
        "{mode:?} {family}: {count} datagrams took {elapsed:?}"
    );
    wait::until(LIMIT, "the capture to catch up", || {
        capture.peek(|wire| wire.data_segments) >= count
    })
    .unwrap();

    let wire = capture.stop().unwrap();
    assert_eq!((wire.udp_datagrams, wire.rst), (0, 0), "{wire:#?}");
    assert_eq!(
        (wire.bad_checksums, wire.unready_checksums),
        (0, 0),
        "{wire:#?}"
    );
    assert_eq!((wire.fragments, wire.malformed), (0, 0), "{wire:#?}");
    assert_eq!(wire.data_segments, count, "{wire:#?}");
    assert_eq!(wire.payload_bytes, count * PAYLOAD as u64, "{wire:#?}");
    let bare_acks = wire.tcp_segments - wire.data_segments - wire.syn - wire.syn_ack;
    let needed = bytes / (4 * u64::from(ACK_BYTES));
    assert!(
        bare_acks >= needed,
        "{bare_acks} ACKs for {bytes} bytes: {wire:#?}"
    );

    let after = counters();
    let [sent, restored] = [0, 1].map(|end| status::moved(&before[end], &after[end]));
    assert_eq!(sent["tx_disguised"], count, "{sent:?}");
    assert_eq!(restored["rx_restored"], count, "{restored:?}");
    let lost = ["tx_lost", "tx_opened_lost", "tx_lost_in_queue"];
    assert!(
        lost.iter().all(|name| !sent.contains_key(*name)),
        "{sent:?}"
    );
    assert_eq!(net.router.dropped().unwrap(), Dropped::default());
    let entries = net.router.conntrack("tcp", PORT).unwrap();
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert!(entries[0].contains("ESTABLISHED"), "{entries:?}");
    println!(
        "{mode:?} {family}: {count} datagrams in {elapsed:?}, {:.0} MiB/s",
        bytes as f64 / f64::from(1 << 20) / elapsed.as_secs_f64()
    );
}

fn send(
    socket: &UdpSocket,
    to: SocketAddr,
    count: u64,
    received: &AtomicU64,
    capture: &Capture<WireStats>,
    deadline: Instant,
) {
    let mut payload = vec![0; PAYLOAD];
    for number in 0..count {
        while number - received.load(Ordering::Relaxed) >= UNDER_WAY {
            assert!(
                Instant::now() < deadline,
                "stuck at datagram {number} of {count}"
            );
            thread::yield_now();
        }
        if number % 1024 == 0 {
            let seen = || capture.peek(|wire| wire.data_segments);
            let what = format!("the capture to see datagram {number}");
            wait::until(LIMIT, &what, || number - seen() <= UNSEEN).unwrap();
        }
        fill(&mut payload, number);
        socket.send_to(&payload, to).unwrap();
    }
}

fn receive(socket: &UdpSocket, count: u64, received: &AtomicU64) {
    socket
        .set_read_timeout(Some(wait::stretched(LIMIT).unwrap()))
        .unwrap();
    let mut seen = vec![false; usize::try_from(count).unwrap()];
    let (mut buffer, mut expected) = (vec![0; 2 * PAYLOAD], vec![0; PAYLOAD]);
    for arrived in 0..count {
        let length = socket
            .recv(&mut buffer)
            .unwrap_or_else(|error| panic!("only {arrived} of {count} datagrams arrived: {error}"));
        let number = u64::from_le_bytes(buffer[..8].try_into().unwrap());
        assert!(number < count, "datagram {arrived} is none of ours");
        fill(&mut expected, number);
        assert!(
            buffer[..length] == expected,
            "datagram {number} arrived changed"
        );
        let seen = &mut seen[usize::try_from(number).unwrap()];
        assert!(!*seen, "datagram {number} arrived twice");
        *seen = true;
        received.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_gibibyte_one_way_through_the_strict_router() {
    flood(mode::TC, Family::V4, 1 << 30, Duration::from_secs(60));
}

#[test]
fn one_way_over_ipv6_and_through_xdp() {
    flood(mode::TC, Family::V6, 64 << 20, Duration::from_secs(20));
    flood(mode::XDP, Family::V4, 64 << 20, Duration::from_secs(20));
}

/// Without any pacing the network may lose datagrams, and then xdptun sees gaps
/// in the sequence numbers. The account must still balance: what the client
/// disguised less what the links dropped is what the server restored.
#[test]
fn an_unpaced_flood_is_accounted_for() {
    const COUNT: u64 = 100_000;
    let net = Routed::new().unwrap();
    let (client, server) = (net.client(), &net.server);
    let _attached = mode::TC.attach_to([client, server]).unwrap();
    let sink = udp::Server::sink(&server.netns, server.socket(Family::V4, PORT)).unwrap();
    let source = udp::bind(&client.netns, client.socket(Family::V4, 0)).unwrap();
    source.send_to(b"opens the flow", sink.address()).unwrap();
    wait::until(LIMIT, "the flow", || sink.datagrams() == 1).unwrap();
    let dropped = || dropped(&client.netns, Host::DEV) + dropped(&net.router.netns, Router::WAN);
    let on_links = dropped();
    let payload = udp::pattern(PAYLOAD, 3);
    for _ in 0..COUNT {
        source.send_to(&payload, sink.address()).unwrap();
    }
    let disguised = || status::counter(&client.netns, "tx_disguised").unwrap();
    let restored = || status::counter(&server.netns, "rx_restored").unwrap();
    let mut account = (0, 0, 0);
    let balanced = wait::until(LIMIT, "the account to balance", || {
        account = (disguised(), restored(), dropped() - on_links);
        account.0 == COUNT + 1 && account.0 == account.1 + account.2
    });
    assert!(
        balanced.is_ok(),
        "(disguised, restored, dropped by links) = {account:?}"
    );
    let flows = status::open_states(&server.netns).unwrap();
    assert_eq!(flows, ["established"]);
    assert_eq!(net.router.dropped().unwrap(), Dropped::default());
    // The flow still works after all that.
    source.send_to(b"after it", sink.address()).unwrap();
    let expected = account.1 + 1;
    wait::until(LIMIT, "one more datagram", || restored() == expected).unwrap();
}

/// Packets that a veth end could not hand over.
fn dropped(netns: &Netns, dev: &str) -> u64 {
    let text = netns
        .run("ip", ["-json", "-statistics", "link", "show", "dev", dev])
        .unwrap();
    let links: serde_json::Value = serde_json::from_str(&text).unwrap();
    links[0]["stats64"]["tx"]["dropped"].as_u64().unwrap()
}

//! Super-packets, buffers in pages, and what the tunnel carries.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener};
use std::thread;

use nix::sys::socket::{setsockopt, sockopt};
use xdptun_lab::{Attached, Direct, Family, Host, Kind, Offload, Relayed, link, udp, wait};
use xdptun_test_net::LIMIT;
use xdptun_test_net::mode::{TC, XDP};
use xdptun_test_net::socket::roomy;
use xdptun_test_net::status::{hits, policy_counters};

use crate::wait_counted;

const PORT: u16 = 8000;

fn search(host: &Host, direction: &str, pattern: &str, action: &str) -> Attached {
    let arguments = ["--direction", direction, "--contains", pattern];
    let arguments = [&arguments[..], &["--action", action, "--name", "it"]].concat();
    Attached::policy(&host.netns, Host::DEV, &arguments).unwrap()
}

/// How many datagrams of 1200 bytes one send makes.
const DATAGRAMS: usize = 40;
const SIZE: usize = 1200;

/// The last byte of a super-packet of 48,000, and one byte in the middle, are searched like the
/// first.
#[test]
fn all_of_a_super_packet_is_searched() {
    for family in Family::BOTH {
        let net = Direct::new().unwrap();
        let attached = search(&net.a, "out", "STEPH", "drop");
        let server = roomy(&net.b.netns, net.b.socket(family, PORT)).unwrap();
        let client = roomy(&net.a.netns, net.a.socket(family, 0)).unwrap();
        client.connect(server.local_addr().unwrap()).unwrap();
        setsockopt(&client, sockopt::UdpGsoSegment, &(SIZE as i32)).unwrap();
        let len = DATAGRAMS * SIZE;
        let places = [0, 1, 17 * SIZE + 3, len / 2, len - 5];
        for at in places {
            let mut payload = vec![b'.'; len];
            payload[at..at + 5].copy_from_slice(b"STEPH");
            let _dropped = client.send(&payload);
        }
        client.send(&vec![b'.'; len]).unwrap();
        wait_counted(
            &net.a.netns,
            &[
                ("out_drop_matched", places.len() as u64),
                ("out_searched", 1),
            ],
        );
        attached.stop().unwrap();
    }
}

/// In a stream with the pattern everywhere no packet of bulk is missed, at either end.
#[test]
fn every_packet_of_a_bulk_transfer_matches() {
    const BYTES: usize = 4 << 20;
    for family in Family::BOTH {
        let net = Direct::new().unwrap();
        let sending = search(&net.a, "out", "needle", "count");
        let receiving = search(&net.b, "in", "needle", "count");
        let at = net.b.socket(family, PORT);
        let listener = net.b.netns.enter(|| TcpListener::bind(at)).unwrap();
        let mut near = net.a.netns.enter(|| std::net::TcpStream::connect(at));
        let near = near.as_mut().unwrap().as_mut().unwrap();
        let (mut far, _) = listener.unwrap().accept().unwrap();
        let payload = b"................needle".repeat(BYTES / 22);
        thread::scope(|scope| {
            scope.spawn(|| {
                near.write_all(&payload).unwrap();
                near.shutdown(Shutdown::Write).unwrap();
            });
            let mut received = Vec::new();
            far.read_to_end(&mut received).unwrap();
            assert!(received == payload);
        });
        for (host, [matched, searched]) in [
            (&net.a, ["out_matched", "out_searched"]),
            (&net.b, ["in_matched", "in_searched"]),
        ] {
            let counters = policy_counters(&host.netns).unwrap();
            assert!(counters[matched] > 10, "{counters:?}");
            assert_eq!(counters[matched], hits(&host.netns).unwrap()["it"]);
            // A packet of fewer bytes than the pattern is apart may have none.
            let missed = counters.get(searched).copied().unwrap_or(0);
            assert!(missed <= 1, "{counters:?}");
            // Super-packets: far fewer than there are segments on a wire.
            assert!(counters[matched] < BYTES as u64 / 1500, "{counters:?}");
        }
        sending.stop().unwrap();
        receiving.stop().unwrap();
    }
}

/// A match that begins in the first piece of a buffer and ends in a page.
#[test]
fn a_match_across_the_pieces_of_a_buffer_is_found() {
    let net = Relayed::new(Kind::Tap, Offload::None).unwrap();
    for host in [&net.a, &net.b] {
        link::set_mtu(&host.netns, Host::DEV, 9000).unwrap();
    }
    for family in Family::BOTH {
        let headers = 14 + family.header_len() as u16 + 8;
        let attached = search(&net.b, "in", "STEPH", "drop");
        let client = roomy(&net.a.netns, net.a.socket(family, 0)).unwrap();
        let mut dropped = 0;
        // From only the headers in one piece to all of the match there.
        for linear in [14, headers, headers + 98, headers + 102, headers + 105] {
            net.relay.program(move |frame| {
                let mut frame = frame;
                if frame.bytes.len() > 4096 {
                    frame.vnet = frame.vnet.with_linear(linear);
                }
                vec![frame]
            });
            for at in [100, 4990, 5995] {
                let mut payload = vec![b'.'; 6000];
                payload[at..at + 5].copy_from_slice(b"STEPH");
                client
                    .send_to(&payload, net.b.socket(family, PORT))
                    .unwrap();
                dropped += 1;
            }
            wait_counted(&net.b.netns, &[("in_drop_matched", dropped)]);
        }
        attached.stop().unwrap();
    }
}

/// Rules see datagrams that the tunnel restored, at tc or at XDP, and those that it is about to
/// disguise: each once, whatever becomes of it.
#[test]
fn datagrams_of_the_tunnel_are_searched_once() {
    for mode in [TC, XDP] {
        let net = Direct::new().unwrap();
        let _tunnels = mode.attach_both(&net).unwrap();
        for family in Family::BOTH {
            let sending = search(&net.a, "out", "STEPH", "count");
            let receiving = search(&net.b, "in", "STEPH", "count");
            let server = roomy(&net.b.netns, net.b.socket(family, PORT)).unwrap();
            let client = roomy(&net.a.netns, net.a.socket(family, 0)).unwrap();
            client.connect(server.local_addr().unwrap()).unwrap();
            let get = |count: usize| {
                for _ in 0..count {
                    udp::receive(&server, LIMIT).unwrap();
                }
            };
            // The first one waits with the daemon, which sends it again.
            client.send(b"first STEPH").unwrap();
            get(1);
            client.send(b"second STEPH").unwrap();
            client.send(b"third").unwrap();
            get(2);
            setsockopt(&client, sockopt::UdpGsoSegment, &(SIZE as i32)).unwrap();
            let mut payload = vec![b'.'; DATAGRAMS * SIZE];
            payload[3 * SIZE + 7..][..5].copy_from_slice(b"STEPH");
            client.send(&payload).unwrap();
            get(DATAGRAMS);
            // Whole, before it is split.
            wait_counted(&net.a.netns, &[("out_matched", 3), ("out_searched", 1)]);
            wait_counted(
                &net.b.netns,
                &[("in_matched", 3), ("in_searched", DATAGRAMS as u64)],
            );
            sending.stop().unwrap();
            receiving.stop().unwrap();
        }
    }
}

/// What is dropped on its way out never becomes a segment.
#[test]
fn a_drop_comes_before_the_tunnel() {
    let net = Direct::new().unwrap();
    let _tunnels = TC.attach_both(&net).unwrap();
    let attached = search(&net.a, "out", "STEPH", "drop");
    let server = udp::Server::echo(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
    let client = udp::bind(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
    udp::exchange(&client, server.address(), b"hello", LIMIT).unwrap();
    let before = server.datagrams();
    let _dropped = client.send_to(b"STEPH", server.address());
    wait_counted(
        &net.a.netns,
        &[("out_searched", 1), ("out_drop_matched", 1)],
    );
    udp::exchange(&client, server.address(), b"again", LIMIT).unwrap();
    wait::until(LIMIT, "the datagrams", || server.datagrams() == before + 1).unwrap();
    attached.stop().unwrap();
}

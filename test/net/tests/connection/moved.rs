//! An attacker guessed the numbers of an idle flow, and moved the acknowledgement number of
//! one end: the other end refuses its segments. Both recover.

use std::time::Duration;

use etherparse::TcpHeader;
use xdptun_lab::{Direct, Family, udp, wait};
use xdptun_test_net::forgery::Flow;
use xdptun_test_net::{LIMIT, PORT, mode, raw, socket, status};

/// How long a path may be dead, docs/security.md.
const RECOVERY: Duration = Duration::from_secs(3);
/// The window of a probe.
const ASKING: u16 = 0xf800;

/// Forges segments of the server with `forge`, which gets the next number of the server, until
/// the server refuses what the client sends. Then the client sends on until that arrives;
/// returns how many SYNs it took.
fn moves(family: Family, forge: fn(&mut TcpHeader, u32), payload: &[u8]) -> u64 {
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach_both(&net).unwrap();
    let server = socket::roomy(&net.b.netns, net.b.socket(family, PORT)).unwrap();
    let client = socket::roomy(&net.a.netns, net.a.socket(family, 0)).unwrap();
    client.connect(net.b.socket(family, PORT)).unwrap();
    let flow = Flow::learn(&net, &client, || {
        client.send(b"call").unwrap();
        let (_, caller) = udp::receive(&server, LIMIT).unwrap();
        server.send_to(b"answer", caller).unwrap();
        udp::receive(&client, LIMIT).unwrap();
    })
    .unwrap();
    let count = |netns, name| status::counter(netns, name).unwrap();
    let refused = || {
        let fill = |header: &mut TcpHeader| {
            header.ack = true;
            header.acknowledgment_number = flow.acknowledged;
            forge(header, flow.next);
        };
        raw::send_segment(&net.b.netns, flow.server, flow.client, fill, payload).unwrap();
        client.send(b"to be refused").unwrap();
        count(&net.b.netns, "rx_drop_sequence") > 0
    };
    wait::until(LIMIT, "the numbers to be refused", refused).unwrap();
    let syns = count(&net.a.netns, "sent_syn");
    server.set_nonblocking(true).unwrap();
    while server.recv(&mut [0; 64]).is_ok() {}
    let arrived = || {
        client.send(b"again").unwrap();
        let mut buffer = [0; 64];
        server
            .recv(&mut buffer)
            .is_ok_and(|len| &buffer[..len] == b"again")
    };
    wait::until(RECOVERY, "a datagram to arrive", arrived).unwrap();
    count(&net.a.netns, "sent_syn") - syns
}

/// The challenge to the first refused datagram says how far.
#[test]
fn ahead_the_next_datagram_passes() {
    for family in Family::BOTH {
        let forge = |header: &mut TcpHeader, next: u32| {
            header.psh = true;
            header.sequence_number = next.wrapping_add(500_000);
        };
        assert_eq!(moves(family, forge, b"forged"), 0, "{family}");
    }
}

/// Only the peer knows its latest acknowledgement, so the flow is opened again.
#[test]
fn back_the_flow_is_opened_again() {
    for family in Family::BOTH {
        let forge = |header: &mut TcpHeader, next: u32| {
            header.window_size = ASKING;
            header.sequence_number = next.wrapping_sub(1001);
        };
        assert!(moves(family, forge, b"") > 0, "{family}");
    }
}

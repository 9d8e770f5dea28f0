//! The programmable wire, checked for real.

use std::net::UdpSocket;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use xdptun_lab::segment::{Checksum, Content, parse};
use xdptun_lab::{Capture, Family, Frame, Host, Kind, Offload, Relayed, Side, WireStats};
use xdptun_lab::{link, udp};

const LIMIT: Duration = Duration::from_secs(10);
const PORT: u16 = 8000;

fn pair(net: &Relayed, family: Family) -> (UdpSocket, UdpSocket) {
    let server = udp::bind(&net.b.netns, net.b.socket(family, PORT)).unwrap();
    let client = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
    client.connect(server.local_addr().unwrap()).unwrap();
    (client, server)
}

fn checksums(frames: &[Frame]) -> Vec<Checksum> {
    let contents = frames.iter().map(|frame| parse(frame).unwrap());
    contents
        .filter_map(|content| match content {
            Content::Transport(packet) if packet.has_port(PORT) => Some(packet.checksum),
            _ => None,
        })
        .collect()
}

/// What the relay keeps, what a capture on either kind of device shows, and
/// whether kernel or device writes the checksum.
#[test]
fn frames_pass_and_are_kept() {
    for kind in Kind::BOTH {
        for (offload, checksum) in [
            (Offload::None, Checksum::Good),
            (Offload::Checksum, Checksum::NotReady),
        ] {
            let net = Relayed::new(kind, offload).unwrap();
            for family in Family::BOTH {
                let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
                let client = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
                net.relay.sent().unwrap();
                let capture = Capture::start(&net.a.netns, Host::DEV).unwrap();
                for length in [0, 1, 1399] {
                    let payload = udp::pattern(length, 7);
                    udp::exchange(&client, server.address(), &payload, LIMIT).unwrap();
                }
                let context = format!("{kind:?}, {offload:?}, {family}");
                let seen = WireStats::of(PORT, &capture.stop().unwrap());
                assert_eq!(seen.udp_datagrams, 6, "{context}: {seen:#?}");
                assert_eq!(
                    (seen.bad_checksums, seen.malformed),
                    (0, 0),
                    "{context}: {seen:#?}"
                );
                let sent = net.relay.sent().unwrap();
                assert_eq!(checksums(&sent), [checksum; 6], "{context}");
            }
        }
    }
}

#[test]
fn a_program_decides_what_arrives() {
    for kind in Kind::BOTH {
        let net = Relayed::new(kind, Offload::None).unwrap();
        for family in Family::BOTH {
            net.relay.pass();
            let (client, server) = pair(&net, family);
            client.send(b"passes").unwrap();
            assert_eq!(udp::receive(&server, LIMIT).unwrap().0, b"passes");
            net.relay.program(|frame| {
                if frame.bytes.ends_with(b"lost") {
                    Vec::new()
                } else if frame.bytes.ends_with(b"doubled") {
                    vec![frame.clone(), frame]
                } else {
                    vec![frame]
                }
            });
            for payload in [&b"lost"[..], b"doubled", b"last"] {
                client.send(payload).unwrap();
            }
            for expected in [&b"doubled"[..], b"doubled", b"last"] {
                assert_eq!(udp::receive(&server, LIMIT).unwrap().0, expected);
            }
        }
    }
}

/// A super-packet reaches the relay whole only if the device takes such.
#[test]
fn segmentation_is_left_to_the_wire_if_it_is_offered() {
    for (offload, pieces) in [(Offload::Checksum, 3), (Offload::Segmentation, 1)] {
        let net = Relayed::new(Kind::Tun, offload).unwrap();
        for family in Family::BOTH {
            let (client, server) = pair(&net, family);
            setsockopt(&client, sockopt::UdpGsoSegment, &1000).unwrap();
            net.relay.sent().unwrap();
            client.send(&udp::pattern(3000, 1)).unwrap();
            for _ in 0..3 {
                assert_eq!(udp::receive(&server, LIMIT).unwrap().0.len(), 1000);
            }
            let sent = net.relay.sent_from(Side::A).unwrap();
            assert_eq!(checksums(&sent).len(), pieces, "{offload:?}, {family}");
        }
    }
}

#[test]
fn the_devices_are_gone_with_the_relay() {
    let net = Relayed::new(Kind::Tap, Offload::None).unwrap();
    let netns = net.a.netns.clone();
    assert!(link::names(&netns).unwrap().contains(&Host::DEV.to_owned()));
    drop(net);
    assert_eq!(link::names(&netns).unwrap(), ["lo"]);
}

//! Buffers of which only the link header is in one piece, as drivers make them
//! that receive into pages: nothing may go unseen because it lies elsewhere.

use nix::libc;
use socket2::SockRef;
use xdptun_lab::{Direct, Family, Host, Kind, Offload, Relayed, link, sockopt, udp};
use xdptun_test_net::mode;
use xdptun_test_net::packet::{TcpPacket, data};
use xdptun_test_net::{LIMIT, PORT, socket, status};

/// Longer than a page, or the kernel makes one piece of the frame.
const LENGTHS: [usize; 3] = [4500, 6001, 8800];

const LINK_HEADER: u16 = 14;

/// A wire that leaves nothing but the link header in one piece, and changes
/// segments with data by `alter`.
fn network(alter: fn(&mut TcpPacket)) -> Relayed {
    let net = Relayed::new(Kind::Tap, Offload::None).unwrap();
    for host in [&net.a, &net.b] {
        link::set_mtu(&host.netns, Host::DEV, 9000).unwrap();
    }
    net.relay.program(move |frame| {
        let mut frame = match data(Kind::Tap, &frame) {
            Some(mut packet) => {
                alter(&mut packet);
                frame.with_bytes(packet.write())
            }
            None => frame,
        };
        if frame.bytes.len() > 4096 {
            frame.vnet = frame.vnet.with_linear(LINK_HEADER);
        }
        vec![frame]
    });
    net
}

#[test]
fn segments_are_restored() {
    let alterations: [fn(&mut TcpPacket); 3] = [
        |_| {},
        |packet| {
            packet.set_v4_options(&[1; 40]);
            packet.set_v6_options(Some(&[1, 4, 0, 0, 0, 0]), None);
        },
        |packet| packet.set_tcp_options(&[1; 40]),
    ];
    for alter in alterations {
        let net = network(alter);
        let _attached = mode::TC.attach_to([&net.a, &net.b]).unwrap();
        for family in Family::BOTH {
            let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
            let client = socket::roomy(&net.a.netns, net.a.socket(family, 0)).unwrap();
            for length in LENGTHS {
                let payload = udp::pattern(length, 3);
                udp::exchange(&client, server.address(), &payload, LIMIT)
                    .unwrap_or_else(|error| panic!("{family}, {length} bytes: {error:#}"));
            }
        }
    }
}

/// With options before them, so that the ports are far behind.
/// The kernel leaves the payload in the sender's pages, and its checksum to the device.
#[test]
fn datagrams_in_the_pages_of_their_sender_are_disguised() {
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach_to([&net.a, &net.b]).unwrap();
    for family in Family::BOTH {
        let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
        let client = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
        client.connect(server.address()).unwrap();
        client.set_read_timeout(Some(LIMIT)).unwrap();
        sockopt::set_int(&client, libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1).unwrap();
        for length in [1, 47, 48, 100, 1000, 1300] {
            let payload = udp::pattern(length, 5);
            let sent = SockRef::from(&client).send_with_flags(&payload, libc::MSG_ZEROCOPY);
            assert_eq!(sent.unwrap(), length);
            let mut answer = vec![0; length + 1];
            let received = client.recv(&mut answer);
            let received = received.unwrap_or_else(|error| {
                let counters = status::counters(&net.a.netns);
                panic!("{family}, {length} bytes: {error}; {counters:?}")
            });
            assert!(answer[..received] == payload, "{family}, {length} bytes");
        }
    }
}

#[test]
fn plain_datagrams_do_not_pass() {
    let net = network(|_| {});
    let _attached = mode::TC.attach(&net.b, &["--port", "8000"]).unwrap();
    for family in Family::BOTH {
        let client = socket::roomy(&net.a.netns, net.a.socket(family, 0)).unwrap();
        let (level, name, options) = match family {
            Family::V4 => (libc::IPPROTO_IP, libc::IP_OPTIONS, vec![1; 40]),
            Family::V6 => (
                libc::IPPROTO_IPV6,
                libc::IPV6_DSTOPTS,
                [&[0, 7, 0x1e, 60][..], &[0; 60]].concat(),
            ),
        };
        for options in [Vec::new(), options] {
            sockopt::set(&client, level, name, &options).unwrap();
            let before = status::counters(&net.b.netns).unwrap();
            let payload = udp::pattern(5000, 1);
            client
                .send_to(&payload, net.b.socket(family, PORT))
                .unwrap();
            status::wait_moved(&net.b.netns, &before, &[("rx_drop_plain_udp", 1)]).unwrap();
        }
    }
}

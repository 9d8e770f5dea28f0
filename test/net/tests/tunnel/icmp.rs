//! ICMP errors of the network: they are about segments, and must reach the
//! socket that sent the datagram.

use std::net::UdpSocket;

use nix::errno::Errno;
use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Family, Kind, Offload, Relayed, Side, secret, udp, wait};
use xdptun_test_net::icmp::{Quote, Trouble, error};
use xdptun_test_net::mode;
use xdptun_test_net::packet::{TcpPacket, data};
use xdptun_test_net::socket::{discover_path, let_fragment, path_mtu, roomy, wait_error};
use xdptun_test_net::status::{self, Counters};
use xdptun_test_net::{LIMIT, PORT};

/// A payload that fits the wire and nothing narrower.
const LARGE: usize = 1400;

/// Two hosts with an open flow.
struct Opened {
    client: UdpSocket,
    server: udp::Server,
}

impl Opened {
    /// By a socket that asks what fits.
    fn new(net: &Relayed, family: Family) -> Self {
        let client = roomy(&net.a.netns, net.a.socket(family, 0)).unwrap();
        discover_path(&client, family).unwrap();
        Self::by(client, net, family)
    }

    fn by(client: UdpSocket, net: &Relayed, family: Family) -> Self {
        net.relay.pass();
        let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
        client.connect(server.address()).unwrap();
        let opened = Self { client, server };
        opened.exchange(LARGE);
        assert_eq!(path_mtu(&opened.client, family).unwrap(), 1500);
        opened
    }

    fn exchange(&self, length: usize) {
        let payload = udp::pattern(length, 7);
        udp::exchange(&self.client, self.server.address(), &payload, LIMIT).unwrap();
    }

    fn send(&self, length: usize) -> Result<usize, Errno> {
        let sent = self.client.send(&udp::pattern(length, 8));
        sent.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap()))
    }
}

/// Makes the wire answer data of A that is longer than `mtu` with an error
/// about it, its quote changed by `alter`.
fn complain(net: &Relayed, mtu: usize, trouble: Trouble, quote: Quote, alter: fn(&mut TcpPacket)) {
    let kind = net.kind;
    net.relay.program(move |frame| match data(kind, &frame) {
        Some(mut packet) if frame.to == Side::B && frame.bytes.len() > mtu + kind.header_len() => {
            alter(&mut packet);
            vec![error(
                kind,
                &frame.with_bytes(packet.write()),
                trouble,
                quote,
            )]
        }
        _ => vec![frame],
    });
}

fn as_it_was(_: &mut TcpPacket) {}

/// Compares the counters that changed at A with the expected ones.
fn assert_moved(net: &Relayed, before: &Counters, expected: &[(&str, u64)], context: &str) {
    let moved = status::moved(before, &status::counters(&net.a.netns).unwrap());
    let moved = status::apart_from_timed(moved);
    assert_eq!(moved, status::expected(expected), "{context}");
}

fn each_case(test: impl Fn(&Relayed, Family, Quote, &str)) {
    each_case_with(&[], test);
}

fn each_case_with(more: &[&str], test: impl Fn(&Relayed, Family, Quote, &str)) {
    for kind in Kind::BOTH {
        let net = Relayed::new(kind, Offload::None).unwrap();
        let _attached = mode::TC.attach_with([&net.a, &net.b], more).unwrap();
        for family in Family::BOTH {
            for quote in Quote::BOTH {
                for version in ["-4", "-6"] {
                    // A path MTU outlives the flow.
                    let flush = [version, "route", "flush", "cache"];
                    net.a.netns.run("ip", flush).unwrap();
                }
                test(
                    &net,
                    family,
                    quote,
                    &format!("{kind:?}, {family}, {quote:?}"),
                );
            }
        }
    }
}

/// A socket that does not care what fits, as that of WireGuard in the kernel: its host hears
/// of the path MTU, by which it cuts its next datagrams into pieces.
#[test]
fn a_narrow_link_on_the_way_is_known_to_the_host_of_a_socket_that_fragments() {
    each_case(|net, family, quote, context| {
        let client = roomy(&net.a.netns, net.a.socket(family, 0)).unwrap();
        let_fragment(&client, family).unwrap();
        let opened = Opened::by(client, net, family);
        let before = status::counters(&net.a.netns).unwrap();
        complain(net, 1300, Trouble::TooBig { mtu: 1300 }, quote, as_it_was);
        opened.send(LARGE).unwrap();
        wait::until_some(LIMIT, "the path MTU", || {
            Ok((path_mtu(&opened.client, family)? == 1288).then_some(()))
        })
        .unwrap();
        opened.exchange(1000);
        let moved = [("tx_disguised", 2), ("rx_icmp", 1), ("rx_restored", 1)];
        assert_moved(net, &before, &moved, context);
    });
}

/// A segment of 1300 bytes carries a datagram of 1288.
#[test]
fn a_narrow_link_on_the_way_becomes_the_path_mtu() {
    each_case(becomes_the_path_mtu);
}

/// What is remembered of a segment is what left.
#[test]
fn a_narrow_link_becomes_the_path_mtu_under_the_veil() {
    let directory = Scratch::new().unwrap();
    let secret = secret::write(directory.path(), "secret", "correct horse battery").unwrap();
    each_case_with(&["--secret", &secret, "--veil"], becomes_the_path_mtu);
}

fn becomes_the_path_mtu(net: &Relayed, family: Family, quote: Quote, context: &str) {
    let opened = Opened::new(net, family);
    let before = status::counters(&net.a.netns).unwrap();
    complain(net, 1300, Trouble::TooBig { mtu: 1300 }, quote, as_it_was);
    opened.send(LARGE).unwrap();
    let heard = wait_error(&opened.client).unwrap();
    assert_eq!(heard, Errno::EMSGSIZE, "{context}");
    assert_eq!(path_mtu(&opened.client, family).unwrap(), 1288, "{context}");
    let fits = 1288 - family.header_len() - 8;
    assert_eq!(opened.send(fits + 1), Err(Errno::EMSGSIZE), "{context}");
    opened.exchange(fits);
    let moved = [("tx_disguised", 2), ("rx_icmp", 1), ("rx_restored", 1)];
    assert_moved(net, &before, &moved, context);
}

#[test]
fn what_cannot_be_reached_is_an_error_on_the_socket() {
    each_case(|net, family, quote, context| {
        let opened = Opened::new(net, family);
        for (trouble, expected) in [
            (Trouble::Port, Errno::ECONNREFUSED),
            (Trouble::Host, Errno::EHOSTUNREACH),
        ] {
            let context = format!("{context}, {trouble:?}");
            let before = status::counters(&net.a.netns).unwrap();
            complain(net, 1300, trouble, quote, as_it_was);
            opened.send(LARGE).unwrap();
            let heard = wait_error(&opened.client).unwrap();
            assert_eq!(heard, expected, "{context}");
            assert_eq!(path_mtu(&opened.client, family).unwrap(), 1500, "{context}");
            // It was about one datagram; the flow goes on.
            opened.exchange(100);
            let moved = [("tx_disguised", 2), ("rx_icmp", 1), ("rx_restored", 1)];
            assert_moved(net, &before, &moved, &context);
        }
    });
}

/// A sender off the path does not know the sequence number.
#[test]
fn a_quote_that_was_not_sent_changes_nothing() {
    each_case(|net, family, quote, context| {
        let opened = Opened::new(net, family);
        let before = status::counters(&net.a.netns).unwrap();
        complain(net, 1300, Trouble::TooBig { mtu: 1300 }, quote, |packet| {
            packet.tcp.sequence_number ^= 1 << 31;
        });
        opened.send(LARGE).unwrap();
        // Its echo comes after the error.
        opened.exchange(100);
        let moved = [("tx_disguised", 2), ("rx_drop_icmp", 1), ("rx_restored", 1)];
        assert_moved(net, &before, &moved, context);
        assert!(opened.client.take_error().unwrap().is_none(), "{context}");
        assert_eq!(path_mtu(&opened.client, family).unwrap(), 1500, "{context}");
    });
}

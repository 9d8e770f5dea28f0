//! What a host's own TCP would not take is not answered and ends nothing: damaged segments,
//! and those from and to addresses that no connection has.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};

use etherparse::TcpHeader;
use xdptun_lab::topology::Router;
use xdptun_lab::{Attached, Direct, Family, Host, Netns, burst, link, udp, wait};
use xdptun_test_net::forgery::Flow;
use xdptun_test_net::nets::Plain;
use xdptun_test_net::{LIMIT, PORT, mode, raw, status};

/// Where the checksum is in the TCP header of a packet without options.
fn checksum_at(family: Family) -> usize {
    family.header_len() + 16
}

/// An address that no host has.
fn nobody(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(10, 0, 0, 99).into(),
        Family::V6 => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x99).into(),
    }
}

/// Addresses of many hosts: of the network of [`Direct`], and of a link.
fn many(family: Family) -> Vec<IpAddr> {
    match family {
        Family::V4 => vec![
            Ipv4Addr::new(10, 0, 0, 255).into(),
            Ipv4Addr::new(224, 0, 0, 1).into(),
            Ipv4Addr::BROADCAST.into(),
        ],
        Family::V6 => vec![Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).into()],
    }
}

/// The IP packet of a SYN.
fn syn(from: IpAddr, to: IpAddr) -> Vec<u8> {
    let [from, to] = [SocketAddr::new(from, 40_000), SocketAddr::new(to, PORT)];
    let fill = |tcp: &mut TcpHeader| (tcp.syn, tcp.sequence_number) = (true, 1000);
    raw::segment(from, to, fill, b"").unwrap()
}

/// The same packet with one byte changed.
fn damaged(mut packet: Vec<u8>, at: usize) -> Vec<u8> {
    packet[at] ^= 0x10;
    packet
}

/// Sends a packet from host A's end of the wire to host B, whatever its addresses are.
fn send(net: &Direct, packet: &[u8]) {
    let addresses =
        [&net.b, &net.a].map(|host| link::ethernet_address(&host.netns, Host::DEV).unwrap());
    send_frame(net, &raw::frame(addresses, packet));
}

fn send_frame(net: &Direct, frame: &[u8]) {
    burst::send_all(&net.a.netns, Host::DEV, &[frame.to_vec()]).unwrap();
}

/// All counters that a packet moves at host B.
const ANSWERED: &[(&str, u64)] = &[("rx_syn", 1), ("sent_syn_ack", 1)];
const DAMAGED: &[(&str, u64)] = &[("rx_drop_checksum", 1)];
const REFUSED: &[(&str, u64)] = &[("rx_drop_address", 1)];

#[test]
fn a_syn_is_answered_if_the_hosts_own_tcp_would_take_it() {
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach(&net.b, &["--port", "8000"]).unwrap();
    for family in Family::BOTH {
        let (host, stranger) = (net.b.address(family), nobody(family));
        let good = syn(stranger, host);
        let mut cases = vec![
            ("good".to_owned(), good.clone(), ANSWERED),
            (
                "a wrong checksum".to_owned(),
                damaged(good.clone(), checksum_at(family)),
                DAMAGED,
            ),
            (
                "to nobody".to_owned(),
                syn(stranger, nobody(family)),
                REFUSED,
            ),
            ("from the host".to_owned(), syn(host, host), REFUSED),
        ];
        if family == Family::V4 {
            let header = damaged(good.clone(), 10);
            cases.push(("a wrong header checksum".to_owned(), header, DAMAGED));
        }
        for many in many(family) {
            cases.push((format!("to {many}"), syn(stranger, many), REFUSED));
            cases.push((format!("from {many}"), syn(many, host), REFUSED));
        }
        for (name, packet, counted) in cases {
            let before = status::counters(&net.b.netns).unwrap();
            send(&net, &packet);
            let moved = status::wait_moved(&net.b.netns, &before, counted);
            moved.unwrap_or_else(|error| panic!("{family}, {name}: {error:#}"));
        }
        let source = link::ethernet_address(&net.a.netns, Host::DEV).unwrap();
        let before = status::counters(&net.b.netns).unwrap();
        send_frame(&net, &raw::frame([[0xff; 6], source], &good));
        status::wait_moved(&net.b.netns, &before, REFUSED).unwrap();
    }
}

/// A TCP whose packets pass no wire leaves the checksum to a device that is not there: in
/// the field is the sum of the pseudo-header alone, as [`damaged`] segments may have it.
#[test]
fn a_checksum_that_is_left_to_the_device_is_believed() {
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach(&net.b, &["--port", "8000"]).unwrap();
    for (family, left) in [
        (Family::V4, true),
        (Family::V4, false),
        (Family::V6, true),
        (Family::V6, false),
    ] {
        net.a.offload("tx", left).unwrap();
        let before = status::counters(&net.b.netns).unwrap();
        let to = net.b.socket(family, PORT);
        let connect = || TcpStream::connect_timeout(&to, LIMIT);
        let connection = net.a.netns.enter(connect).unwrap();
        drop(connection.unwrap_or_else(|error| panic!("{to}, left: {left}: {error}")));
        let counted = ["rx_syn", "rx_ack", "rx_fin"];
        wait::until(LIMIT, "the connection to be over", || {
            let moved = status::moved(&before, &status::counters(&net.b.netns).unwrap());
            assert!(!moved.contains_key("rx_drop_checksum"), "{moved:?}");
            counted.iter().all(|name| moved.contains_key(*name))
        })
        .unwrap();
    }
}

#[test]
fn a_damaged_reset_does_not_end_a_flow() {
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach_both(&net).unwrap();
    for family in Family::BOTH {
        let echo = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
        let socket = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
        udp::exchange(&socket, echo.address(), b"open", LIMIT).unwrap();
        let flow = Flow::learn(&net, &socket, || {
            udp::exchange(&socket, echo.address(), b"hello", LIMIT).unwrap();
        })
        .unwrap();
        let segment = |fill: fn(&mut TcpHeader)| {
            let fill = |tcp: &mut TcpHeader| {
                tcp.sequence_number = flow.acknowledged;
                tcp.acknowledgment_number = flow.next;
                fill(tcp);
            };
            raw::segment(flow.client, flow.server, fill, b"").unwrap()
        };
        let reset = segment(|tcp| tcp.rst = true);
        let end = segment(|tcp| (tcp.fin, tcp.ack) = (true, true));
        for packet in [&reset, &end] {
            let before = status::counters(&net.b.netns).unwrap();
            send(&net, &damaged(packet.clone(), checksum_at(family)));
            status::wait_moved(&net.b.netns, &before, DAMAGED).unwrap();
        }
        udp::exchange(&socket, echo.address(), b"still there", LIMIT).unwrap();
        // The same reset ends it if its checksum is right: its number is the exact one.
        let before = status::counters(&net.b.netns).unwrap();
        let flow = Flow::learn(&net, &socket, || {
            udp::exchange(&socket, echo.address(), b"again", LIMIT).unwrap();
        })
        .unwrap();
        let fill = |tcp: &mut TcpHeader| {
            (tcp.rst, tcp.sequence_number) = (true, flow.acknowledged);
        };
        send(
            &net,
            &raw::segment(flow.client, flow.server, fill, b"").unwrap(),
        );
        wait::until(LIMIT, "the flow to end", || {
            let moved = status::moved(&before, &status::counters(&net.b.netns).unwrap());
            moved.get("rx_rst") == Some(&1)
        })
        .unwrap();
    }
}

/// Sends SYNs to an address until host B counts one so.
fn wait_counted(net: &Direct, packet: &[u8], counter: &str) {
    let before = status::counters(&net.b.netns).unwrap();
    wait::until(LIMIT, counter, || {
        send(net, packet);
        let moved = status::moved(&before, &status::counters(&net.b.netns).unwrap());
        moved.contains_key(counter)
    })
    .unwrap();
}

fn ip(netns: &Netns, command: &str) {
    netns.run("ip", command.split(' ')).unwrap();
}

#[test]
fn addresses_that_come_and_go_are_known() {
    let net = Direct::new().unwrap();
    let dev = Host::DEV;
    let attached = mode::TC.attach(&net.b, &["--port", "8000"]).unwrap();
    let changes = |address: &str, network: &str, all: &str| {
        [
            format!("address {{}} {address} dev {dev}"),
            format!("route {{}} local {network} dev lo"),
            // For packets that a rule chooses, as for TPROXY. No source is wrong for it.
            format!("route {{}} local {all} dev lo table 1000"),
        ]
    };
    let v4 = changes("10.0.0.99/24", "10.0.0.64/26", "0.0.0.0/0");
    let v6 = changes("fd00::99/64 nodad", "fd00::80/121", "::/0");
    for (family, changes) in [(Family::V4, v4), (Family::V6, v6)] {
        let syn = syn(nobody_else(family), nobody(family));
        for change in changes {
            wait_counted(&net, &syn, "rx_drop_address");
            ip(&net.b.netns, &change.replace("{}", "add"));
            wait_counted(&net, &syn, "rx_syn");
            let delete = change.replace("{}", "delete").replace(" nodad", "");
            ip(&net.b.netns, &delete);
        }
        wait_counted(&net, &syn, "rx_drop_address");
    }
    // Without a daemon, and with the next one, it is as it was.
    ip(&net.b.netns, &format!("address add 10.0.0.99/24 dev {dev}"));
    let syn = syn(nobody_else(Family::V4), nobody(Family::V4));
    wait_counted(&net, &syn, "rx_syn");
    let _remains = attached.kill().unwrap();
    let one = |counted| {
        let before = status::counters(&net.b.netns).unwrap();
        send(&net, &syn);
        status::wait_moved(&net.b.netns, &before, counted).unwrap();
    };
    one(ANSWERED);
    let _next = mode::TC.attach(&net.b, &["--port", "8000"]).unwrap();
    one(ANSWERED);
}

/// Hosts on different links can share a link-local address, but no other address.
#[test]
fn a_neighbour_may_have_a_link_local_address_of_this_host() {
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach(&net.b, &["--port", "8000"]).unwrap();
    let cases = [("fe80::77", "rx_syn"), ("fd00::77", "rx_drop_address")];
    for (address, counted) in cases {
        ip(&net.b.netns, &format!("address add {address}/64 dev lo"));
        let syn = syn(address.parse().unwrap(), net.b.address(Family::V6));
        wait_counted(&net, &syn, counted);
    }
}

/// Another address that no host has.
fn nobody_else(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(10, 0, 0, 10).into(),
        Family::V6 => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x10).into(),
    }
}

/// The host behind a router is called from beyond it, and knows nothing of the disguise.
#[test]
fn a_router_answers_for_the_hosts_behind_it() {
    let Plain(net) = &Plain::new().unwrap();
    let router = &net.router.netns;
    let attach = ["--port", "8000", "--ingress", "tc"];
    let _near = Attached::start(router, Router::WAN, &attach).unwrap();
    let _far = mode::TC.attach(&net.server, &["--port", "8000"]).unwrap();
    for family in Family::BOTH {
        let client = net.client();
        let echo = udp::Server::echo(&client.netns, client.socket(family, PORT)).unwrap();
        let called = || udp::bind(&net.server.netns, net.server.socket(family, 0)).unwrap();
        udp::exchange(&called(), echo.address(), b"come in", LIMIT).unwrap();
        // A host that forwards nothing has no hosts behind it.
        let key = match family {
            Family::V4 => "net.ipv4.conf.all.forwarding",
            Family::V6 => "net.ipv6.conf.all.forwarding",
        };
        router.sysctl(key, "0").unwrap();
        let before = status::counters_on(router, Router::WAN).unwrap();
        called()
            .send_to(b"is anyone there?", echo.address())
            .unwrap();
        wait::until_some(LIMIT, "the SYN to be refused", || {
            let after = status::counters_on(router, Router::WAN)?;
            let moved = status::moved(&before, &after);
            Ok(moved.contains_key("rx_drop_address").then_some(()))
        })
        .unwrap();
    }
}

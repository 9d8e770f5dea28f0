//! MTUs and hops of the path.

use std::io::ErrorKind;
use std::net::{Ipv6Addr, UdpSocket};

use nix::errno::Errno;
use nix::libc;
use xdptun_lab::path::narrow;
use xdptun_lab::{Capture, Family, Frame, Host, Inside, Netns, sockopt, udp, wait};
use xdptun_test_net::LIMIT;
use xdptun_test_net::socket::{discover_path, path_mtu, wait_error};
use xdptun_test_net::translated::{all_passed, behind_prefix, called, nat64};

/// Sends this much, which is too much, and tells what the path takes.
fn learned(socket: &UdpSocket, family: Family, length: usize) -> i32 {
    discover_path(socket, family).unwrap();
    socket.send(&udp::pattern(length, 1)).unwrap();
    assert_eq!(wait_error(socket).unwrap(), Errno::EMSGSIZE);
    path_mtu(socket, family).unwrap()
}

/// A socket of a client and one of the server, which know each other.
fn pair(net: &Inside) -> [UdpSocket; 2] {
    let [server, _] = &net.outside;
    let near = udp::bind(&net.a.netns, (net.a.v6, 0)).unwrap();
    let far = udp::bind(&server.netns, (server.v4, 7)).unwrap();
    near.connect(called(server.v4, 7)).unwrap();
    near.send(b"hello").unwrap();
    let (_, from) = udp::receive(&far, LIMIT).unwrap();
    far.connect(from).unwrap();
    [near, far]
}

#[test]
fn a_server_learns_what_the_headers_of_ipv6_leave_it() {
    for (mtu, expected) in [("1500", 1480), ("1400", 1380)] {
        let net = Inside::new().unwrap();
        let attached = nat64(&net, &["--mtu", mtu]);
        let [near, far] = pair(&net);
        assert_eq!(learned(&far, Family::V4, 1472), expected);
        let most = udp::pattern(usize::try_from(expected).unwrap() - 28, 6);
        far.send(&most).unwrap();
        let received = attached.explain(udp::receive(&near, LIMIT)).unwrap();
        assert!(received.0 == most);
        attached.explain(all_passed(&net.gateway)).unwrap();
        attached.stop().unwrap();
    }
}

#[test]
fn a_client_learns_what_a_narrow_path_of_ipv4_takes() {
    let net = Inside::new().unwrap();
    let attached = nat64(&net, &[]);
    let [near, far] = pair(&net);
    let _narrow = narrow(&net.router, Inside::OUT[0], 1400).unwrap();
    assert_eq!(learned(&near, Family::V6, 1452), 1420);
    let most = udp::pattern(1420 - 48, 6);
    near.send(&most).unwrap();
    let received = attached.explain(udp::receive(&far, LIMIT)).unwrap();
    assert!(received.0 == most);
    attached.explain(all_passed(&net.gateway)).unwrap();
    attached.stop().unwrap();
}

/// The hop limit of packets that arrived, by where they came from.
fn hop_limits(frames: &[Frame], version: u8) -> Vec<u8> {
    let arrived = frames.iter().filter(|frame| !frame.outgoing);
    let packets = arrived.map(|frame| &frame.bytes[14..]);
    let of_version = packets.filter(|packet| packet[0] >> 4 == version);
    // UDP alone: neighbours and others have limits of their own.
    let datagrams = of_version.filter(|packet| match version {
        4 => packet[9] == 17,
        _ => packet[6] == 17,
    });
    datagrams
        .map(|packet| match version {
            4 => packet[8],
            _ => packet[7],
        })
        .collect()
}

/// This host routes a packet twice, before and after it is translated. The router is one more.
#[test]
fn the_hop_limit_falls_by_two() {
    let net = Inside::new().unwrap();
    let attached = nat64(&net, &[]);
    let [near, far] = pair(&net);
    let wires = [&net.outside[0].netns, &net.a.netns];
    let [there, back] = wires.map(|netns: &Netns| Capture::start(netns, Host::DEV).unwrap());
    for socket in [&near, &far] {
        socket.send(b"hops").unwrap();
    }
    udp::receive(&far, LIMIT).unwrap();
    udp::receive(&near, LIMIT).unwrap();
    assert_eq!(hop_limits(&there.stop().unwrap(), 4), [64 - 3]);
    assert_eq!(hop_limits(&back.stop().unwrap(), 6), [64 - 3]);
    attached.stop().unwrap();
}

/// What traceroute sees: the gateway twice, as a router of IPv6 and with the device's own address, then
/// routers of IPv4 behind the prefix.
#[test]
fn hops_of_ipv4_are_seen_behind_the_prefix() {
    let net = Inside::new().unwrap();
    let attached = nat64(&net, &[]);
    let [near, _far] = pair(&net);
    let gateway: Ipv6Addr = "fd00:7::1".parse().unwrap();
    let device = behind_prefix("100.64.0.1".parse().unwrap());
    for (hops, expected) in [
        (1, gateway),
        (2, device),
        (3, behind_prefix(Inside::ROUTER)),
    ] {
        assert_eq!(expired_at(&net, &near, hops), expected, "{hops} hops");
    }
    attached.explain(all_passed(&net.gateway)).unwrap();
    attached.stop().unwrap();
}

/// Who says that a datagram with so many hops has expired.
fn expired_at(net: &Inside, socket: &UdpSocket, hops: i32) -> Ipv6Addr {
    /// "Time exceeded" (RFC 4443 section 3.3).
    const TIME_EXCEEDED: u8 = 3;
    sockopt::set_int(socket, libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, hops).unwrap();
    let wire = Capture::start(&net.a.netns, Host::DEV).unwrap();
    socket.send(b"how far?").unwrap();
    let find = |frames: &[Frame]| {
        frames.iter().find_map(|frame| {
            let packet = frame.bytes.get(14..)?;
            let is_error = packet.get(6) == Some(&58) && packet.get(40) == Some(&TIME_EXCEEDED);
            let source: [u8; 16] = packet.get(8..24)?.try_into().ok()?;
            is_error.then_some(Ipv6Addr::from(source))
        })
    };
    let found = wait::until_some(LIMIT, "the error", || Ok(wire.peek(|frames| find(frames))));
    let found = found.unwrap();
    // The socket has an error; it is not the next test's.
    let _ = socket.take_error();
    wire.stop().unwrap();
    found
}

/// A router of IPv4 without a global address, while clients may reach global ones alone.
#[test]
fn errors_of_private_routers_come_from_the_device() {
    let net = Inside::new().unwrap();
    for (netns, arguments) in [
        (&net.gateway, "-4 address flush dev wan0"),
        (&net.gateway, "address add 10.9.9.7/24 dev wan0"),
        (&net.gateway, "route add default via 10.9.9.1"),
        (&net.router, "-4 address flush dev wan0"),
        (&net.router, "address add 10.9.9.1/24 dev wan0"),
        (&net.router, "address add 8.8.8.1/24 dev out0"),
    ] {
        netns.run("ip", arguments.split(' ')).unwrap();
    }
    xdptun_test_net::translated::without_ipv4(&net);
    let arguments = ["--inside", "fd00:7::/64", "--iface", Inside::WAN];
    let attached = xdptun_lab::Attached::nat64(&net.gateway, &arguments).unwrap();
    attached.wait_all_ready(&[Inside::WAN]).unwrap();
    let socket = udp::bind(&net.a.netns, (net.a.v6, 0)).unwrap();
    socket
        .connect(called("8.8.8.8".parse().unwrap(), 7))
        .unwrap();
    let device = behind_prefix("100.64.0.1".parse().unwrap());
    assert_eq!(expired_at(&net, &socket, 3), device);
    // And what is not global cannot be reached at all.
    let private = udp::bind(&net.a.netns, (net.a.v6, 0)).unwrap();
    private
        .connect(called("10.9.9.1".parse().unwrap(), 7))
        .unwrap();
    wait::until(LIMIT, "the refusal", || {
        let sent = private.send(b"private");
        // "Administratively prohibited" as the kernel tells it.
        sent.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    })
    .unwrap();
    attached.stop().unwrap();
}

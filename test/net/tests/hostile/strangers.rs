//! The effect of a stranger's first packets: one ICMP message, and a handshake that is never
//! used. Both cost next to nothing, and must change next to nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use etherparse::icmpv4::DestUnreachableHeader;
use etherparse::{
    Icmpv4Type, Icmpv6Type, IpNumber, Ipv4Header, Ipv6Header, PacketBuilder, TcpHeader,
};
use xdptun_lab::segment::{Content, parse};
use xdptun_lab::{Capture, Direct, Family, Frame, Host, Kind, burst, link, udp, wait};
use xdptun_test_net::socket::{discover_path, path_mtu, roomy};
use xdptun_test_net::{LIMIT, PORT, mode, raw, status};

/// An address that no host has: packets to it are seen on the wire, but not received.
fn nobody(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(10, 0, 0, 99).into(),
        Family::V6 => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x99).into(),
    }
}

/// Sends a packet to `target` from the other host's end of the wire.
fn send(net: &Direct, target: &Host, packet: &[u8]) {
    let other = if target.v4 == net.a.v4 {
        &net.b
    } else {
        &net.a
    };
    let addresses =
        [target, other].map(|host| link::ethernet_address(&host.netns, Host::DEV).unwrap());
    let frame = raw::frame(addresses, packet);
    burst::send_all(&other.netns, Host::DEV, &[frame]).unwrap();
}

/// The start of a packet, as an error quotes it.
fn quote(from: SocketAddr, to: SocketAddr, protocol: IpNumber, transport: &[u8]) -> Vec<u8> {
    let mut quote = Vec::new();
    // As long as if it had not fitted.
    const LEN: u16 = 1400;
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut ip = Ipv4Header::new(LEN, 64, protocol, from.octets(), to.octets()).unwrap();
            ip.header_checksum = ip.calc_header_checksum();
            ip.write(&mut quote).unwrap();
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => Ipv6Header {
            payload_length: LEN,
            next_header: protocol,
            hop_limit: 64,
            source: from.octets(),
            destination: to.octets(),
            ..Ipv6Header::default()
        }
        .write(&mut quote)
        .unwrap(),
        _ => panic!("{from} and {to} are of two families"),
    }
    quote.extend(transport);
    quote
}

/// Both ports and four more bytes.
fn ports(from: SocketAddr, to: SocketAddr, more: u32) -> Vec<u8> {
    let ports = [from.port(), to.port()].map(u16::to_be_bytes);
    [ports.as_flattened(), &more.to_be_bytes()].concat()
}

/// "Too big" about a quoted packet, from a router that there is not.
fn too_big(family: Family, to: IpAddr, mtu: u16, quote: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    match (nobody(family), to) {
        (IpAddr::V4(router), IpAddr::V4(to)) => {
            let needed = DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: mtu };
            PacketBuilder::ipv4(router.octets(), to.octets(), 64)
                .icmpv4(Icmpv4Type::DestinationUnreachable(needed))
                .write(&mut packet, quote)
        }
        (IpAddr::V6(router), IpAddr::V6(to)) => {
            PacketBuilder::ipv6(router.octets(), to.octets(), 64)
                .icmpv6(Icmpv6Type::PacketTooBig { mtu: mtu.into() })
                .write(&mut packet, quote)
        }
        _ => panic!("two families"),
    }
    .unwrap();
    packet
}

/// The MTU that a stranger claims: the least that hosts believe.
const fn claimed(family: Family) -> u16 {
    match family {
        Family::V4 => 576,
        Family::V6 => 1280,
    }
}

/// Quotes of packets that a host believes to have sent: a datagram of the owned port, a
/// ping and a datagram of another of its sockets. The kernel asks for no proof of these.
fn lies(local: SocketAddr, remote: SocketAddr, other: &UdpSocket) -> [(&'static str, Vec<u8>); 3] {
    let other = SocketAddr::new(local.ip(), other.local_addr().unwrap().port());
    let (ping, echo) = match local.ip() {
        // An answer of the kernel, for which IPv4 has no socket to ask.
        IpAddr::V4(_) => (IpNumber::ICMP, [0; 8]),
        IpAddr::V6(_) => (IpNumber::IPV6_ICMP, [128, 0, 0, 0, 0, 0, 0, 0]),
    };
    [
        (
            "UDP",
            quote(local, remote, IpNumber::UDP, &ports(local, remote, 0)),
        ),
        ("a ping", quote(local, remote, ping, &echo)),
        (
            "another socket",
            quote(other, remote, IpNumber::UDP, &ports(other, remote, 0)),
        ),
    ]
}

/// The MTU of a host's route to `remote` as a new socket finds it: an old one may still
/// hold a route that was flushed.
fn route_mtu(host: &Host, family: Family, remote: SocketAddr) -> i32 {
    let socket = udp::bind(&host.netns, host.socket(family, 0)).unwrap();
    socket.connect(remote).unwrap();
    path_mtu(&socket, family).unwrap()
}

fn forget_routes(host: &Host) {
    for version in ["-4", "-6"] {
        host.netns
            .run("ip", [version, "route", "flush", "cache"])
            .unwrap();
    }
}

/// One packet of 56 bytes used to make all large datagrams vanish for ten minutes.
#[test]
fn no_message_of_a_stranger_changes_a_route() {
    let net = Direct::new().unwrap();
    let (host, peer) = (&net.a, &net.b);
    for attached in [false, true] {
        let _attached = attached.then(|| mode::TC.attach_both(&net).unwrap());
        for family in Family::BOTH {
            let (local, remote) = (host.socket(family, PORT), peer.socket(family, PORT));
            let echo = udp::Server::echo(&peer.netns, remote).unwrap();
            let socket = roomy(&host.netns, local).unwrap();
            discover_path(&socket, family).unwrap();
            socket.connect(remote).unwrap();
            let other = udp::bind(&host.netns, host.socket(family, 0)).unwrap();
            let large = udp::pattern(1400, 3);
            udp::exchange(&socket, echo.address(), &large, LIMIT).unwrap();
            for (name, quote) in lies(local, remote, &other) {
                forget_routes(host);
                let before = attached.then(|| status::counters(&host.netns).unwrap());
                send(
                    &net,
                    host,
                    &too_big(family, local.ip(), claimed(family), &quote),
                );
                let mtu = || route_mtu(host, family, remote);
                let Some(before) = before else {
                    // The control: a bare host believes it.
                    wait::until(LIMIT, "the control to be believed", || {
                        mtu() == i32::from(claimed(family))
                    })
                    .unwrap();
                    continue;
                };
                status::wait_moved(&host.netns, &before, &[("rx_drop_icmp", 1)]).unwrap();
                assert_eq!(mtu(), 1500, "{family}, {name}");
                udp::exchange(&socket, echo.address(), &large, LIMIT).unwrap();
            }
            if !attached {
                forget_routes(host);
                continue;
            }
            // An error that quotes TCP must name a segment that was sent.
            let before = status::counters(&host.netns).unwrap();
            const GUESSES: u32 = 256;
            for guess in 0..GUESSES {
                let sequence = guess << 24;
                let transport = ports(local, remote, sequence);
                let quote = quote(local, remote, IpNumber::TCP, &transport);
                send(
                    &net,
                    host,
                    &too_big(family, local.ip(), claimed(family), &quote),
                );
            }
            let all = [("rx_drop_icmp", GUESSES.into())];
            // The guesses take longer than an acknowledgement waits.
            status::wait_moved_apart_from_timed(&host.netns, &before, &all).unwrap();
            assert_eq!(route_mtu(host, family, remote), 1500, "{family}");
            udp::exchange(&socket, echo.address(), &large, LIMIT).unwrap();
        }
    }
}

/// The segments that host B sent to the stranger: flags, sequence number and acknowledgement.
fn answers(frames: &[Frame], stranger: SocketAddr) -> Vec<(String, u32, u32)> {
    let sent = frames.iter().filter(|frame| frame.outgoing);
    let to_stranger = sent.filter_map(|frame| match parse(frame) {
        Ok(Content::Transport(packet)) if packet.destination == stranger => {
            let tcp = packet.tcp()?;
            let bits = [
                ("S", tcp.syn),
                ("F", tcp.fin),
                ("R", tcp.rst),
                ("P", tcp.psh),
                (".", tcp.ack),
            ];
            let flags = bits.iter().filter(|(_, set)| *set).map(|(name, _)| *name);
            Some((flags.collect(), tcp.seq, tcp.ack_number))
        }
        _ => None,
    });
    to_stranger.collect()
}

/// A handshake that carries nothing, or one datagram that nothing answers, is not asked
/// about, not called again, and over with one FIN.
#[test]
fn a_silent_handshake_gets_no_more_than_it_sent() {
    let net = Direct::new().unwrap();
    let port = PORT.to_string();
    let _attached = mode::TC
        .attach(&net.b, &["--port", &port, "--keepalive", "2"])
        .unwrap();
    for (family, payload) in [
        (Family::V4, &b""[..]),
        (Family::V6, b""),
        (Family::V4, b"x"),
        (Family::V6, b"x"),
    ] {
        let context = format!("{family}, {} bytes", payload.len());
        let stranger = SocketAddr::new(
            nobody(family),
            if payload.is_empty() { 40_000 } else { 40_001 },
        );
        let server = net.b.socket(family, PORT);
        // Something must take the datagram, or the host says that nothing does.
        let _sink = udp::bind(&net.b.netns, server).unwrap();
        let wire = Capture::start(&net.b.netns, Host::DEV).unwrap();
        let segment = |fill: &dyn Fn(&mut TcpHeader), payload| {
            let packet = raw::segment(stranger, server, |tcp| fill(tcp), payload).unwrap();
            send(&net, &net.b, &packet);
        };
        segment(&|tcp| (tcp.syn, tcp.sequence_number) = (true, 1000), b"");
        let seen = || wire.peek(|frames| answers(frames, stranger));
        wait::until(LIMIT, "the SYN-ACK", || !seen().is_empty()).unwrap();
        let number = seen()[0].1;
        segment(
            &|tcp| {
                (tcp.ack, tcp.psh) = (true, !payload.is_empty());
                (tcp.sequence_number, tcp.acknowledgment_number) = (1001, number.wrapping_add(1));
            },
            payload,
        );
        let flows = || status::flows(&net.b.netns).unwrap();
        wait::until(LIMIT, "the flow", || flows().len() == 1).unwrap();
        // Five seconds to the FIN, five more without an answer to it.
        wait::until(3 * LIMIT, "the flow to be over", || flows().is_empty()).unwrap();
        let all = answers(&wire.stop().unwrap(), stranger);
        let flags: Vec<&str> = all.iter().map(|(flags, ..)| flags.as_str()).collect();
        let sent = 2;
        assert!(all.len() <= sent, "{context}: {all:?}");
        assert_eq!(flags, ["S.", "F."], "{context}: {all:?}");
    }
}

/// The ports of the datagrams that unreachable-port errors quote which left: source,
/// destination.
fn complaints(frames: &[Frame], family: Family) -> Vec<(u16, u16)> {
    let (version, field, header_len, number, kind) = match family {
        Family::V4 => (4, 9, 20, IpNumber::ICMP.0, 3),
        Family::V6 => (6, 6, 40, IpNumber::IPV6_ICMP.0, 1),
    };
    let ports = |frame: &Frame| {
        let packet = frame.bytes.get(Kind::Tap.header_len()..)?;
        let icmp = packet.get(header_len..)?;
        let is_error = packet[0] >> 4 == version && packet[field] == number && icmp[0] == kind;
        let quoted = icmp.get(8 + header_len..)?.first_chunk::<4>()?;
        let [s0, s1, d0, d1] = *quoted;
        let ports = (u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1]));
        is_error.then_some(ports)
    };
    let sent = frames.iter().filter(|frame| frame.outgoing);
    sent.filter_map(ports).collect()
}

/// A program that is down makes the host say so, with UDP, ports and payload in clear: not
/// where xdptun is attached, on either side of a flow. The control is a port of no tunnel,
/// and a host without xdptun.
#[test]
fn no_error_shows_a_datagram() {
    const OTHER: u16 = PORT + 1;
    let net = Direct::new().unwrap();
    for attached in [false, true] {
        let _attached = attached.then(|| mode::TC.attach_both(&net).unwrap());
        for family in Family::BOTH {
            for (host, peer, local, remote) in [
                // The server's program is down, and then the client's.
                (&net.b, &net.a, PORT, 40_000),
                (&net.a, &net.b, 40_000, PORT),
            ] {
                let context = format!("attached {attached}, {family}, port {local}");
                let wire = Capture::start(&host.netns, Host::DEV).unwrap();
                let dropped = || status::counter(&host.netns, "tx_drop_icmp").unwrap();
                let before = attached.then(dropped);
                let socket = udp::bind(&peer.netns, peer.socket(family, remote)).unwrap();
                let to = host.socket(family, local);
                socket.send_to(b"anybody there?", to).unwrap();
                if let Some(before) = before {
                    wait::until(LIMIT, &context, || dropped() == before + 1).unwrap();
                }
                // The error about this one leaves behind the other's.
                let other = udp::bind(&peer.netns, peer.socket(family, OTHER)).unwrap();
                let to = host.socket(family, OTHER);
                other.send_to(b"or there?", to).unwrap();
                let seen = || wire.peek(|frames| complaints(frames, family));
                wait::until(LIMIT, "the error about another port", || {
                    seen().contains(&(OTHER, OTHER))
                })
                .unwrap();
                let mut expected = vec![(OTHER, OTHER)];
                if !attached {
                    expected.insert(0, (remote, local));
                }
                assert_eq!(seen(), expected, "{context}");
            }
        }
    }
}

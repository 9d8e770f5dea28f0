//! Packets that xdptun does not handle pass unchanged and uncounted.

use std::net::SocketAddr;

use etherparse::{EtherType, IpNumber};
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::path::{HTTPS, OTHER, OWNED};
use xdptun_test_datapath::{Case, Family, Packet, Path, Program, Row, check, flags, row};

use crate::datapath;

/// Every program leaves the frame alone.
fn by_all(name: &str, frame: &[u8]) -> impl Iterator<Item = Row> {
    Program::ALL.into_iter().map(move |program| {
        let frame = frame.to_vec();
        row(format!("{program:?}: {name}"), move |_| {
            Case::new(program, frame.clone())
        })
    })
}

/// A frame of another protocol than IP.
fn frame(ether_type: EtherType, body: &[u8]) -> Vec<u8> {
    let mut frame = Path::client(Family::V4).outbound().bytes();
    frame.truncate(12);
    frame.extend(ether_type.0.to_be_bytes());
    frame.extend(body);
    frame
}

#[test]
fn other_protocols() {
    let mut rows: Vec<Row> = Vec::new();
    let arp = [
        &[0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 0x11, 10, 0, 0, 1][..],
        &[0, 0, 0, 0, 0, 0, 10, 0, 0, 2],
    ]
    .concat();
    rows.extend(by_all("ARP", &frame(EtherType::ARP, &arp)));
    rows.extend(by_all("LLDP", &frame(EtherType(0x88cc), &payload(60))));
    rows.extend(by_all("802.3 length", &frame(EtherType(46), &payload(46))));
    for family in Family::ALL {
        let (host, peer) = (family.host(), family.peer());
        let number = match family {
            Family::V4 => IpNumber::ICMP,
            Family::V6 => IpNumber::IPV6_ICMP,
        };
        for number in [number, IpNumber(50), IpNumber::SCTP, IpNumber::GRE] {
            // The first bytes are those of a UDP header to an owned port.
            let body = Path::client(family).outbound().bytes()[14 + family.header_len()..].to_vec();
            let packet = Packet::other(host, peer, number).payload(body);
            rows.extend(by_all(&format!("{family:?} {number:?}"), &packet.bytes()));
        }
    }
    check(&mut datapath(), rows);
}

#[test]
fn other_ports_and_directions() {
    let mut rows: Vec<Row> = Vec::new();
    for family in Family::ALL {
        let other = Path::new(family, 53, OTHER);
        for path in [other, other.reversed()] {
            let datagram = path.outbound().payload(payload(30));
            rows.extend(by_all(&format!("{path:?} UDP"), &datagram.bytes()));
            let segment = datagram.segment(flags::SYN, 1, 0);
            rows.extend(by_all(&format!("{path:?} TCP"), &segment.bytes()));
        }
        // A program of this host speaks TCP to a port of ours elsewhere.
        for (name, flags, len) in [
            ("SYN-ACK", flags::SYN | flags::ACK, 0),
            ("ACK", flags::ACK, 0),
            ("data", flags::DATA, 1000),
            ("FIN", flags::FIN | flags::ACK, 0),
            ("RST", flags::RST, 0),
            ("SYN", flags::SYN, 0),
        ] {
            let path = Path::new(family, OTHER, HTTPS);
            let name = format!("{family:?} {name} of a browser's connection");
            let segment = path.inbound().payload(payload(len)).segment(flags, 1, 2);
            for program in Program::INBOUND {
                let segment = segment.clone();
                rows.push(row(format!("{program:?}: {name}"), move |_| {
                    Case::new(program, &segment)
                }));
            }
            let segment = path.outbound().payload(payload(len)).segment(flags, 1, 2);
            rows.push(row(format!("Egress: {name}"), move |_| {
                Case::egress(&segment)
            }));
            // And answers of a TCP server that has our port: nothing of ours
            // leaves as TCP before it is disguised.
            let path = Path::server(family);
            let segment = path.outbound().segment(flags, 1, 2);
            rows.push(row(format!("Egress: {name}, own port"), move |_| {
                let case = Case::egress(&segment);
                match flags {
                    flags::SYN => case.notes_call(path.key()),
                    _ => case,
                }
            }));
        }
    }
    check(&mut datapath(), rows);
}

#[test]
fn what_cannot_be_read() {
    let mut rows: Vec<Row> = Vec::new();
    for family in Family::ALL {
        let path = Path::client(family);
        for (name, packet) in [
            ("UDP", path.outbound()),
            ("TCP", path.inbound().segment(flags::SYN, 1, 0)),
        ] {
            let frame = packet.bytes();
            let ports = 14 + family.header_len();
            // Programs need a whole IP header; the kernel refuses to run them
            // on less, so only frames with one are tried.
            for len in [ports, ports + 1, ports + 3] {
                rows.extend(by_all(
                    &format!("{family:?} {name} cut to {len}"),
                    &frame[..len],
                ));
            }
            let mut wrong = frame.clone();
            wrong[14] ^= 0xf0;
            rows.extend(by_all(&format!("{family:?} {name} IP version"), &wrong));
        }
    }
    let path = Path::client(Family::V4);
    let mut short = path.outbound().bytes();
    short[14] = 0x44;
    rows.extend(by_all("IHL 4", &short));
    let mut short = path.outbound().bytes();
    short[16..18].copy_from_slice(&[0, 19]);
    rows.extend(by_all("total length 19", &short));
    check(&mut datapath(), rows);
}

/// An IPv6 packet whose addresses are v4-mapped would name an IPv4 flow.
#[test]
fn mapped_addresses() {
    let mut rows: Vec<Row> = Vec::new();
    let path = Path::client(Family::V4);
    let mapped = |end: SocketAddr| match end {
        SocketAddr::V4(end) => SocketAddr::from((end.ip().to_ipv6_mapped(), end.port())),
        SocketAddr::V6(_) => end,
    };
    let (local, remote) = (mapped(path.local), mapped(path.remote));
    let segment = Packet::datagram(remote, local).payload(payload(50));
    let segment = segment.segment(flags::DATA, 0xffff_fff0, 0xffff_ffe0);
    for program in Program::INBOUND {
        let segment = segment.clone();
        rows.push(row(format!("{program:?} segment"), move |at| {
            Case::new(program, &segment).flow(path.key(), path.established(at))
        }));
    }
    rows.push(row("datagram", move |at| {
        let datagram = Packet::datagram(local, remote).payload(payload(50));
        Case::egress(datagram).flow(path.key(), path.established(at))
    }));
    check(&mut datapath(), rows);
}

/// They name no ports; without its first part such a datagram is never whole.
#[test]
fn later_fragments() {
    let mut rows: Vec<Row> = Vec::new();
    for family in Family::ALL {
        for path in [Path::client(family), Path::server(family)] {
            for more in [true, false] {
                let datagram = path.outbound().payload(payload(64));
                let name = format!("{path:?} more {more}");
                let fragment = datagram.fragment(100, more);
                rows.extend(by_all(&format!("{name} UDP"), &fragment.bytes()));
                let fragment = fragment.segment(flags::DATA, 1, 2);
                rows.extend(by_all(&format!("{name} TCP"), &fragment.bytes()));
            }
        }
    }
    check(&mut datapath(), rows);
}

/// Seen only because the interface listens to everything, or is in a bridge.
#[test]
fn frames_for_other_hosts() {
    let mut rows: Vec<Row> = Vec::new();
    for family in Family::ALL {
        let path = Path::server(family);
        for (name, packet) in [
            ("datagram", path.inbound()),
            ("SYN", path.inbound().segment(flags::SYN, 9, 0)),
            ("stray data", path.inbound().segment(flags::DATA, 9, 9)),
            ("datagram behind a tag", path.inbound().vlan(7)),
        ] {
            rows.push(row(format!("{family:?} {name}"), move |_| {
                let mut frame: Vec<u8> = Vec::from(&packet);
                frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 0x33]);
                Case::ingress(frame)
            }));
        }
    }
    check(&mut datapath(), rows);
}

/// The owned port is neither end of these, whatever else is.
#[test]
fn neighbours_of_an_owned_port() {
    let mut rows: Vec<Row> = Vec::new();
    for port in [
        OWNED - 1,
        OWNED + 1,
        OWNED - 64,
        OWNED + 64,
        OWNED.swap_bytes(),
        HTTPS + 1,
    ] {
        let path = Path::new(Family::V4, port, OTHER);
        rows.extend(by_all(
            &format!("port {port} out"),
            &path.outbound().bytes(),
        ));
        rows.extend(by_all(&format!("port {port} in"), &path.inbound().bytes()));
    }
    check(&mut datapath(), rows);
}

//! ICMP errors of routers and hosts, and other messages.

use std::net::IpAddr;

use xdptun_lab::Family::{V4, V6};
use xdptun_lab::checksum::sum;
use xdptun_test_datapath::Packet;
use xdptun_test_datapath::packet::payload;

use crate::ends::{
    CLIENT, Ends,
    Protocol::{self, Echo, Tcp, Udp},
    ROUTER_V4, ROUTER_V6, made, server,
};
use crate::errors::Error;
use crate::gateway::UNUSED_PORT;
use crate::rows::{Group, Row};

/// The least of a packet's data that an error quotes (RFC 792).
const LEAST: usize = 8;

const V4_PORT: Error = Error {
    kind: [3, 3],
    rest: 0,
};
const V6_PORT: Error = Error {
    kind: [1, 4],
    rest: 0,
};

/// How much of a segment is needed.
const EIGHT: &str = "RFC 792 asks for 8 bytes. Jool wants the whole TCP header";
/// Ports do not matter.
const PORTS: &str = "the address is the client's, and xdptun keeps no ports";

pub fn groups() -> Vec<Group> {
    vec![
        Group {
            title: "ICMP errors of an IPv4 router, about a datagram of the client",
            rows: types_v4(),
        },
        Group {
            title: "ICMPv6 errors of the client, about a datagram of the server",
            rows: types_v6(),
        },
        Group {
            title: "Errors: sources, and packets inside",
            rows: inside(),
        },
        Group {
            title: "Other messages of ICMPv6, by the client",
            rows: others(),
        },
    ]
}

/// The way of an error to who sent the packet.
fn to_client(ends: &Ends, from: IpAddr) -> [IpAddr; 2] {
    [from, ends.client(V4, Udp).ip()]
}

fn to_server(from: IpAddr) -> [IpAddr; 2] {
    [from, server(V6).ip()]
}

/// What the client has sent as IPv4 saw it, of some length.
fn met(ends: &Ends, protocol: Protocol) -> Packet {
    long(ends.up(V4, protocol), protocol)
}

/// What the server has sent as IPv6 saw it.
fn got(ends: &Ends, protocol: Protocol) -> Packet {
    long(ends.down(V6, protocol), protocol)
}

fn long(packet: Packet, protocol: Protocol) -> Packet {
    match protocol {
        Echo => packet,
        Udp | Tcp => packet.payload(payload(1300)),
    }
}

fn types_v4() -> Vec<Row> {
    let types: [(&str, [u8; 2], u32); 20] = [
        ("network unreachable", [3, 0], 0),
        ("host unreachable", [3, 1], 0),
        ("protocol unreachable", [3, 2], 0),
        ("port unreachable", [3, 3], 0),
        ("fragmentation needed, MTU 1400", [3, 4], 1400),
        ("fragmentation needed, MTU 600", [3, 4], 600),
        ("fragmentation needed, MTU 0", [3, 4], 0),
        ("source route failed", [3, 5], 0),
        ("administratively prohibited", [3, 13], 0),
        ("host precedence violation", [3, 14], 0),
        ("precedence cutoff", [3, 15], 0),
        ("source quench", [4, 0], 0),
        ("redirect", [5, 1], u32::from_be_bytes([192, 0, 2, 81])),
        ("time exceeded", [11, 0], 0),
        ("reassembly time exceeded", [11, 1], 0),
        ("parameter problem, pointer 8", [12, 0], 8 << 24),
        ("parameter problem, pointer 10", [12, 0], 10 << 24),
        ("parameter problem, pointer 16", [12, 0], 16 << 24),
        ("required option missing", [12, 1], 0),
        ("bad length, pointer 2", [12, 2], 2 << 24),
    ];
    let rows = types.into_iter().map(|(name, kind, rest)| {
        let sent = format!("{name} ({}, {})", kind[0], kind[1]);
        Row::new(sent, move |ends| {
            let error = Error { kind, rest };
            error.about(&met(ends, Udp), LEAST, to_client(ends, ROUTER_V4.into()))
        })
    });
    rows.collect()
}

fn types_v6() -> Vec<Row> {
    let types: [(&str, [u8; 2], u32); 22] = [
        ("no route", [1, 0], 0),
        ("administratively prohibited", [1, 1], 0),
        ("beyond scope", [1, 2], 0),
        ("address unreachable", [1, 3], 0),
        ("port unreachable", [1, 4], 0),
        ("source failed policy", [1, 5], 0),
        ("reject route", [1, 6], 0),
        ("packet too big, MTU 1400", [2, 0], 1400),
        ("packet too big, MTU 1280", [2, 0], 1280),
        ("packet too big, MTU 9000", [2, 0], 9000),
        ("hop limit exceeded", [3, 0], 0),
        ("reassembly time exceeded", [3, 1], 0),
        ("parameter problem, pointer 0", [4, 0], 0),
        ("parameter problem, pointer 1", [4, 0], 1),
        ("parameter problem, pointer 4", [4, 0], 4),
        ("parameter problem, pointer 6", [4, 0], 6),
        ("parameter problem, pointer 7", [4, 0], 7),
        ("parameter problem, pointer 24", [4, 0], 24),
        ("parameter problem, pointer 40", [4, 0], 40),
        ("next header not known", [4, 1], 6),
        ("option not known", [4, 2], 40),
        ("an error of an unknown type", [100, 0], 0),
    ];
    let rows = types.into_iter().map(|(name, kind, rest)| {
        let sent = format!("{name} ({}, {})", kind[0], kind[1]);
        let row = Row::new(sent, move |ends| {
            let error = Error { kind, rest };
            error.about(&got(ends, Udp), LEAST, to_server(CLIENT.into()))
        });
        match rest {
            9000 => row.because(
                "RFC 7915 section 5.2: no more than the next hop takes. For xdptun the kernel tells that",
            ),
            _ => row,
        }
    });
    rows.collect()
}

fn inside() -> Vec<Row> {
    let about_met = |protocol, len| {
        move |ends: &Ends| {
            V4_PORT.about(&met(ends, protocol), len, to_client(ends, ROUTER_V4.into()))
        }
    };
    let about_got = |protocol, len| {
        move |ends: &Ends| V6_PORT.about(&got(ends, protocol), len, to_server(CLIENT.into()))
    };
    vec![
        Row::new("server itself: port unreachable", |ends| {
            V4_PORT.about(&met(ends, Udp), LEAST, to_client(ends, server(V4).ip()))
        }),
        Row::new(
            "router of IPv4: quotes 20 bytes of a segment",
            about_met(Tcp, 20),
        ),
        Row::new(
            "router of IPv4: quotes 8 bytes of a segment",
            about_met(Tcp, LEAST),
        )
        .because(EIGHT),
        Row::new("router of IPv4: about a ping", about_met(Echo, LEAST)),
        Row::new(
            "router of IPv4: quotes all of 1328 bytes",
            about_met(Udp, 1308),
        )
        .because("both keep to 1280 bytes. xdptun leaves room for a fragment header inside"),
        Row::new("router of IPv4: an extension of RFC 4884", extended)
            .because("Jool keeps it (RFC 7915 section 4.2), xdptun cuts it off"),
        Row::new(
            "router of IPv4: about a datagram that nobody sent",
            |ends| {
                let from = (ends.address, UNUSED_PORT).into();
                let datagram = made(Udp, from, server(V4));
                V4_PORT.about(&datagram, LEAST, to_client(ends, ROUTER_V4.into()))
            },
        )
        .because(PORTS),
        Row::new("client: quotes 20 bytes of a segment", about_got(Tcp, 20)),
        Row::new("client: quotes 8 bytes of a segment", about_got(Tcp, LEAST)).because(EIGHT),
        Row::new("client: about a ping", about_got(Echo, LEAST)),
        Row::new("client: quotes 1232 bytes", about_got(Udp, 1192))
            .because("Jool cuts errors to 576 bytes (RFC 1812 section 4.3.2.3)"),
        Row::new("router of IPv6: port unreachable", |ends| {
            V6_PORT.about(&got(ends, Udp), LEAST, to_server(ROUTER_V6.into()))
        })
        .because(
            "RFC 6791: the source is an IPv4 address of the translator. xdptun has one for itself",
        ),
        Row::new("client: about a datagram that nobody sent", |ends| {
            let datagram = made(Udp, server(V6), (CLIENT, ends.port + 10_000).into());
            V6_PORT.about(&datagram, LEAST, to_server(CLIENT.into()))
        })
        .because(PORTS),
    ]
}

/// "Time exceeded" with an MPLS label (RFC 4950).
fn extended(ends: &Ends) -> Vec<u8> {
    /// The part before the extension: so many words of four bytes.
    const WORDS: usize = 32;
    // The object: length, class, type, label.
    let mut extension = vec![0x20, 0, 0, 0, 0, 8, 1, 1, 0, 1, 1, 1];
    let checksum = !sum(&extension);
    extension[2..4].copy_from_slice(&checksum.to_be_bytes());
    let quote = met(ends, Udp)
        .ttl(crate::errors::INSIDE)
        .quote(WORDS * 4 - 20);
    let error = Error {
        kind: [11, 0],
        rest: (WORDS as u32) << 16,
    };
    let body = [quote, extension].concat();
    error.with(body, to_client(ends, ROUTER_V4.into()))
}

fn others() -> Vec<Row> {
    let messages = [
        ("multicast listener report", 131),
        ("router solicitation", 133),
        ("neighbour solicitation", 135),
        ("redirect", 137),
        ("node information query", 139),
    ];
    let rows = messages.into_iter().map(|(name, kind)| {
        let message = Error {
            kind: [kind, 0],
            rest: 0,
        };
        Row::new(format!("{name} ({kind})"), move |_| {
            message.with(payload(16), to_server(CLIENT.into()))
        })
        .because("Jool leaves it to the kernel, which has no route here; xdptun drops it (RFC 7915 section 5.2)")
    });
    rows.collect()
}

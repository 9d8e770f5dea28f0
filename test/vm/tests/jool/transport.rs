//! Segments, datagrams and pings.

use std::net::SocketAddr;

use xdptun_lab::Family::{V4, V6};
use xdptun_lab::nat64::behind_prefix;
use xdptun_test_datapath::flags;
use xdptun_test_datapath::packet::payload;

use crate::ends::{Ends, PORT, Protocol, SECOND_CLIENT, SECOND_SERVER, made, server, sized_ping};
use crate::rows::{Group, Row};

use Protocol::{Echo, Tcp, Udp};

/// By how much the header of IPv4 is shorter than that of IPv6.
const HEADERS: [usize; 2] = [20, 40];

pub fn groups() -> Vec<Group> {
    vec![
        Group {
            title: "TCP",
            rows: tcp(),
        },
        Group {
            title: "UDP",
            rows: udp(),
        },
        Group {
            title: "Pings",
            rows: pings(),
        },
    ]
}

/// A port of the client from which it has sent nothing.
fn fresh(ends: &Ends) -> SocketAddr {
    (crate::ends::CLIENT, ends.port + 10_000).into()
}

fn tcp() -> Vec<Row> {
    vec![
        Row::new("client: SYN", |ends| {
            made(Tcp, fresh(ends), server(V6))
                .payload([])
                .segment(flags::SYN, 5, 0)
        }),
        Row::new("client: segment with data", |ends| ends.up(V6, Tcp)),
        Row::new("client: segment that fills 1500 bytes", |ends| {
            ends.up(V6, Tcp).payload(payload(1440))
        }),
        Row::new("client: FIN", |ends| {
            ends.up(V6, Tcp)
                .segment(flags::FIN | flags::ACK, 1000, 2000)
        }),
        Row::new("server: segment with data", |ends| ends.down(V4, Tcp)),
        Row::new("server: segment that fills 1480 bytes", |ends| {
            ends.down(V4, Tcp).payload(payload(1440))
        }),
        Row::new("server: RST", |ends| {
            ends.down(V4, Tcp).payload([]).segment(flags::RST, 2000, 0)
        }),
        Row::new("other server: SYN to the client's port", |ends| {
            made(Tcp, (SECOND_SERVER, PORT).into(), ends.client(V4, Tcp))
                .payload([])
                .segment(flags::SYN, 5, 0)
        }),
    ]
}

fn udp() -> Vec<Row> {
    vec![
        Row::new("client: datagram", |ends| ends.up(V6, Udp)),
        Row::new("client: datagram without data", |ends| {
            ends.up(V6, Udp).payload([])
        }),
        Row::new("client: datagram that fills 1500 bytes", |ends| {
            ends.up(V6, Udp).payload(payload(1500 - HEADERS[1] - 8))
        }),
        Row::new("client: datagram whose checksum is wrong", |ends| {
            damaged(ends.up(V6, Udp).bytes(), HEADERS[1])
        }),
        Row::new("client: datagram without checksum", |ends| {
            ends.up(V6, Udp).without_checksum()
        }).because("IPv6 forbids it (RFC 8200 section 8.1). The zero that xdptun leaves says in IPv4 that there is none"),
        Row::new("server: datagram", |ends| ends.down(V4, Udp)),
        Row::new("server: datagram that fills 1480 bytes", |ends| {
            ends.down(V4, Udp).payload(payload(1480 - HEADERS[0] - 8))
        }),
        Row::new("server: datagram whose checksum is wrong", |ends| {
            damaged(ends.down(V4, Udp).bytes(), HEADERS[0])
        }),
        Row::new("server: datagram without checksum", |ends| {
            ends.down(V4, Udp).without_checksum()
        }),
        Row::new("other server: datagram to the client's port", |ends| {
            made(Udp, (SECOND_SERVER, PORT).into(), ends.client(V4, Udp))
        }),
        Row::new("another client: datagram to the client's IPv4 address", |ends| {
            let address = behind_prefix(ends.address);
            let to = (address, ends.mapped[Udp as usize]);
            made(Udp, (SECOND_CLIENT, ends.port).into(), to.into())
        }).because("each client of xdptun has an address of its own"),
    ]
}

fn pings() -> Vec<Row> {
    vec![
        Row::new("client: echo request", |ends| ends.up(V6, Echo)),
        Row::new("client: echo request that fills 1500 bytes", |ends| {
            let path = [ends.client(V6, Echo).ip(), server(V6).ip()];
            sized_ping([8, 128], ends.port, path, 1500 - HEADERS[1] - 8)
        }),
        Row::new("server: echo reply", |ends| ends.down(V4, Echo)),
        Row::new("server: echo request to the client's identifier", |ends| {
            ends.ping_down(V4)
        }),
    ]
}

/// A bit of its UDP checksum is another.
fn damaged(mut packet: Vec<u8>, header_len: usize) -> Vec<u8> {
    packet[header_len + 7] ^= 4;
    packet
}

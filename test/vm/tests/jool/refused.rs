//! Packets that have no session, or are of no protocol that is translated.

use std::net::IpAddr;

use etherparse::IpNumber;
use xdptun_lab::Family::{V4, V6};
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::{Packet, flags};

use crate::ends::{
    CLIENT, PORT,
    Protocol::{Echo, Tcp, Udp},
    STRANGER, UNREACHED, at, made, ping, server,
};
use crate::gateway::UNUSED_PORT;
use crate::rows::{DEVICE, Group, Row};

/// Who gets other protocols.
const KERNEL: &str =
    "Jool leaves it to the kernel, which has no route or no such protocol here; xdptun drops it";
/// A port is not needed.
const EVERY: &str = "every port of its address is the client's. Jool leaves it to the kernel, whose own address it is";

pub fn groups() -> Vec<Group> {
    let rows = vec![
        Row::new("client: segment of no connection", |ends| {
            made(Tcp, (CLIENT, ends.port + 10_000).into(), server(V6))
        })
        .because("RFC 6146 section 3.5.2: Jool follows connections, xdptun does not"),
        Row::new("client: datagram to an address without a route", |ends| {
            made(Udp, ends.client(V6, Udp), (at(V6, UNREACHED), PORT).into())
        })
        .because(DEVICE),
        Row::new("a host that `--inside` does not name: datagram", |ends| {
            made(Udp, (STRANGER, ends.port).into(), server(V6))
        })
        .because("Jool translates for every host"),
        Row::new("client: GRE", |_| gre(CLIENT.into(), server(V6).ip())).because(KERNEL),
        Row::new("server: GRE", |ends| {
            gre(server(V4).ip(), ends.address.into())
        })
        .because(KERNEL),
        Row::new("server: datagram to a port that is no client's", |ends| {
            made(Udp, server(V4), (ends.address, UNUSED_PORT).into())
        })
        .because(EVERY),
        Row::new(
            "server: echo request to an identifier that is no client's",
            |ends| {
                ping(
                    [8, 128],
                    UNUSED_PORT,
                    server(V4).ip(),
                    ends.client(V4, Echo).ip(),
                )
            },
        )
        .because(EVERY),
        Row::new("server: segment to a port that is no client's", |ends| {
            made(Tcp, server(V4), (ends.address, UNUSED_PORT).into())
        })
        .because(EVERY),
        // Last: Jool waits six seconds for the client to call as well, then sends an error.
        Row::new("server: SYN to a port that is no client's", |ends| {
            let segment = made(Tcp, server(V4), (ends.address, UNUSED_PORT).into());
            segment.payload([]).segment(flags::SYN, 5, 0)
        })
        .because(EVERY),
    ];
    vec![Group {
        title: "Packets of no session",
        rows,
    }]
}

fn gre(from: IpAddr, to: IpAddr) -> Packet {
    Packet::other(from, to, IpNumber::GRE)
        .payload(payload(20))
        .without_link()
}

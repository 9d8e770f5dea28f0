//! Fragments of both sides.

use xdptun_lab::Family::{V4, V6};
use xdptun_test_datapath::packet::payload;
use xdptun_test_net::fragment::packets;

use crate::ends::{
    Ends,
    Protocol::{Echo, Tcp, Udp},
    server, sized_ping,
};
use crate::rows::{Group, Row};

/// Fragments are not put together.
const EACH: &str = "Jool puts them together, and the kernel cuts anew. xdptun translates each by itself, with its number";
/// A fragment is not held back.
const WAITS: &str = "Jool waits for the first one";
/// The checksum of ICMPv6.
const PING: &str = "the checksum needs the length of the whole, which xdptun does not know";
/// The whole is lost.
const UNCUT: &str =
    "Jool puts them together, and the kernel does not cut the whole again (`Ip6FragFails`)";

pub fn groups() -> Vec<Group> {
    let up = |ends: &Ends| ends.up(V6, Udp).payload(payload(2000)).bytes();
    let down = |ends: &Ends| {
        let datagram = ends.down(V4, Udp).payload(payload(2000));
        datagram.without_df()
    };
    let rows = vec![
        Row::several("client: datagram in two fragments", move |ends| {
            packets(&up(ends), 1232)
        }).because(EACH),
        Row::several("client: the same, the last one first", move |ends| {
            reversed(packets(&up(ends), 1232))
        }).because(EACH),
        Row::several("client: the last one alone", move |ends| {
            packets(&up(ends), 1232).split_off(1)
        }).because(WAITS),
        Row::several("client: segment in two fragments", |ends| {
            packets(&ends.up(V6, Tcp).payload(payload(2000)).bytes(), 1232)
        }).because(EACH),
        Row::new("client: a fragment header, but the whole packet", |ends| {
            ends.up(V6, Udp).fragment(0, false)
        }),
        Row::several("client: ping in two fragments", |ends| {
            let path = [ends.client(V6, Echo).ip(), server(V6).ip()];
            let ping = sized_ping([8, 128], ends.port, path, 2000);
            packets(&ping.bytes(), 1232)
        }).because(PING),
        Row::several("server: datagram in fragments of 820 bytes", move |ends| {
            packets(&down(ends).bytes(), 800)
        }).because(UNCUT),
        Row::several("server: the same, the last one first", move |ends| {
            reversed(packets(&down(ends).bytes(), 800))
        }).because(UNCUT),
        Row::several("server: the last one alone", move |ends| {
            packets(&down(ends).bytes(), 1480).split_off(1)
        }).because(WAITS),
        Row::several("server: datagram in fragments of 1500 bytes", move |ends| {
            packets(&down(ends).bytes(), 1480)
        }).because("Jool puts them together and cuts to 1280 bytes. xdptun cuts those in two that the headers of IPv6 make too long"),
        Row::several("server: segment in fragments of 820 bytes", |ends| {
            let segment = ends.down(V4, Tcp).payload(payload(1400));
            packets(&segment.without_df().bytes(), 800)
        }).because("the whole fits the link: Jool does not cut it again"),
        Row::several("server: datagram without checksum in fragments", move |ends| {
            packets(&down(ends).without_checksum().bytes(), 1480)
        }).because("the sum needs all data. Jool has them; xdptun drops the first fragment"),
        Row::several("server: ping in two fragments", |ends| {
            let path = [server(V4).ip(), ends.client(V4, Echo).ip()];
            let identifier = ends.client(V4, Echo).port();
            let ping = sized_ping([0, 129], identifier, path, 2000);
            packets(&ping.without_df().bytes(), 1480)
        }).because(PING),
    ];
    vec![Group {
        title: "Fragments",
        rows,
    }]
}

fn reversed(mut packets: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    packets.reverse();
    packets
}

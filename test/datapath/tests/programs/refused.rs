//! Egress: a datagram that cannot be disguised is dropped and counted, never sent as UDP.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use xdptun_common::tunnel::outcome::Outcome;
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::path::{OTHER, OWNED};
use xdptun_test_datapath::{Case, Family, Packet, Path, Row, check, row};

use crate::datapath;

/// The packet is dropped, with and without a flow, which stays as it is.
fn refuses(name: &str, path: Path, packet: impl Into<Vec<u8>>, outcome: Outcome) -> [Row; 2] {
    let packet = packet.into();
    let again = packet.clone();
    [
        row(format!("{name}, established"), move |at| {
            Case::egress(packet.clone())
                .flow(path.key(), path.established(at))
                .drops(outcome)
        }),
        row(format!("{name}, no flow"), move |_| {
            Case::egress(again.clone()).drops(outcome)
        }),
    ]
}

#[test]
fn contradicting_lengths() {
    let mut rows: Vec<Row> = Vec::new();
    for family in Family::ALL {
        let path = Path::client(family);
        let datagram = || path.outbound().payload(payload(40));
        let table: [(&str, Packet); 8] = [
            ("UDP longer than IP", datagram().udp_length(49)),
            ("UDP shorter than IP", datagram().udp_length(47)),
            ("UDP shorter than its header", datagram().udp_length(7)),
            ("UDP length zero", datagram().udp_length(0)),
            ("UDP length 65535", datagram().udp_length(65535)),
            ("IP longer than the frame", datagram().transport_len(49)),
            ("IP shorter than UDP", datagram().transport_len(20)),
            (
                "both longer than the frame",
                datagram().transport_len(1000).udp_length(1000),
            ),
        ];
        for (name, packet) in table {
            let name = format!("{family:?} {name}");
            rows.extend(refuses(&name, path, packet, Outcome::TxDropMalformed));
        }
    }
    check(&mut datapath(), rows);
}

#[test]
fn several_datagrams_in_one_buffer() {
    let rows = Family::ALL.map(|family| {
        row(format!("{family:?}"), move |at| {
            let path = Path::client(family);
            Case::egress(path.outbound().payload(payload(2000)))
                .merged(1000)
                .flow(path.key(), path.established(at))
                .drops(Outcome::TxDropSuperPacket)
        })
    });
    check(&mut datapath(), rows);
}

#[test]
fn destinations_that_hold_no_connection() {
    let v4 = |a, b, c, d| IpAddr::from(Ipv4Addr::new(a, b, c, d));
    let v6 = |text: &str| IpAddr::from(text.parse::<Ipv6Addr>().expect("an address"));
    let rows = [
        (Family::V4, v4(224, 0, 0, 251)),
        (Family::V4, v4(239, 255, 255, 250)),
        (Family::V4, v4(255, 255, 255, 255)),
        (Family::V6, v6("ff02::1")),
        (Family::V6, v6("ff0e::114")),
    ]
    .map(|(family, destination)| {
        row(destination.to_string(), move |_| {
            let local = SocketAddr::new(family.host(), OWNED);
            let remote = SocketAddr::new(destination, OTHER);
            Case::egress(Packet::datagram(local, remote).payload(payload(30)))
                .drops(Outcome::TxDropDestination)
        })
    });
    check(&mut datapath(), rows);
}

#[test]
fn a_full_table() {
    let rows = Family::ALL.map(|family| {
        row(format!("{family:?}"), move |at| {
            let case = Case::egress(Path::client(family).outbound().payload(payload(30)))
                .drops(Outcome::TxDropTableFull);
            crate::full_table(at)
                .into_iter()
                .fold(case, |case, (key, flow)| case.flow(key, flow))
        })
    });
    check(&mut datapath(), rows);
}

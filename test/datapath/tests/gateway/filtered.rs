//! What comes from outside and answers nothing.

use std::net::{SocketAddr, UdpSocket};

use xdptun_common::gateway::nat::Filtering;
use xdptun_common::gateway::outcome::Outcome;
use xdptun_common::wire::Protocol;
use xdptun_test_datapath::gateway::NatRow;
use xdptun_test_datapath::{Packet, flags};

use crate::HERE;
use crate::inside::{
    ARRIVES, BEGINS, BINDS, CALLS, Conversation, LAN, LEAVES, PORT, PORTS, PROVES, Transport,
    inside_host, nat, other_remote, outside, query, remote, reply, row, tunnelled,
};

/// All ways to filter.
pub const FILTERINGS: [Filtering; 2] = [
    Filtering::EndpointIndependent,
    Filtering::AddressAndPortDependent,
];

fn filtering(filtering: Filtering) -> NatRow {
    NatRow { filtering, ..row() }
}

#[test]
fn a_stranger_reaches_an_end_that_is_bound() {
    for by in Transport::WITH_PORTS {
        let one = Conversation::new(2, by);
        let mut gateway = nat(filtering(Filtering::EndpointIndependent));
        one.open(&mut gateway, &BINDS);
        one.with(other_remote(9)).open_from_outside(&mut gateway);
        one.with(remote(9)).open_from_outside(&mut gateway);
        assert_eq!(gateway.bindings(), [1, 1]);
        assert_eq!(gateway.lasting(), [3, 0]);
    }
}

/// Of the remote host itself only the port that the inside end has sent to.
#[test]
fn strangers_are_filtered() {
    for by in Transport::WITH_PORTS {
        let one = Conversation::new(2, by);
        let mut gateway = nat(filtering(Filtering::AddressAndPortDependent));
        one.open(&mut gateway, &BINDS);
        for stranger in [other_remote(9), other_remote(443), remote(9)] {
            let [sent, _] = one.with(stranger).is_called();
            gateway.comes_in(sent).is_dropped(Outcome::InDropFiltered);
        }
        one.answer(&mut gateway);
        // What the inside host has sent to is no stranger.
        let known = one.with(other_remote(9));
        known.open(&mut gateway, &BEGINS);
        known.answer(&mut gateway);
        assert_eq!(gateway.lasting(), [2, 0]);
    }
}

/// Scanners get no answer from the ports that are lent (RFC 5382 REQ-4). All others are this
/// host's.
#[test]
fn ports_that_are_lent_belong_to_nobody_else() {
    for filter in FILTERINGS {
        let mut gateway = nat(filtering(filter));
        let [first, last] = PORTS;
        for port in [first, PORT, last] {
            let datagram = Packet::datagram(remote(443), outside(port)).link_to(HERE);
            gateway
                .comes_in(&datagram)
                .is_dropped(Outcome::InDropFiltered);
            let syn = datagram.segment(flags::SYN, 1000, 0);
            gateway.comes_in(&syn).is_dropped(Outcome::InDropFiltered);
            gateway.comes_in(&syn).at(LAN).passes();
            // This host's own TCP answers what cannot begin a connection.
            for flags in [flags::ACK, flags::RST, flags::SYN | flags::ACK] {
                let stray = syn.clone().segment(flags, 1000, 7);
                gateway.comes_in(stray).passes();
            }
        }
        for port in [first - 1, last + 1, 53] {
            let datagram = Packet::datagram(remote(443), outside(port)).link_to(HERE);
            gateway.comes_in(&datagram).passes();
            let syn = datagram.segment(flags::SYN, 1000, 0);
            gateway.comes_in(syn).passes();
        }
        // This host's own address elsewhere.
        let datagram = Packet::datagram(remote(443), SocketAddr::new(inside_host(1), PORT));
        gateway.comes_in(datagram.link_to(HERE)).passes();
        assert_eq!(gateway.entries(), [0, 0]);
    }
}

/// This host's own queries, and those to it.
#[test]
fn queries_of_this_host_are_left_alone() {
    let one = Conversation::new(2, Transport::Echo);
    let mut gateway = nat(row());
    one.open(&mut gateway, &BINDS);
    let other = one.with(other_remote(0));
    let [sent, _] = other.is_answered();
    gateway.comes_in(sent).passes();
    let [sent, _] = one.by_port(PORT + 1).is_answered();
    gateway.comes_in(sent).passes();
    gateway
        .comes_in(query(remote(PORT), one.outside.ip(), b"query"))
        .passes();
    gateway
        .leaves(reply(one.outside.ip(), remote(PORT), b"query"))
        .passes();
    gateway
        .comes_in(tunnelled(one.remote.ip(), one.outside.ip()))
        .passes();
}

/// A packet with an inside source that comes from outside is forged, and one with an outside
/// source from any other side belongs to another function, or to the host.
#[test]
fn packets_from_the_wrong_side_are_left_alone() {
    for by in Transport::WITH_PORTS {
        let one = Conversation::new(2, by);
        let mut gateway = nat(row());
        one.open(&mut gateway, &BINDS);
        let forged = one.with(SocketAddr::new(inside_host(3), 9));
        let [sent, _] = forged.is_called();
        gateway.comes_in(sent).passes();
        let [sent, _] = one.with(other_remote(9)).is_called();
        gateway.comes_in(sent).at(LAN).passes();
        assert_eq!(gateway.entries(), [2, 0]);
    }
}

/// Nobody outside has a way to the addresses that NAT64 lends. What answers a client goes to its
/// outside end.
#[test]
fn the_pool_of_nat64_is_closed_to_outside_hosts() {
    let open = row();
    for (pool, is_closed) in [(None, false), (Some(open.inside), true)] {
        let mut gateway = nat(NatRow { pool, ..open });
        for by in Transport::ALL {
            let one = Conversation::new(2, by);
            one.open(&mut gateway, &BINDS);
            one.answer(&mut gateway);
            let to = SocketAddr::new(inside_host(2), PORT);
            let packets = match by {
                Transport::Udp => vec![Packet::datagram(other_remote(443), to)],
                Transport::Tcp => [flags::SYN, flags::ACK]
                    .map(|flags| Packet::datagram(other_remote(443), to).segment(flags, 1000, 7))
                    .to_vec(),
                Transport::Echo => vec![
                    query(other_remote(PORT), to.ip(), b"query"),
                    reply(other_remote(0).ip(), to, b"reply"),
                ],
            };
            for packet in packets {
                let packet = packet.link_to(HERE);
                // Those of other interfaces are its own clients'.
                gateway.comes_in(&packet).at(LAN).passes();
                match is_closed {
                    true => gateway.comes_in(packet).is_dropped(Outcome::InDropFiltered),
                    false => gateway.comes_in(packet).passes(),
                }
            }
        }
        let protocol = tunnelled(other_remote(0).ip(), inside_host(2)).link_to(HERE);
        match is_closed {
            true => gateway
                .comes_in(protocol)
                .is_dropped(Outcome::InDropFiltered),
            false => gateway.comes_in(protocol).passes(),
        }
    }
}

/// No host has such an end, so that the inside host could not answer.
#[test]
fn sources_that_no_host_has_begin_nothing() {
    let one = Conversation::new(2, Transport::Udp);
    let mut gateway = nat(row());
    one.open(&mut gateway, &BINDS);
    for source in ["224.0.0.1:9", "0.0.0.0:9", "203.0.113.9:0"] {
        let [sent, _] = one.with(source.parse().unwrap()).gets();
        gateway.comes_in(sent).passes();
    }
    assert_eq!(gateway.entries(), [2, 0]);
}

/// A port of a local socket is never lent, and packets to it are the socket's.
#[test]
fn the_ports_of_local_sockets_are_left_alone() {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let mut gateway = nat(NatRow {
        ports: [port, port],
        ..row()
    });
    let one = Conversation::new(2, Transport::Udp).by_port(port);
    for one in [one, one.of_port(port)] {
        let [sent, _] = one.sends();
        gateway.leaves(sent).is_dropped(Outcome::OutDropPorts);
    }
    let [sent, _] = one.gets();
    gateway.comes_in(&sent).passes();
    // TCP has ports of its own.
    let connection = Conversation {
        by: Transport::Tcp,
        ..one
    };
    connection.begin(&mut gateway, &BINDS);
    assert_eq!(gateway.binding(one.outside, Protocol::UDP), None);
    drop(socket);
    gateway.comes_in(sent).is_dropped(Outcome::InDropFiltered);
    one.begin(&mut gateway, &BINDS);
    one.answer(&mut gateway);
}

/// Two hosts behind NATs open holes to each other: the first packet of either opens its own side.
#[test]
fn a_hole_is_punched() {
    for filter in FILTERINGS {
        let one = Conversation::new(2, Transport::Udp);
        let mut gateway = nat(filtering(filter));
        one.begin(&mut gateway, &BINDS);
        let [sent, becomes] = one.gets();
        gateway.comes_in(sent).becomes(becomes, &ARRIVES);
        let [sent, becomes] = one.sends();
        gateway.leaves(sent).becomes(becomes, &PROVES);
    }
    // Without filtering the remote end may be first.
    let one = Conversation::new(2, Transport::Udp);
    let mut gateway = nat(row());
    one.with(other_remote(9)).begin(&mut gateway, &BINDS);
    let [sent, becomes] = one.gets();
    gateway.comes_in(sent).becomes(becomes, &CALLS);
    let [sent, becomes] = one.sends();
    gateway.leaves(sent).becomes(becomes, &LEAVES);
}

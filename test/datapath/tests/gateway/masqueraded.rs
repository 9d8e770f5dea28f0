//! Sessions whose back end sees an address of this host.

use std::net::SocketAddr;

use xdptun_common::gateway::outcome::Outcome;
use xdptun_common::gateway::timer::Timers;
use xdptun_common::gateway::tuple::{Side, Tuple};
use xdptun_common::wire::Protocol;
use xdptun_test_datapath::gateway::{Gateway, Rule};
use xdptun_test_datapath::{Packet, flags};

use crate::{Hosts, LISTEN, both};

/// The programs that forward to the back end from a port of this range.
fn gateway(hosts: Hosts, ports: [u16; 2]) -> Gateway {
    let rules = Rule::both(LISTEN, hosts.back_end).map(|rule| Rule {
        source: Some((hosts.listen.ip(), ports)),
        ..rule
    });
    Gateway::new(&rules)
}

/// The four hooks that a datagram and its answer pass, in order, and with this source port.
fn round(gateway: &mut Gateway, hosts: Hosts, port: u16, counters: [&[&str]; 4]) {
    let source = SocketAddr::new(hosts.listen.ip(), port);
    let [call, forwarded] = hosts.call();
    gateway.comes_in(call).becomes(&forwarded, counters[0]);
    let leaves = Packet::datagram(hosts.client, hosts.back_end).payload(*b"call");
    let masqueraded = Packet::datagram(source, hosts.back_end)
        .payload(*b"call")
        .linked_as(&leaves);
    gateway.leaves(leaves).becomes(masqueraded, counters[1]);
    let answer = Packet::datagram(hosts.back_end, source).payload(*b"answer");
    let returned = Packet::datagram(hosts.back_end, hosts.client)
        .payload(*b"answer")
        .linked_as(&answer);
    gateway.comes_in(answer).becomes(returned, counters[2]);
    let [answer, returned] = hosts.answer();
    gateway.leaves(answer).becomes(returned, counters[3]);
}

const BEGINS: [&[&str]; 4] = [
    &["in_forwarded", "sessions_began"],
    &["out_masqueraded"],
    &["in_returned"],
    &["out_returned"],
];
const PROVES: [&[&str]; 4] = [
    &["in_forwarded", "sessions_proven"],
    &["out_masqueraded", "sessions_proven"],
    &["in_returned"],
    &["out_returned"],
];

#[test]
fn the_back_end_sees_this_host_and_the_client_the_listen_address() {
    for hosts in both(0) {
        // The client's own port is in the range, and free.
        let port = hosts.client.port();
        let mut gateway = gateway(hosts, [port, port]);
        round(&mut gateway, hosts, port, BEGINS);
        round(&mut gateway, hosts, port, PROVES);
        assert_eq!(gateway.entries(), [4, 0]);
        assert_eq!(gateway.lasting(), [1, 0], "it counts once");
    }
}

#[test]
fn a_port_outside_the_range_becomes_one_in_it() {
    for hosts in both(1) {
        let mut gateway = gateway(hosts, [2000, 2000]);
        round(&mut gateway, hosts, 2000, BEGINS);
    }
}

#[test]
fn two_clients_have_different_ports_or_the_second_has_none() {
    for hosts in both(2) {
        let mut gateway = gateway(hosts, [2000, 2000]);
        round(&mut gateway, hosts, 2000, BEGINS);
        let second = Hosts {
            client: SocketAddr::new(hosts.client.ip(), 4711),
            ..hosts
        };
        let [call, _] = second.call();
        gateway.comes_in(call).is_dropped(Outcome::InDropPorts);
        // TCP has ports of its own.
        let [syn, forwarded] = second.call_segment(flags::SYN, (1, 0));
        gateway
            .comes_in(syn)
            .becomes(forwarded, &["in_forwarded", "sessions_began"]);
    }
}

/// Answers to ports that no session has are this host's.
/// The back end would take packets of one for packets of the other.
#[test]
fn the_port_of_a_session_that_was_cut_is_not_another_s() {
    for hosts in both(5) {
        let mut gateway = gateway(hosts, [2000, 2000]);
        let source = SocketAddr::new(hosts.listen.ip(), 2000);
        let answer = Tuple::new(hosts.back_end, source, Protocol::UDP, Side::In);
        gateway.cuts(&[answer], 1000);
        let [call, _] = hosts.call();
        gateway.comes_in(&call).is_dropped(Outcome::InDropPorts);
        gateway.cuts(&[answer], -1);
        round(&mut gateway, hosts, 2000, BEGINS);
    }
}

#[test]
fn other_packets_of_the_back_end_are_left_alone() {
    for hosts in both(3) {
        let mut gateway = gateway(hosts, [2000, 2000]);
        round(&mut gateway, hosts, 2000, BEGINS);
        for to in [2001, LISTEN + 1] {
            let to = SocketAddr::new(hosts.listen.ip(), to);
            gateway
                .comes_in(Packet::datagram(hosts.back_end, to))
                .passes();
        }
        let stranger = SocketAddr::new(hosts.back_end.ip(), 9);
        let to = SocketAddr::new(hosts.listen.ip(), 2000);
        gateway.comes_in(Packet::datagram(stranger, to)).passes();
    }
}

/// Packets that came in did not leave for so long that what translates their source is over.
#[test]
fn no_packet_leaves_with_the_clients_source() {
    for hosts in both(4) {
        let mut gateway = gateway(hosts, [2000, 2000]);
        round(&mut gateway, hosts, 2000, BEGINS);
        round(&mut gateway, hosts, 2000, PROVES);
        let most_of_a_life = Timers::DEFAULT.udp / 3 * 2;
        gateway.age(most_of_a_life);
        let [call, forwarded] = hosts.call();
        gateway.comes_in(call).becomes(forwarded, &["in_forwarded"]);
        gateway.age(most_of_a_life);
        round(&mut gateway, hosts, 2000, BEGINS);
        assert_eq!(gateway.lasting(), [1, 0], "it counts once");
    }
}

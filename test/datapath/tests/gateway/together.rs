//! `forward` and `nat` on one interface: they share ports.

use std::net::SocketAddr;

use xdptun_common::gateway::outcome::Outcome;
use xdptun_test_datapath::gateway::{Gateway, NatRow, OWN, Rule};
use xdptun_test_datapath::{Family, Packet, flags};

use crate::inside::{
    BEGINS, BINDS, Conversation, PORT, Transport, inside_host, other_remote, outside, row,
};
use crate::{Hosts, LISTEN, SERVICE};

fn hosts() -> Hosts {
    Hosts::new(Family::V4, 0)
}

/// The programs with these rules that lend these ports.
fn gateway(rules: &[Rule], ports: [u16; 2]) -> Gateway {
    let mut gateway = Gateway::new(rules);
    gateway.set_nat(OWN, NatRow { ports, ..row() });
    gateway
}

#[test]
fn a_listen_port_is_never_lent() {
    let rules = Rule::both(LISTEN, hosts().back_end);
    for by in Transport::WITH_PORTS {
        let one = Conversation::new(2, by).of_port(LISTEN);
        let mut all_taken = gateway(&rules, [LISTEN, LISTEN]);
        let [sent, _] = one.begins();
        all_taken.leaves(sent).is_dropped(Outcome::OutDropPorts);
        let mut one_left = gateway(&rules, [LISTEN, LISTEN + 1]);
        one.by_port(LISTEN + 1).open(&mut one_left, &BINDS);
        // What comes to the listen port is forwarded, whoever sends it.
        let [call, forwarded] = hosts().call();
        one_left
            .comes_in(call)
            .becomes(forwarded, &["in_forwarded", "sessions_began"]);
    }
    // Queries do not meet rules.
    let mut gateway = gateway(&rules, [LISTEN, LISTEN]);
    let one = Conversation::new(2, Transport::Echo).of_port(LISTEN);
    one.by_port(LISTEN).open(&mut gateway, &BINDS);
}

/// The client knows the listen address alone.
#[test]
fn a_back_end_inside_answers_from_the_listen_address() {
    let hosts = Hosts {
        back_end: SocketAddr::new(inside_host(3), SERVICE),
        ..hosts()
    };
    let mut gateway = gateway(&Rule::both(LISTEN, hosts.back_end), [PORT, PORT]);
    hosts.connect(&mut gateway);
    let [data, returned] = hosts.answer_segment(flags::DATA, (5001, 1001));
    gateway.leaves(data).becomes(returned, &["out_returned"]);
    let [call, forwarded] = hosts.call();
    gateway
        .comes_in(call)
        .becomes(forwarded, &["in_forwarded", "sessions_began"]);
    let [answer, returned] = hosts.answer();
    gateway.leaves(answer).becomes(returned, &["out_returned"]);
    assert_eq!(gateway.bindings(), [0, 0]);
    // What it sends by itself leaves from a port that is lent.
    let own = Conversation {
        inside: hosts.back_end,
        remote: other_remote(443),
        ..Conversation::new(3, Transport::Udp)
    };
    own.open(&mut gateway, &BINDS);
}

/// Rules whose back end sees the outside address.
fn masquerades(port: u16) -> [Rule; 2] {
    Rule::both(LISTEN, hosts().back_end).map(|rule| Rule {
        source: Some((Family::V4.host(), [port, port])),
        ..rule
    })
}

#[test]
fn a_masquerade_never_takes_a_bound_port() {
    let mut gateway = gateway(&masquerades(PORT), [PORT, PORT]);
    Conversation::new(2, Transport::Udp).begin(&mut gateway, &BINDS);
    let [call, _] = hosts().call();
    gateway.comes_in(call).is_dropped(Outcome::InDropPorts);
    // TCP has ports of its own.
    let [syn, forwarded] = hosts().call_segment(flags::SYN, (1000, 0));
    gateway
        .comes_in(syn)
        .becomes(forwarded, &["in_forwarded", "sessions_began"]);
}

/// The port is used towards one back end alone, so that it may be lent; not towards that one.
#[test]
fn the_answers_of_a_back_end_are_not_an_inside_hosts() {
    let hosts = hosts();
    let mut gateway = gateway(&masquerades(PORT), [PORT, PORT]);
    let [call, forwarded] = hosts.call();
    gateway
        .comes_in(call)
        .becomes(forwarded, &["in_forwarded", "sessions_began"]);
    let leaves = Packet::datagram(hosts.client, hosts.back_end).payload(*b"call");
    let masqueraded = Packet::datagram(outside(PORT), hosts.back_end)
        .payload(*b"call")
        .linked_as(&leaves);
    gateway
        .leaves(leaves)
        .becomes(masqueraded, &["out_masqueraded"]);
    let one = Conversation::new(2, Transport::Udp);
    let [sent, _] = one.with(hosts.back_end).sends();
    gateway.leaves(&sent).is_dropped(Outcome::OutDropPorts);
    one.begin(&mut gateway, &BINDS);
    gateway.leaves(sent).is_dropped(Outcome::OutDropClash);
    one.with(other_remote(9)).begin(&mut gateway, &BEGINS);
    let answer = Packet::datagram(hosts.back_end, outside(PORT)).payload(*b"answer");
    let returned = Packet::datagram(hosts.back_end, hosts.client)
        .payload(*b"answer")
        .linked_as(&answer);
    gateway.comes_in(answer).becomes(returned, &["in_returned"]);
}

/// A port that was lent before a reload made it a listen port: its sessions go on, and what is new
/// is forwarded.
#[test]
fn a_rule_goes_before_a_binding() {
    let mut gateway = gateway(&Rule::both(LISTEN, hosts().back_end), [LISTEN, LISTEN]);
    gateway.listens(false);
    let one = Conversation::new(2, Transport::Udp).by_port(LISTEN);
    one.begin(&mut gateway, &BINDS);
    one.answer(&mut gateway);
    gateway.listens(true);
    one.answer(&mut gateway);
    let [call, forwarded] = hosts().call();
    gateway
        .comes_in(call)
        .becomes(forwarded, &["in_forwarded", "sessions_began"]);
}

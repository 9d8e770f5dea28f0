//! Inside hosts that reach each other by their outside ends (RFC 4787 REQ-9).

use std::net::SocketAddr;

use xdptun_common::gateway::nat::Filtering;
use xdptun_common::gateway::outcome::Outcome;
use xdptun_common::gateway::request::Kind;
use xdptun_test_datapath::gateway::{Gateway, MAX_SESSIONS, NatRow, OWN};
use xdptun_test_datapath::{Message, Packet, flags};

use crate::HERE;
use crate::inside::{
    ARRIVES, BEGINS, BINDS, CALL_PROVES, CALLS, Conversation, LAN, LEAVES, PORT, PROVES, Transport,
    inside_host, nat, outside, row,
};

/// The first packet of an inside end that was not bound.
const CALLS_AND_BINDS: [&str; 3] = ["in_translated", "sessions_began", "bindings_began"];

/// Two inside ends, and the outside end of each.
#[derive(Clone, Copy)]
struct Two {
    caller: SocketAddr,
    caller_outside: SocketAddr,
    called: SocketAddr,
    called_outside: SocketAddr,
}

const TWO: Two = Two {
    caller: SocketAddr::new(inside_host(2), PORT),
    caller_outside: outside(PORT),
    called: SocketAddr::new(inside_host(3), PORT + 7),
    called_outside: outside(PORT + 7),
};

impl Two {
    /// The same, seen from the other end.
    const fn turned(self) -> Self {
        Self {
            caller: self.called,
            caller_outside: self.called_outside,
            called: self.caller,
            called_outside: self.caller_outside,
        }
    }

    /// A packet of the caller as it comes in, as it is routed back, and as the other host gets it.
    fn packets(self, make: impl Fn(SocketAddr, SocketAddr) -> Packet) -> [Packet; 3] {
        let link = |packet: Packet| packet.link_to(HERE).link_from([2; 6]);
        [
            (self.caller, self.called_outside),
            (self.caller, self.called),
            (self.caller_outside, self.called),
        ]
        .map(|(from, to)| link(make(from, to)))
    }

    /// The caller sends it, and the other host gets it.
    #[track_caller]
    fn send(
        self,
        gateway: &mut Gateway,
        make: impl Fn(SocketAddr, SocketAddr) -> Packet,
        arrives: &[&str],
        leaves: &[&str],
    ) {
        let [sent, routed, got] = self.packets(make);
        gateway.comes_in(sent).at(LAN).becomes(&routed, arrives);
        gateway.leaves(routed).at(LAN).becomes(got, leaves);
    }
}

fn datagram(from: SocketAddr, to: SocketAddr) -> Packet {
    Packet::datagram(from, to).payload(*b"inside")
}

/// The called end has talked to a remote host before, so that it is bound.
fn gateway(by: Transport, row: NatRow) -> Gateway {
    let mut gateway = nat(row);
    Conversation {
        inside: TWO.called,
        outside: TWO.called_outside,
        ..Conversation::new(3, by)
    }
    .begin(&mut gateway, &BINDS);
    gateway
}

#[test]
fn datagrams_go_there_and_back() {
    let mut gateway = gateway(Transport::Udp, row());
    TWO.send(&mut gateway, datagram, &CALLS_AND_BINDS, &LEAVES);
    TWO.turned().send(&mut gateway, datagram, &ARRIVES, &LEAVES);
    TWO.send(&mut gateway, datagram, &CALL_PROVES, &PROVES);
    TWO.turned().send(&mut gateway, datagram, &ARRIVES, &LEAVES);
    // Those of the called end's own session wait for proof.
    assert_eq!(gateway.entries(), [4, 2]);
    assert_eq!(gateway.lasting(), [1, 0], "it counts once");
    assert_eq!(gateway.bindings(), [2, 2]);
    // The caller has the same outside end for remote hosts.
    Conversation::new(2, Transport::Udp).open(&mut gateway, &BEGINS);
}

#[test]
fn a_connection_opens_and_closes() {
    const FIN: u8 = flags::FIN | flags::ACK;
    let mut gateway = gateway(Transport::Tcp, row());
    let segment = |flags, sequence, acknowledgement| {
        move |from, to| datagram(from, to).segment(flags, sequence, acknowledgement)
    };
    let called = TWO.turned();
    let syn = segment(flags::SYN, 1000, 0);
    TWO.send(&mut gateway, syn, &CALLS_AND_BINDS, &LEAVES);
    let syn_ack = segment(flags::SYN | flags::ACK, 5000, 1001);
    called.send(&mut gateway, syn_ack, &ARRIVES, &LEAVES);
    let ack = segment(flags::ACK, 1001, 5001);
    TWO.send(&mut gateway, ack, &CALL_PROVES, &PROVES);
    let data = segment(flags::DATA, 5001, 1001);
    called.send(&mut gateway, data, &ARRIVES, &LEAVES);
    TWO.send(&mut gateway, segment(FIN, 1001, 5007), &ARRIVES, &LEAVES);
    called.send(&mut gateway, segment(FIN, 5007, 1002), &ARRIVES, &LEAVES);
    assert_eq!(gateway.lasting(), [1, 0]);
}

/// The outside end of the caller is there before.
#[test]
fn a_bound_caller_keeps_its_port() {
    let mut gateway = gateway(Transport::Udp, row());
    Conversation::new(2, Transport::Udp).begin(&mut gateway, &BINDS);
    TWO.send(&mut gateway, datagram, &CALLS, &LEAVES);
    assert_eq!(gateway.bindings(), [2, 2]);
}

#[test]
fn a_host_reaches_itself() {
    let mut gateway = gateway(Transport::Udp, row());
    let itself = Two {
        caller: TWO.called,
        caller_outside: TWO.called_outside,
        ..TWO
    };
    itself.send(&mut gateway, datagram, &CALLS, &LEAVES);
    itself.send(&mut gateway, datagram, &CALL_PROVES, &LEAVES);
}

/// Ends that are not bound are this host's own, as seen from inside.
#[test]
fn other_packets_of_inside_hosts_to_the_outside_address_pass() {
    for by in Transport::WITH_PORTS {
        let mut gateway = gateway(by, row());
        let mut two = TWO;
        two.called_outside.set_port(PORT + 8);
        let [sent, ..] = match by {
            Transport::Tcp => two.packets(|a, b| datagram(a, b).segment(flags::SYN, 1000, 0)),
            _ => two.packets(datagram),
        };
        gateway.comes_in(sent).at(LAN).passes();
        let ack = TWO.packets(|a, b| datagram(a, b).segment(flags::ACK, 1000, 7));
        let [sent, ..] = ack;
        gateway.comes_in(sent).at(LAN).passes();
        assert_eq!(gateway.entries(), [0, 2]);
    }
}

/// Hosts that talk to each other directly.
#[test]
fn packets_between_inside_hosts_pass() {
    let mut gateway = gateway(Transport::Udp, row());
    let direct = datagram(TWO.caller, TWO.called).link_to(HERE);
    gateway.comes_in(&direct).at(LAN).passes();
    gateway.leaves(&direct).at(LAN).passes();
}

#[test]
fn a_caller_without_a_port_is_refused() {
    let [sent, ..] = TWO.packets(datagram);
    let mut no_port = gateway(Transport::Udp, row());
    no_port.set_nat(
        OWN,
        NatRow {
            ports: [PORT + 7, PORT + 7],
            ..row()
        },
    );
    no_port
        .comes_in(&sent)
        .at(LAN)
        .is_dropped(Outcome::InDropPorts);
    let mut one_each = gateway(
        Transport::Udp,
        NatRow {
            max_per_host: 1,
            ..row()
        },
    );
    let mut other = TWO;
    other.caller.set_port(PORT + 1);
    other.caller_outside.set_port(PORT + 1);
    other.send(&mut one_each, datagram, &CALLS_AND_BINDS, &LEAVES);
    one_each
        .comes_in(&sent)
        .at(LAN)
        .is_dropped(Outcome::InDropFull);
    let mut full = gateway(Transport::Udp, row());
    for number in 0..MAX_SESSIONS as u16 {
        let port = PORT + 20 + number;
        let one = Conversation::new(2, Transport::Udp).of_port(port);
        one.by_port(port).open(&mut full, &BINDS);
    }
    full.comes_in(&sent).at(LAN).is_dropped(Outcome::InDropFull);
    for (mut gateway, outcome) in [
        (no_port, Outcome::InDropPorts),
        (one_each, Outcome::InDropFull),
        (full, Outcome::InDropFull),
    ] {
        assert_eq!(gateway.requests(), []);
        gateway.has_daemon();
        gateway.comes_in(&sent).at(LAN).is_dropped(outcome);
        let told = [(Kind::Prohibit, sent.clone().into())];
        assert_eq!(gateway.requests(), told);
    }
}

/// RFC 5508 REQ-7: the called host refuses a datagram, and the caller hears of it from the end
/// that it has sent to.
#[test]
fn errors_go_between_inside_hosts() {
    let mut gateway = gateway(Transport::Udp, row());
    TWO.send(&mut gateway, datagram, &CALLS_AND_BINDS, &LEAVES);
    let [sent, routed, got] = TWO.packets(datagram);
    let about = |quoted: &Packet, from: SocketAddr, to: SocketAddr| {
        let message = Message {
            kind: 3,
            code: 3,
            rest: 0,
            body: quoted.quote(14),
        };
        message.packet(from.ip(), to.ip()).link_to(HERE)
    };
    let refusal = about(&got, TWO.called, TWO.caller_outside);
    let arrived = about(&routed, TWO.called, TWO.caller).linked_as(&refusal);
    let left = about(&sent, TWO.called_outside, TWO.caller).linked_as(&refusal);
    gateway
        .comes_in(refusal)
        .at(LAN)
        .becomes(&arrived, &["in_error"]);
    gateway
        .leaves(arrived)
        .at(LAN)
        .becomes(left, &["out_error"]);
}

/// Filtering is about outside hosts.
#[test]
fn inside_hosts_reach_each_other_whatever_is_filtered() {
    let mut gateway = nat(NatRow {
        filtering: Filtering::AddressAndPortDependent,
        ..row()
    });
    let a = Conversation::new(2, Transport::Udp);
    let b = Conversation::new(3, Transport::Udp)
        .of_port(PORT + 7)
        .by_port(PORT + 7);
    a.begin(&mut gateway, &BINDS);
    b.begin(&mut gateway, &BINDS);
    let send = |from, to| Packet::datagram(from, to).payload(*b"punch").link_to(HERE);
    for (from, to, counters) in [(a, b, &CALLS[..]), (b, a, &ARRIVES)] {
        let sent = send(from.inside, to.outside);
        let becomes = send(from.inside, to.inside).linked_as(&sent);
        gateway.comes_in(sent).at(LAN).becomes(becomes, counters);
    }
}

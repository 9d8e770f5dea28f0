//! What inside hosts send, and what comes back.

use std::net::SocketAddr;

use xdptun_common::again;
use xdptun_common::gateway::tuple::Side;
use xdptun_test_datapath::gateway::{NatRow, OWN};
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::{Family, Packet, Skb, flags};

use crate::filtered::FILTERINGS;
use crate::inside::{
    ARRIVES, BEGINS, BINDS, CALL_PROVES, CALLS, Conversation, LAN, LEAVES, PORT, PROVES, Transport,
    inside_host, nat, other_remote, query, remote, reply, row, tunnelled,
};

#[test]
fn packets_leave_from_the_outside_end_and_answers_come_back() {
    for by in Transport::ALL {
        let one = Conversation::new(2, by);
        let mut gateway = nat(row());
        one.begin(&mut gateway, &BINDS);
        one.answer(&mut gateway);
        assert_eq!(gateway.entries(), [0, 2], "it waits for proof");
        let [sent, becomes] = one.goes_on();
        gateway.leaves(&sent).becomes(&becomes, &PROVES);
        assert_eq!(gateway.entries(), [2, 0], "it lasts");
        assert_eq!(gateway.lasting(), [1, 0]);
        gateway.leaves(sent).becomes(becomes, &LEAVES);
        one.answer(&mut gateway);
        assert_eq!(gateway.bindings(), [1, 1]);
        assert_eq!(gateway.made_for(one.inside.ip()), 1);
        let binding = gateway.binding(one.outside, by.protocol()).unwrap();
        assert_eq!(binding.inside.socket_addr(), one.inside);
        assert_eq!(binding.interface, OWN);
        let port = gateway.outside_port(one.inside, one.outside.ip(), by.protocol());
        assert_eq!(port, Some(PORT));
    }
}

/// Every length has its own alignment in the checksum, which is changed and not made anew.
#[test]
fn every_length_has_a_right_checksum() {
    let one = Conversation::new(2, Transport::Udp);
    let echo = Conversation::new(2, Transport::Echo);
    let mut gateway = nat(NatRow {
        ports: [20_001, 20_001],
        ..row()
    });
    let [one, echo] = [one, echo].map(|one| one.by_port(20_001));
    one.open(&mut gateway, &BINDS);
    echo.open(&mut gateway, &BINDS);
    for len in (0..=70).chain([999, 1000, 1400]) {
        let bytes = payload(len);
        let [sent, becomes] = one.sends().map(|packet| packet.payload(bytes.clone()));
        gateway.leaves(sent).becomes(becomes, &LEAVES);
        let [sent, becomes] = one.gets().map(|packet| packet.payload(bytes.clone()));
        gateway.comes_in(sent).becomes(becomes, &ARRIVES);
        let [sent, becomes] = echo.leaving(|from, to| query(from, to.ip(), &bytes));
        gateway.leaves(sent).becomes(becomes, &LEAVES);
        let [sent, becomes] = echo.arriving(|from, to| reply(from.ip(), to, &bytes));
        gateway.comes_in(sent).becomes(becomes, &ARRIVES);
    }
}

/// A sum of zero stands for none, so that it is sent as 0xffff; none stays none.
#[test]
fn udp_checksums_of_every_value_are_right() {
    let one = Conversation::new(2, Transport::Udp);
    let mut gateway = nat(row());
    one.open(&mut gateway, &BINDS);
    let is_zero = |becomes: &Packet| {
        let bytes = becomes.bytes();
        bytes[bytes.len() - 4..bytes.len() - 2] == [0xff, 0xff]
    };
    let with = |word: u16| move |packet: Packet| packet.payload(word.to_be_bytes());
    // Of all values one gives the sum that is zero after the translation.
    let leaves_as_zero = (0..=u16::MAX).find(|word| is_zero(&one.sends().map(with(*word))[1]));
    let arrives_as_zero = (0..=u16::MAX).find(|word| is_zero(&one.gets().map(with(*word))[1]));
    let zeros = [leaves_as_zero, arrives_as_zero].map(|word| word.expect("one of 65,536"));
    for word in (0..=u16::MAX).step_by(251).chain(zeros) {
        let [sent, becomes] = one.sends().map(with(word));
        gateway.leaves(sent).becomes(becomes, &LEAVES);
        let [sent, becomes] = one.gets().map(with(word));
        gateway.comes_in(sent).becomes(becomes, &ARRIVES);
    }
    let [sent, becomes] = one.sends().map(Packet::without_checksum);
    gateway.leaves(sent).becomes(becomes, &LEAVES);
    let [sent, becomes] = one.gets().map(Packet::without_checksum);
    gateway.comes_in(sent).becomes(becomes, &ARRIVES);
}

#[test]
fn options_stay() {
    for by in Transport::ALL {
        let one = Conversation::new(2, by);
        let mut gateway = nat(row());
        let with = |packet: Packet| packet.ip_options(3);
        let [sent, becomes] = one.begins().map(with);
        gateway.leaves(sent).becomes(becomes, &BINDS);
        let [sent, becomes] = one.is_answered().map(with);
        gateway.comes_in(sent).becomes(becomes, &ARRIVES);
    }
}

/// RFC 4787 REQ-4: programs count on neighbours of RTP and RTCP.
#[test]
fn a_port_outside_the_range_becomes_one_of_its_parity() {
    for by in Transport::ALL {
        for (first, even, odd) in [(20_000, 20_000, 20_001), (20_001, 20_002, 20_001)] {
            let mut gateway = nat(NatRow {
                ports: [first, first + 1],
                ..row()
            });
            let one = Conversation::new(2, by);
            one.of_port(5000).by_port(even).open(&mut gateway, &BINDS);
            one.of_port(5001).by_port(odd).open(&mut gateway, &BINDS);
        }
        // Any is better than none.
        let mut gateway = nat(NatRow {
            ports: [20_000, 20_001],
            ..row()
        });
        let one = Conversation::new(2, by);
        one.of_port(5000).by_port(20_000).open(&mut gateway, &BINDS);
        one.of_port(5002).by_port(20_001).open(&mut gateway, &BINDS);
    }
}

#[test]
fn two_hosts_with_the_same_port_have_different_outside_ports() {
    for by in Transport::ALL {
        let mut gateway = nat(NatRow {
            ports: [PORT, PORT + 1],
            ..row()
        });
        let first = Conversation::new(2, by);
        let second = Conversation::new(3, by).by_port(PORT + 1);
        first.begin(&mut gateway, &BINDS);
        second.begin(&mut gateway, &BINDS);
        second.answer(&mut gateway);
        first.answer(&mut gateway);
        for one in [first, second] {
            let [sent, becomes] = one.goes_on();
            gateway.leaves(sent).becomes(becomes, &PROVES);
            one.answer(&mut gateway);
        }
        assert_eq!(gateway.bindings(), [2, 2]);
    }
}

/// Endpoint-independent mapping (RFC 4787 REQ-1, RFC 5382 REQ-1, RFC 5508 REQ-1).
#[test]
fn an_end_has_one_outside_port_for_all_remote_ends() {
    for by in Transport::ALL {
        let mut gateway = nat(NatRow {
            ports: [20_001, 20_999],
            ..row()
        });
        // Its port is a matter of chance, so that each remote end would get another.
        let one = Conversation::new(2, by).of_port(5000);
        let [sent, _] = one.begins();
        gateway.run(Side::Out, &sent.bytes(), Skb::default());
        let port = gateway.outside_port(one.inside, one.outside.ip(), by.protocol());
        let one = one.by_port(port.expect("it is bound"));
        one.answer(&mut gateway);
        one.with(other_remote(443)).open(&mut gateway, &BEGINS);
        if by != Transport::Echo {
            one.with(remote(444)).open(&mut gateway, &BEGINS);
        }
        assert_eq!(gateway.bindings(), [1, 1]);
    }
}

#[test]
fn each_protocol_has_ports_of_its_own() {
    let mut gateway = nat(NatRow {
        ports: [PORT, PORT],
        ..row()
    });
    for (host, by) in (2..).zip(Transport::ALL) {
        Conversation::new(host, by).open(&mut gateway, &BINDS);
    }
    assert_eq!(gateway.bindings(), [3, 3]);
}

#[test]
fn all_else_passes() {
    let mut gateway = nat(row());
    let mut passes = |packet: &Packet| {
        gateway.leaves(packet).passes();
        gateway.comes_in(packet).passes();
        gateway.leaves(packet).at(LAN).passes();
    };
    // The other family, even from an address that looks like one inside.
    let inside_v6 = SocketAddr::new("::ffff:192.168.7.2".parse().unwrap(), PORT);
    let remote_v6 = SocketAddr::new(Family::V6.stranger(), 443);
    for from in [inside_v6, SocketAddr::new(Family::V6.host(), PORT)] {
        let datagram = Packet::datagram(from, remote_v6).payload(*b"query");
        passes(&datagram);
        passes(&datagram.clone().segment(flags::SYN, 1000, 0));
    }
    // Hosts that are not inside, and this one.
    for from in ["192.168.6.255", "192.168.8.0", "10.0.0.1"] {
        let from = SocketAddr::new(from.parse().unwrap(), PORT);
        let datagram = Packet::datagram(from, remote(443)).payload(*b"query");
        passes(&datagram);
        for flags in [flags::SYN, flags::ACK, flags::RST] {
            passes(&datagram.clone().segment(flags, 1000, 0));
        }
        passes(&query(from, remote(0).ip(), b"query"));
        passes(&tunnelled(from.ip(), remote(0).ip()));
        passes(&datagram.without_df().fragment(3, false));
    }
    assert_eq!(gateway.entries(), [0, 0]);
    assert_eq!(gateway.bindings(), [0, 0]);
}

/// An interface that translates nothing, and what passes egress again: it was translated when it
/// passed first.
#[test]
fn packets_of_inside_hosts_pass_where_nothing_is_translated() {
    let mut gateway = nat(row());
    for by in Transport::ALL {
        let [sent, _] = Conversation::new(2, by).begins();
        gateway.leaves(&sent).at(LAN).passes();
        gateway.comes_in(&sent).at(LAN).passes();
        gateway.leaves(&sent).marked(again::OWN).passes();
    }
    let from = inside_host(2);
    gateway
        .leaves(tunnelled(from, remote(0).ip()))
        .at(LAN)
        .passes();
    assert_eq!(gateway.bindings(), [0, 0]);
}

#[test]
fn a_host_opens_an_ended_connection_anew() {
    let one = Conversation::new(2, Transport::Tcp);
    let mut gateway = nat(row());
    one.open(&mut gateway, &BINDS);
    let [reset, becomes] = one.gets_segment(flags::RST, (5001, 0));
    gateway.comes_in(reset).becomes(becomes, &ARRIVES);
    let [syn, becomes] = one.sends_segment(flags::SYN, (9000, 0));
    gateway
        .leaves(syn)
        .becomes(becomes, &["out_translated", "sessions_reopened"]);
    let [syn_ack, becomes] = one.gets_segment(flags::SYN | flags::ACK, (700, 9001));
    gateway.comes_in(syn_ack).becomes(becomes, &ARRIVES);
    let [ack, becomes] = one.sends_segment(flags::ACK, (9001, 701));
    gateway.leaves(ack).becomes(becomes, &PROVES);
    assert_eq!(gateway.lasting(), [1, 0]);
}

/// A SYN of both ends at once (RFC 5382 REQ-2). Neither needs endpoint-independent filtering.
#[test]
fn both_ends_may_call_at_once() {
    const SYN_ACK: u8 = flags::SYN | flags::ACK;
    let one = Conversation::new(2, Transport::Tcp);
    for filtering in FILTERINGS {
        let mut gateway = nat(NatRow { filtering, ..row() });
        one.begin(&mut gateway, &BINDS);
        let [syn, becomes] = one.gets_segment(flags::SYN, (5000, 0));
        gateway.comes_in(syn).becomes(becomes, &ARRIVES);
        let [syn_ack, becomes] = one.sends_segment(SYN_ACK, (1000, 5001));
        gateway.leaves(syn_ack).becomes(becomes, &LEAVES);
        one.answer(&mut gateway);
        let [data, becomes] = one.sends_segment(flags::DATA, (1001, 5001));
        gateway.leaves(data).becomes(becomes, &PROVES);
        let [data, becomes] = one.gets_segment(flags::DATA, (5001, 1006));
        gateway.comes_in(data).becomes(becomes, &ARRIVES);
        assert_eq!(gateway.lasting(), [1, 0]);
    }
}

/// The remote end's SYN is here first, the inside host's leaves before it has seen that one.
#[test]
fn both_ends_may_call_at_once_the_remote_end_first() {
    const SYN_ACK: u8 = flags::SYN | flags::ACK;
    let one = Conversation::new(2, Transport::Tcp);
    let mut gateway = nat(row());
    one.with(other_remote(443)).begin(&mut gateway, &BINDS);
    let [syn, becomes] = one.gets_segment(flags::SYN, (5000, 0));
    gateway.comes_in(syn).becomes(becomes, &CALLS);
    one.begin(&mut gateway, &LEAVES);
    one.answer(&mut gateway);
    let [syn_ack, becomes] = one.sends_segment(SYN_ACK, (1000, 5001));
    gateway.leaves(syn_ack).becomes(becomes, &LEAVES);
    let [data, becomes] = one.gets_segment(flags::DATA, (5001, 1001));
    gateway.comes_in(data).becomes(becomes, &CALL_PROVES);
    let [data, becomes] = one.sends_segment(flags::DATA, (1001, 5007));
    gateway.leaves(data).becomes(becomes, &LEAVES);
}

/// Two interfaces with an outside address each: routes may change which one a packet leaves by.
#[test]
fn each_interface_has_its_own_outside_ends() {
    const SECOND: u32 = 78;
    let also = SocketAddr::new(Family::V4.also_host(), PORT);
    let mut gateway = nat(row());
    gateway.set_nat(
        SECOND,
        NatRow {
            outside: Some(also.ip()),
            ..row()
        },
    );
    let one = Conversation::new(2, Transport::Udp);
    let by_second = Conversation {
        outside: also,
        ..one
    };
    one.open(&mut gateway, &BINDS);
    let [sent, becomes] = by_second.sends();
    gateway.leaves(sent).at(SECOND).becomes(becomes, &BINDS);
    let [sent, becomes] = by_second.gets();
    gateway.comes_in(sent).at(SECOND).becomes(becomes, &ARRIVES);
    let binding = gateway.binding(also, by_second.by.protocol()).unwrap();
    assert_eq!(binding.interface, SECOND);
    // A stranger may call by either, and by no other.
    let call = by_second.with(other_remote(9));
    let [sent, becomes] = call.gets();
    gateway.comes_in(&sent).at(SECOND).becomes(becomes, &CALLS);
    let call = one.with(other_remote(10));
    let [sent, _] = call.gets();
    gateway.comes_in(&sent).at(SECOND).passes();
}

//! Packets of inside hosts that must not leave with an inside address, and get no other.

use std::net::SocketAddr;

use xdptun_common::gateway::outcome::Outcome;
use xdptun_common::gateway::request::Kind;
use xdptun_test_datapath::gateway::{Gateway, MAX_SESSIONS, NatRow, OWN, Room};
use xdptun_test_datapath::{Message, Packet, flags};

use crate::inside::{
    BEGINS, BINDS, Conversation, LAN, LEAVES, PORT, PROVES, Transport, inside_host, nat,
    other_remote, outside, remote, row, tunnelled,
};

#[test]
fn a_stray_segment_is_dropped() {
    let one = Conversation::new(2, Transport::Tcp);
    let mut gateway = nat(row());
    for flags in [
        flags::ACK,
        flags::DATA,
        flags::RST,
        flags::RST | flags::ACK,
        flags::FIN | flags::ACK,
        flags::SYN | flags::ACK,
        flags::SYN | flags::RST,
        0,
    ] {
        let [sent, becomes] = one.sends_segment(flags, (1000, 7));
        gateway.leaves(&sent).is_dropped(Outcome::OutDropStray);
        gateway.leaves(sent).at(LAN).passes();
        // This host's own.
        gateway.leaves(becomes).passes();
    }
    assert_eq!(gateway.bindings(), [0, 0]);
}

/// Each once from an inside host, and once from another one.
#[test]
fn what_has_no_port_is_dropped() {
    let mut gateway = nat(row());
    let remote = remote(443);
    let inside = SocketAddr::new(inside_host(2), PORT);
    let strange = SocketAddr::new("192.168.8.2".parse().unwrap(), PORT);
    let message = |kind, rest| Message {
        kind,
        code: 0,
        rest,
        body: vec![0; 12],
    };
    let makes: [&dyn Fn(SocketAddr) -> Packet; 7] = [
        &|from| tunnelled(from.ip(), remote.ip()),
        &|from| {
            Packet::datagram(from, remote)
                .payload([7; 16])
                .fragment(2, true)
        },
        &|from| {
            Packet::datagram(from, remote)
                .payload([7; 16])
                .fragment(2, false)
        },
        // Asks for the time, tells an address, replies to nothing.
        &|from| message(13, 0x0001_0001).packet(from.ip(), remote.ip()),
        &|from| message(9, 0).packet(from.ip(), remote.ip()),
        &|from| message(0, 0x0001_0001).packet(from.ip(), remote.ip()),
        // A header that does not fit into its packet.
        &|from| Packet::datagram(from, remote).transport_len(7),
    ];
    for make in makes {
        gateway
            .leaves(make(inside))
            .is_dropped(Outcome::OutDropUntranslated);
        gateway.leaves(make(inside)).at(LAN).passes();
        gateway.leaves(make(strange)).passes();
        gateway.leaves(make(outside(PORT))).passes();
    }
    assert_eq!(gateway.bindings(), [0, 0]);
}

/// No answer could come back to one outside end.
#[test]
fn what_goes_to_many_hosts_is_dropped() {
    let mut gateway = nat(row());
    for to in ["239.1.2.3:9", "255.255.255.255:9"] {
        let to = to.parse().unwrap();
        let inside = SocketAddr::new(inside_host(2), PORT);
        let datagram = Packet::datagram(inside, to);
        gateway
            .leaves(&datagram)
            .is_dropped(Outcome::OutDropUntranslated);
        gateway.leaves(datagram).at(LAN).passes();
        gateway.leaves(Packet::datagram(outside(PORT), to)).passes();
    }
}

#[test]
fn a_damaged_packet_of_a_session_is_dropped() {
    for by in Transport::ALL {
        let one = Conversation::new(2, by);
        let mut gateway = nat(row());
        one.open(&mut gateway, &BINDS);
        let [sent, _] = one.goes_on();
        gateway
            .leaves(sent.transport_len(7))
            .is_dropped(Outcome::OutDropMalformed);
        let [sent, _] = one.is_answered();
        gateway
            .comes_in(sent.transport_len(7))
            .is_dropped(Outcome::InDropMalformed);
    }
}

#[test]
fn without_an_outside_address_nothing_leaves() {
    for by in Transport::ALL {
        let one = Conversation::new(2, by);
        let mut gateway = nat(NatRow {
            outside: None,
            ..row()
        });
        let [sent, becomes] = one.begins();
        gateway.leaves(&sent).is_dropped(Outcome::OutDropAddress);
        gateway.has_daemon();
        gateway.leaves(&sent).is_dropped(Outcome::OutDropAddress);
        assert_eq!(gateway.requests(), [(Kind::Prohibit, sent.clone().into())]);
        gateway.set_nat(OWN, row());
        gateway.leaves(&sent).becomes(becomes, &BINDS);
        gateway.set_nat(
            OWN,
            NatRow {
                outside: None,
                ..row()
            },
        );
        gateway.leaves(sent).is_dropped(Outcome::OutDropAddress);
        assert_eq!(gateway.made_for(one.inside.ip()), 1);
    }
}

/// The address may come back before its ends notice.
#[test]
fn an_open_connection_is_not_ended_by_a_lost_outside_address() {
    let one = Conversation::new(2, Transport::Tcp);
    let mut gateway = nat(row());
    gateway.has_daemon();
    one.open(&mut gateway, &BINDS);
    let [sent, becomes] = one.goes_on();
    let without = NatRow {
        outside: None,
        ..row()
    };
    gateway.set_nat(OWN, without);
    gateway.leaves(&sent).is_dropped(Outcome::OutDropAddress);
    assert_eq!(gateway.requests(), []);
    gateway.set_nat(OWN, row());
    gateway.leaves(sent).becomes(becomes, &["out_translated"]);
}

#[test]
fn a_range_without_a_free_port_refuses_new_ends() {
    for by in Transport::ALL {
        let one = Conversation::new(2, by);
        let mut gateway = nat(NatRow {
            ports: [PORT, PORT],
            ..row()
        });
        one.begin(&mut gateway, &BINDS);
        for late in [
            Conversation::new(3, by),
            one.of_port(PORT + 1),
            one.of_port(5000),
        ] {
            let [sent, _] = late.begins();
            gateway.leaves(sent).is_dropped(Outcome::OutDropPorts);
        }
        let [sent, becomes] = one.begins();
        gateway.leaves(sent).becomes(becomes, &LEAVES);
        assert_eq!(gateway.bindings(), [1, 1]);
        assert_eq!(gateway.made_for(inside_host(3)), 0);
    }
}

#[test]
fn one_host_does_not_take_the_ports_of_others() {
    for by in Transport::ALL {
        let one = Conversation::new(2, by);
        let mut gateway = nat(NatRow {
            max_per_host: 2,
            ..row()
        });
        one.begin(&mut gateway, &BINDS);
        let second = one.of_port(PORT + 1).by_port(PORT + 1);
        second.begin(&mut gateway, &BINDS);
        let third = one.of_port(PORT + 2).by_port(PORT + 2);
        let [sent, _] = third.begins();
        gateway.leaves(&sent).is_dropped(Outcome::OutDropHost);
        // What is bound goes on, and talks to new ends.
        second.answer(&mut gateway);
        second.with(remote(9)).begin(
            &mut gateway,
            match by {
                // Without ports it is the same session.
                Transport::Echo => &PROVES,
                _ => &BEGINS,
            },
        );
        let other = Conversation::new(3, by).of_port(PORT + 3);
        other.by_port(PORT + 3).begin(&mut gateway, &BINDS);
        // The daemon removes what is over.
        gateway.unbind(one.inside, one.outside, by.protocol());
        third.begin(&mut gateway, &BINDS);
    }
}

/// Neither of the two tables of bindings is half written.
#[test]
fn full_tables_of_bindings_refuse_new_ends() {
    for room in [
        Room {
            bindings: 1,
            ..Room::default()
        },
        Room {
            outside_ports: 1,
            ..Room::default()
        },
    ] {
        for by in Transport::ALL {
            let mut gateway = Gateway::with_room(&[], room);
            gateway.set_nat(OWN, row());
            let one = Conversation::new(2, by);
            one.begin(&mut gateway, &BINDS);
            let late = Conversation::new(3, by).of_port(PORT + 1);
            let [sent, _] = late.begins();
            gateway.leaves(sent).is_dropped(Outcome::OutDropFull);
            assert_eq!(gateway.bindings(), [1, 1]);
            assert_eq!(gateway.made_for(late.inside.ip()), 0);
            one.answer(&mut gateway);
        }
    }
}

#[test]
fn a_full_table_of_sessions_refuses_new_ones() {
    for by in Transport::ALL {
        let mut gateway = nat(row());
        let one = Conversation::new(2, by);
        for number in 0..MAX_SESSIONS as u16 {
            let port = PORT + number;
            one.of_port(port).by_port(port).open(&mut gateway, &BINDS);
        }
        let late = one.with(other_remote(443));
        let [sent, _] = late.begins();
        gateway.leaves(sent).is_dropped(Outcome::OutDropFull);
        let [sent, _] = late.is_called();
        if by != Transport::Echo {
            gateway.comes_in(sent).is_dropped(Outcome::InDropFull);
        }
        let [sent, becomes] = one.goes_on();
        gateway.leaves(sent).becomes(becomes, &LEAVES);
    }
}

#[test]
fn a_session_that_cannot_last_is_counted_where_it_leaves() {
    let mut gateway = nat(row());
    // The test's map has room for eight entries for each session that may last.
    let most = 4 * MAX_SESSIONS as u16;
    let all: Vec<_> = (PORT..=PORT + most)
        .map(|port| {
            Conversation::new(2, Transport::Udp)
                .of_port(port)
                .by_port(port)
        })
        .collect();
    for one in &all {
        one.begin(&mut gateway, &BINDS);
        one.answer(&mut gateway);
    }
    let (last, others) = all.split_last().unwrap();
    for one in others {
        let [sent, becomes] = one.goes_on();
        gateway.leaves(sent).becomes(becomes, &PROVES);
    }
    let [sent, _] = last.goes_on();
    gateway.leaves(sent).is_dropped(Outcome::OutDropFull);
}

#[test]
fn an_error_does_not_leave_with_an_outside_address_of_before() {
    let mut gateway = nat(row());
    let one = Conversation::new(2, Transport::Udp);
    one.open(&mut gateway, &BINDS);
    let [_, got] = one.gets().map(|packet| packet.quote(14));
    let outside = Some("10.1.2.3".parse().unwrap());
    gateway.set_nat(OWN, NatRow { outside, ..row() });
    let refusal = Message {
        kind: 3,
        code: 3,
        rest: 0,
        body: got,
    };
    gateway
        .leaves(refusal.packet(one.inside.ip(), one.remote.ip()))
        .is_dropped(Outcome::OutDropUntranslated);
}

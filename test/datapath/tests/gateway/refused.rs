//! Packets that would begin a session, and must not.

use std::net::SocketAddr;

use xdptun_common::gateway::outcome::Outcome;
use xdptun_common::gateway::rule::BackEnd;
use xdptun_common::gateway::timer::Timers;
use xdptun_common::gateway::tuple::{Side, Tuple};
use xdptun_common::wire::Protocol;
use xdptun_test_datapath::gateway::{Gateway, MAX_SESSIONS, Rule};
use xdptun_test_datapath::{Family, Packet, flags};

use crate::{Hosts, LISTEN, both};

#[test]
fn a_full_table_refuses_new_sessions_and_keeps_the_others() {
    for family in Family::ALL {
        let open = Hosts::new(family, 0);
        let mut gateway = open.gateway();
        for number in 0..MAX_SESSIONS as u16 {
            Hosts::new(family, number).connect(&mut gateway);
        }
        let late = Hosts::new(family, 99);
        let [syn, _] = late.call_segment(flags::SYN, (1, 0));
        gateway.comes_in(syn).is_dropped(Outcome::InDropFull);
        let [data, forwarded] = open.call_segment(flags::DATA, (1001, 5001));
        gateway.comes_in(data).becomes(forwarded, &["in_forwarded"]);
    }
}

/// Floods from addresses that are not the sender's leave nothing that lasts: neither SYNs
/// alone, nor SYNs with guessed acknowledgements.
#[test]
fn a_flood_of_strangers_does_not_last() {
    for family in Family::ALL {
        let open = Hosts::new(family, 0);
        let mut gateway = open.gateway();
        open.connect(&mut gateway);
        for number in 1..200 {
            let stranger = Hosts::new(family, number);
            let [syn, forwarded] = stranger.call_segment(flags::SYN, (1000, 0));
            gateway
                .comes_in(syn)
                .becomes(forwarded, &["in_forwarded", "sessions_began"]);
            let [syn_ack, returned] =
                stranger.answer_segment(flags::SYN | flags::ACK, (5000, 1001));
            gateway.leaves(syn_ack).becomes(returned, &["out_returned"]);
            for guess in [0, 4999, 5000, 5001 + 16_384, 0x8000_0000] {
                let [ack, forwarded] = stranger.call_segment(flags::ACK, (1001, guess));
                gateway.comes_in(ack).becomes(forwarded, &["in_forwarded"]);
            }
        }
        assert_eq!(gateway.lasting(), [1, 0]);
        assert_eq!(gateway.entries()[0], 2);
    }
}

/// A back end that refuses answers without a SYN, so that no number proves anything.
#[test]
fn a_refusal_proves_nothing() {
    for family in Family::ALL {
        let stranger = Hosts::new(family, 1);
        let mut gateway = stranger.gateway();
        let [syn, forwarded] = stranger.call_segment(flags::SYN, (1000, 0));
        gateway
            .comes_in(syn)
            .becomes(forwarded, &["in_forwarded", "sessions_began"]);
        let [reset, returned] = stranger.answer_segment(flags::RST | flags::ACK, (0, 1001));
        gateway.leaves(reset).becomes(returned, &["out_returned"]);
        for guess in [0, 1, 2, 16_384] {
            let [ack, forwarded] = stranger.call_segment(flags::ACK, (1001, guess));
            gateway.comes_in(ack).becomes(forwarded, &["in_forwarded"]);
        }
        assert_eq!(gateway.lasting(), [0, 0]);
    }
}

/// A SYN with a forged source leads to the back end of a connection that its source has with it
/// directly. The answers of that connection are not of the session.
#[test]
fn a_forged_syn_does_not_touch_a_direct_connection() {
    for hosts in both(9) {
        let mut gateway = hosts.gateway();
        let [syn, forwarded] = hosts.call_segment(flags::SYN, (1000, 0));
        gateway
            .comes_in(syn)
            .becomes(forwarded, &["in_forwarded", "sessions_began"]);
        for (flags, numbers) in [
            (flags::ACK, (5001, 7001)),
            (flags::DATA, (5001, 7001)),
            (flags::RST, (5001, 0)),
            (flags::RST | flags::ACK, (5001, 7001)),
            (flags::FIN | flags::ACK, (5001, 7001)),
        ] {
            let [answer, _] = hosts.answer_segment(flags, numbers);
            gateway.leaves(answer).passes();
        }
    }
}

/// The kernel evicts single entries: what is left of a session must not block its caller.
#[test]
fn half_a_session_begins_anew() {
    for hosts in both(10) {
        let mut gateway = hosts.gateway();
        let [syn, forwarded] = hosts.call_segment(flags::SYN, (1000, 0));
        let began = ["in_forwarded", "sessions_began"];
        gateway.comes_in(&syn).becomes(&forwarded, &began);
        let call = Tuple::new(hosts.client, hosts.listen, Protocol::TCP, Side::In);
        let answer = call.answer(hosts.back_end.into());
        for evicted in [call, answer] {
            gateway.evict(&evicted);
            gateway.comes_in(&syn).becomes(&forwarded, &began);
            assert_eq!(gateway.entries(), [0, 2]);
        }
    }
}

/// The answers of both would look alike: the first stays, and an ended one makes room.
#[test]
fn two_sessions_do_not_share_their_answers() {
    for family in Family::ALL {
        let hosts = Hosts::new(family, 1);
        let [tcp, udp] = Rule::both(LISTEN, hosts.back_end);
        let [other, _] = Rule::both(LISTEN + 1, hosts.back_end);
        let mut gateway = Gateway::new(&[tcp, udp, other]);
        hosts.connect(&mut gateway);
        let by_other = Hosts {
            listen: SocketAddr::new(family.host(), LISTEN + 1),
            ..hosts
        };
        let [syn, forwarded] = by_other.call_segment(flags::SYN, (9000, 0));
        gateway.comes_in(&syn).is_dropped(Outcome::InDropClash);
        let direct = hosts.direct().segment(flags::SYN, 9000, 0);
        gateway.comes_in(&direct).is_dropped(Outcome::InDropClash);
        let [reset, returned] = hosts.answer_segment(flags::RST | flags::ACK, (5001, 1001));
        gateway.leaves(reset).becomes(returned, &["out_returned"]);
        // The back end may still hold the connection, which the other client could then use.
        gateway.comes_in(&syn).is_dropped(Outcome::InDropClash);
        gateway.age(Timers::DEFAULT.tcp_transitory + 1000);
        gateway
            .comes_in(syn)
            .becomes(forwarded, &["in_forwarded", "sessions_began"]);
        let [syn_ack, returned] = by_other.answer_segment(flags::SYN | flags::ACK, (1, 9001));
        gateway.leaves(syn_ack).becomes(returned, &["out_returned"]);
    }
}

/// A direct connection takes the place of an ended session, and is not touched.
#[test]
fn a_direct_connection_ends_a_session_that_is_over() {
    for hosts in both(2) {
        let mut gateway = hosts.gateway();
        hosts.connect(&mut gateway);
        hosts.reset(&mut gateway);
        let direct = hosts.direct().segment(flags::SYN, 9000, 0);
        gateway.comes_in(&direct).is_dropped(Outcome::InDropClash);
        gateway.age(Timers::DEFAULT.tcp_transitory + 1000);
        gateway.comes_in(direct).passes();
        let [answer, _] = hosts.answer_segment(flags::SYN | flags::ACK, (1, 9001));
        gateway.leaves(answer).passes();
    }
}

#[test]
fn what_cannot_be_forwarded_is_dropped() {
    for hosts in both(3) {
        let mut gateway = hosts.gateway();
        let [call, _] = hosts.call();
        gateway.set_back_end(
            1,
            BackEnd {
                to: hosts.back_end.into(),
                unreachable: 1,
                ..BackEnd::default()
            },
        );
        gateway
            .comes_in(&call)
            .is_dropped(Outcome::InDropUnreachable);
        gateway.set_back_end(
            1,
            BackEnd {
                to: hosts.back_end.into(),
                ..BackEnd::default()
            },
        );
        let [_, forwarded] = hosts.call();
        gateway
            .comes_in(&call)
            .becomes(forwarded, &["in_forwarded", "sessions_began"]);
        // A header that does not fit into its packet.
        gateway
            .comes_in(call.transport_len(7))
            .is_dropped(Outcome::InDropMalformed);
    }
    // A route that names its end elsewhere is in the checksum of the first header.
    let hosts = Hosts::new(Family::V6, 4);
    let mut gateway = hosts.gateway();
    let [call, _] = hosts.call();
    let routed = call.extension(etherparse::IpNumber(43), 1);
    gateway.comes_in(&routed).passes();
    let [call, forwarded] = hosts.call();
    gateway
        .comes_in(call)
        .becomes(forwarded, &["in_forwarded", "sessions_began"]);
    gateway
        .comes_in(routed)
        .is_dropped(Outcome::InDropExtensions);
}

/// Nobody answers to these.
#[test]
fn sources_that_no_host_has_begin_nothing() {
    for family in Family::ALL {
        let hosts = Hosts::new(family, 5);
        let mut gateway = hosts.gateway();
        let sources: [&str; 2] = match family {
            Family::V4 => ["224.0.0.1:9", "0.0.0.0:9"],
            Family::V6 => ["[ff02::1]:9", "[::]:9"],
        };
        for source in sources {
            let source = source.parse().unwrap();
            gateway
                .comes_in(Packet::datagram(source, hosts.listen))
                .passes();
        }
        let source = SocketAddr::new(hosts.client.ip(), 0);
        gateway
            .comes_in(Packet::datagram(source, hosts.listen))
            .passes();
    }
}

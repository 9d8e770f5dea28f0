//! Fragments: those without ports follow the one with them.

use std::net::{IpAddr, SocketAddr};

use etherparse::IpNumber;
use xdptun_common::gateway::fragment::Held;
use xdptun_common::gateway::outcome::Outcome;
use xdptun_common::gateway::request::Kind;
use xdptun_common::gateway::tuple::Side;
use xdptun_test_datapath::Packet;
use xdptun_test_datapath::gateway::Gateway;
use xdptun_test_datapath::program::Skb;

use crate::inside::{ARRIVES, BINDS, Conversation, LEAVES, Transport, nat, row};
use crate::{HERE, both};

const ID: u32 = 0x0102;

/// The first fragment of a datagram as it comes and as it goes on, and a later one.
fn fragments(of: [Packet; 2], addresses: [[IpAddr; 2]; 2]) -> [[Packet; 2]; 2] {
    let link = of[0].clone();
    let first = of.map(|packet| packet.fragment_of(ID, 0, true));
    // Only bytes of the payload.
    let later = addresses.map(|[from, to]| {
        let later = Packet::other(from, to, IpNumber::UDP).payload([7; 16]);
        later.fragment_of(ID, 1, false).linked_as(&link)
    });
    [first, later]
}

#[test]
fn later_fragments_follow_the_first() {
    for hosts in both(0) {
        let mut gateway = hosts.gateway();
        let [client, listen, back_end] =
            [hosts.client, hosts.listen, hosts.back_end].map(|end| end.ip());
        let [[first, forwarded], [later, followed]] =
            fragments(hosts.call(), [[client, listen], [client, back_end]]);
        gateway.comes_in(&later).passes();
        gateway
            .comes_in(first)
            .becomes(forwarded, &["in_forwarded", "sessions_began"]);
        gateway.comes_in(later).becomes(followed, &["in_forwarded"]);
        let [[first, returned], [later, followed]] =
            fragments(hosts.answer(), [[back_end, client], [listen, client]]);
        gateway.leaves(&later).passes();
        gateway.leaves(first).becomes(returned, &["out_returned"]);
        gateway.leaves(later).becomes(followed, &["out_returned"]);
    }
}

/// Of an inside host none leaves with its address.
#[test]
fn later_fragments_of_inside_hosts_follow_the_first() {
    let one = Conversation::new(2, Transport::Udp);
    let mut gateway = nat(row());
    let [inside, outside, remote] = [one.inside, one.outside, one.remote].map(|end| end.ip());
    let [[first, becomes], [later, followed]] =
        fragments(one.sends(), [[inside, remote], [outside, remote]]);
    gateway
        .leaves(&later)
        .is_dropped(Outcome::OutDropUntranslated);
    gateway.leaves(first).becomes(becomes, &BINDS);
    gateway.leaves(&later).becomes(followed, &LEAVES);
    // Of another datagram.
    gateway
        .leaves(later.fragment_of(ID + 1, 1, false))
        .is_dropped(Outcome::OutDropUntranslated);
    let [[first, becomes], [later, followed]] =
        fragments(one.gets(), [[remote, outside], [remote, inside]]);
    gateway.comes_in(&later).passes();
    gateway.comes_in(first).becomes(becomes, &ARRIVES);
    gateway.comes_in(later).becomes(followed, &ARRIVES);
}

/// A first fragment and a later one, as they are and as they go on, of both sides.
struct Sides {
    gateway: Gateway,
    comes_in: [[Packet; 2]; 2],
    leaves: [[Packet; 2]; 2],
    counters: [&'static str; 2],
}

/// A forwarded datagram and its answer, and those of an inside host.
fn sides() -> impl Iterator<Item = Sides> {
    let forwarded = both(0).map(|hosts| {
        let mut gateway = hosts.gateway();
        gateway.names(hosts.back_end.ip());
        let [client, listen, back_end] =
            [hosts.client, hosts.listen, hosts.back_end].map(|end| end.ip());
        Sides {
            comes_in: fragments(hosts.call(), [[client, listen], [client, back_end]]),
            leaves: fragments(hosts.answer(), [[back_end, client], [listen, client]]),
            counters: ["in_forwarded", "out_returned"],
            gateway,
        }
    });
    let one = Conversation::new(2, Transport::Udp);
    let [inside, outside, remote] = [one.inside, one.outside, one.remote].map(|end| end.ip());
    let mut gateway = nat(row());
    // An inside host sends before anybody can send to it.
    let [sent, becomes] = one.sends();
    gateway.leaves(sent).becomes(becomes, &BINDS);
    let translated = Sides {
        gateway,
        leaves: fragments(one.sends(), [[inside, remote], [outside, remote]]),
        comes_in: fragments(one.gets(), [[remote, outside], [remote, inside]]),
        counters: ["in_translated", "out_translated"],
    };
    forwarded.chain([translated])
}

#[test]
fn those_before_the_first_wait_for_it() {
    for mut sides in sides() {
        sides.gateway.has_daemon();
        let [comes_in, leaves] = [&sides.comes_in, &sides.leaves].map(Clone::clone);
        let [counts_in, counts_out] = sides.counters;
        for (side, [[first, becomes], [later, followed]], held, counter) in [
            (Side::In, comes_in, Outcome::InHeld, counts_in),
            (Side::Out, leaves, Outcome::OutHeld, counts_out),
        ] {
            let gateway = &mut sides.gateway;
            gateway.meets(side, &later).is_held(held);
            let frame: Vec<u8> = later.clone().into();
            assert_eq!(gateway.requests(), [(Kind::Hold, frame)]);
            gateway.meets(side, first).goes_on_as(becomes, counter);
            assert_eq!(gateway.requests(), [(Kind::Release, vec![])]);
            let mark = match side {
                Side::In => Held::In,
                Side::Out => Held::Out,
            };
            let again = gateway.meets(side, &later).marked(mark as u32);
            again.becomes(followed.clone(), &[counter]);
            // In order, nobody waits.
            gateway.meets(side, later).becomes(followed, &[counter]);
            assert_eq!(gateway.requests(), []);
        }
    }
}

/// The program of the way out sends it to that of the way in.
#[test]
fn one_that_had_come_in_goes_there_again() {
    let [hosts, _] = both(0).collect::<Vec<_>>().try_into().unwrap();
    let [_, [later, _]] = fragments(
        hosts.call(),
        [
            [hosts.client.ip(), hosts.listen.ip()],
            [hosts.client.ip(), hosts.back_end.ip()],
        ],
    );
    let mut gateway = hosts.gateway();
    gateway
        .leaves(later)
        .marked(Held::In as u32)
        .is_redirected();
}

/// Datagrams of this host's own sockets, and what it routes.
#[test]
fn those_of_no_session_go_on() {
    for hosts in both(0) {
        let mut gateway = hosts.gateway();
        gateway.has_daemon();
        let own = SocketAddr::new(hosts.listen.ip(), 9);
        let datagram = Packet::datagram(hosts.client, own).payload(*b"to this host");
        let ends = [hosts.client.ip(), own.ip()];
        let [[first, _], [later, _]] = fragments([datagram.clone(), datagram], [ends, ends]);
        gateway.comes_in(&later).is_held(Outcome::InHeld);
        gateway.comes_in(&first).passes();
        let kinds: Vec<Kind> = gateway
            .requests()
            .into_iter()
            .map(|(kind, _)| kind)
            .collect();
        assert_eq!(kinds, [Kind::Hold, Kind::Release]);
        gateway.comes_in(&later).passes();
        gateway.comes_in(later).marked(Held::In as u32).passes();
        let ends = [hosts.client.ip(), hosts.back_end.ip()];
        let routed = [hosts.direct(), hosts.direct()];
        let [_, [later, _]] = fragments(routed, [ends, ends]);
        gateway.comes_in(&later).passes();
        gateway.leaves(later).passes();
        assert_eq!(gateway.requests(), []);
    }
}

/// Nobody would let them go on.
#[test]
fn without_a_daemon_none_waits() {
    let one = Conversation::new(2, Transport::Udp);
    let mut gateway = nat(row());
    let [inside, outside, remote] = [one.inside, one.outside, one.remote].map(|end| end.ip());
    let [_, [later, _]] = fragments(one.sends(), [[inside, remote], [outside, remote]]);
    gateway
        .leaves(later)
        .is_dropped(Outcome::OutDropUntranslated);
    let [_, [later, _]] = fragments(one.gets(), [[remote, outside], [remote, inside]]);
    gateway.comes_in(later).passes();
    assert_eq!(gateway.requests(), []);
}

/// However many fragments without a first come, the daemon gets so many.
#[test]
fn a_flood_does_not_keep_the_daemon_busy() {
    let [hosts, _] = both(0).collect::<Vec<_>>().try_into().unwrap();
    let mut gateway = hosts.gateway();
    gateway.has_daemon();
    let ends = [hosts.client.ip(), hosts.listen.ip()];
    let mut asked = 0;
    for id in 0..40_000 {
        let later = Packet::other(ends[0], ends[1], IpNumber::UDP).payload([7; 16]);
        let later: Vec<u8> = later.fragment_of(id, 1, false).link_to(HERE).into();
        gateway.run(Side::In, &later, Skb::default());
        asked += gateway.requests().len();
    }
    assert!((1024..20_000).contains(&asked), "{asked}");
}

/// It may get another source there, and overtake its first on the way through this host.
#[test]
fn one_that_leaves_to_a_back_end_waits_as_well() {
    for hosts in both(0) {
        let mut gateway = hosts.gateway();
        gateway.names(hosts.back_end.ip());
        gateway.has_daemon();
        let ends = [hosts.client.ip(), hosts.back_end.ip()];
        let leaves = [hosts.direct(), hosts.direct()];
        let [_, [later, _]] = fragments(leaves, [ends, ends]);
        gateway.leaves(later).is_held(Outcome::OutHeld);
    }
}

//! Fragments: those without ports follow the one with them.

use std::net::IpAddr;

use etherparse::IpNumber;
use xdptun_common::gateway::outcome::Outcome;
use xdptun_test_datapath::Packet;

use crate::both;
use crate::inside::{ARRIVES, BINDS, Conversation, LEAVES, Transport, nat, row};

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

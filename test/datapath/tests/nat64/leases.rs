//! Which address a client gets, and for how long.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use xdptun_common::nat64::lease::{Number, SEEN_EVERY, Standing};
use xdptun_common::nat64::outcome::Outcome;
use xdptun_common::nat64::translator::Translator;
use xdptun_test_datapath::Packet;
use xdptun_test_datapath::nat64::{Nat64, pool, translator};

use crate::{Ends, SERVER, V4, V6, client};

fn call(nat64: &Nat64, client: Ipv6Addr) -> Packet {
    Packet::datagram((client, 4000).into(), (nat64.v6(SERVER), 53).into())
}

#[test]
fn a_client_keeps_its_address() {
    let (mut nat64, ends) = Ends::new();
    let again = call(&nat64, client(9));
    nat64.meets(again).made(&["to_v4"]);
    let (address, lease) = nat64.lease(client(9)).unwrap();
    assert_eq!(IpAddr::V4(address), ends.client[V4]);
    assert_eq!(lease.standing(), Some(Standing::Answered));
    assert_eq!(nat64.leases(), 1);
}

#[test]
fn a_small_pool_is_lent_to_the_last_address() {
    let small = Translator {
        pool: pool(29),
        ..translator()
    };
    let mut nat64 = Nat64::new(small);
    let mut addresses = BTreeSet::new();
    for number in 0..5 {
        let first = call(&nat64, client(number));
        nat64.meets(first).made(&["to_v4", "leases_began"]);
        addresses.insert(nat64.lease(client(number)).unwrap().0);
    }
    let expected = (2..7).map(|host| Ipv4Addr::new(100, 64, 0, host));
    assert_eq!(addresses, expected.collect());
    let one_more = call(&nat64, client(9));
    nat64.meets(one_more).made(&["to_v4_drop_full", "refusals"]);
}

#[test]
fn clients_that_nobody_answers_have_a_share() {
    let small = Translator {
        max_unanswered: 2,
        ..translator()
    };
    let mut nat64 = Nat64::new(small);
    Ends::of(&mut nat64, client(1));
    for number in [2, 3] {
        let first = call(&nat64, client(number));
        nat64.meets(first).made(&["to_v4", "leases_began"]);
    }
    let one_more = call(&nat64, client(4));
    nat64
        .meets(one_more.clone())
        .made(&["to_v4_drop_share", "refusals"]);
    // The daemon has found that one of them is over.
    nat64.set_number(Number::Unanswered, 1);
    nat64.meets(one_more).made(&["to_v4", "leases_began"]);
}

#[test]
fn clients_of_one_network_have_a_share() {
    let small = Translator {
        max_per_network: 2,
        ..translator()
    };
    let mut nat64 = Nat64::new(small);
    for number in [1, 2] {
        let first = call(&nat64, client(number));
        nat64.meets(first).made(&["to_v4", "leases_began"]);
    }
    let one_more = call(&nat64, client(3));
    nat64
        .meets(one_more.clone())
        .made(&["to_v4_drop_network", "refusals"]);
    nat64.set_gone(client(1), 1);
    nat64.meets(one_more).made(&["to_v4", "leases_began"]);
}

#[test]
fn a_lease_that_is_over_takes_nothing_in_and_is_renewed_by_its_client() {
    let (mut nat64, ends) = Ends::new();
    let answer = || ends.to_client(V4, 53, 4000);
    nat64.age(translator().answered - SEEN_EVERY);
    nat64.meets(answer()).made(&["to_v6"]);
    nat64.age(2 * SEEN_EVERY);
    nat64.meets(answer()).is_dropped(Outcome::ToV6DropUnknown);
    nat64.meets(ends.to_server(V6, 4000, 53)).made(&["to_v4"]);
    nat64.meets(answer()).made(&["to_v6"]);
}

#[test]
fn a_lease_that_was_never_answered_ends_sooner() {
    let mut nat64 = Nat64::new(translator());
    let first = call(&nat64, client(9));
    nat64.meets(first).made(&["to_v4", "leases_began"]);
    let (address, _) = nat64.lease(client(9)).unwrap();
    nat64.age(translator().unanswered + SEEN_EVERY);
    let late = Packet::datagram((SERVER, 53).into(), (address, 4000).into());
    nat64.meets(late).is_dropped(Outcome::ToV6DropUnknown);
}

/// What somebody sends to a client does not keep its address.
#[test]
fn only_a_client_renews_its_lease() {
    let (mut nat64, ends) = Ends::new();
    nat64.age(SEEN_EVERY);
    let before = nat64.lease(client(9)).unwrap().1.seen;
    nat64.meets(ends.to_client(V4, 53, 4000)).made(&["to_v6"]);
    assert_eq!(nat64.lease(client(9)).unwrap().1.seen, before);
    nat64.meets(ends.to_server(V6, 4000, 53)).made(&["to_v4"]);
    assert_ne!(nat64.lease(client(9)).unwrap().1.seen, before);
}

/// The daemon removes a lease in two steps.
#[test]
fn half_a_lease_is_none() {
    let (mut nat64, ends) = Ends::new();
    let (address, _) = nat64.lease(client(9)).unwrap();
    nat64.remove_lease(address);
    nat64
        .meets(ends.to_client(V4, 53, 4000))
        .is_dropped(Outcome::ToV6DropUnknown);
    nat64
        .meets(ends.to_server(V6, 4000, 53))
        .made(&["to_v4", "leases_began"]);
    assert_eq!(
        nat64.lease(client(9)).unwrap().0,
        address,
        "its first choice"
    );
}

#[test]
fn a_static_address_is_its_clients_and_nobody_elses() {
    let small = Translator {
        pool: pool(29),
        ..translator()
    };
    let mut nat64 = Nat64::new(small);
    let address = Ipv4Addr::new(100, 64, 0, 4);
    nat64.fix(address, client(9));
    nat64.age(u32::MAX / 2);
    let from_outside = Packet::datagram((SERVER, 53).into(), (address, 4000).into());
    nat64.meets(from_outside).made(&["to_v6"]);
    let own = call(&nat64, client(9));
    let made = nat64.meets(own).made(&["to_v4"]);
    assert_eq!(made[26..30], address.octets());
    for number in 0..4 {
        let first = call(&nat64, client(number));
        nat64.meets(first).made(&["to_v4", "leases_began"]);
        assert_ne!(nat64.lease(client(number)).unwrap().0, address);
    }
}

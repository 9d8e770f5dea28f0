//! How long bindings last, and what becomes of them when the outside address changes.

use std::net::SocketAddr;

use xdptun_common::gateway::nat::BINDING_REST;
use xdptun_common::gateway::outcome::Outcome;
use xdptun_common::gateway::session::Marks;
use xdptun_common::gateway::timer::Timers;
use xdptun_test_datapath::gateway::{Gateway, NatRow, OWN};
use xdptun_test_datapath::{Family, Moment, flags};

use crate::inside::{
    ARRIVES, BEGINS, BINDS, CALLS, Conversation, LEAVES, PORT, PROVES, Transport, nat,
    other_remote, row,
};

const TIMERS: Timers = Timers::DEFAULT;

/// Much less than any life, and more than the time between what sessions tell.
const PAUSE: u32 = 2 * BINDING_REST;

/// One port for all.
fn one_port() -> NatRow {
    NatRow {
        ports: [PORT, PORT],
        ..row()
    }
}

fn age(gateway: &mut Gateway, ticks: u32) {
    gateway.age(ticks);
    gateway.age_bindings(ticks);
}

fn until(gateway: &Gateway, one: Conversation) -> u32 {
    let binding = gateway.binding(one.outside, one.by.protocol());
    binding.expect("it is bound").until
}

/// Does it, after which the binding lasts a life from that moment on, and no longer than it must.
#[track_caller]
fn lasts_from_now(
    gateway: &mut Gateway,
    one: Conversation,
    life: u32,
    work: impl FnOnce(&mut Gateway),
) {
    let before = Moment::now().tick();
    work(gateway);
    let after = Moment::now().tick();
    let from = until(gateway, one).wrapping_sub(life + BINDING_REST);
    let (late, most) = (from.wrapping_sub(before), after.wrapping_sub(before));
    assert!(
        late <= most,
        "it lasts from {from}, not {before} to {after}"
    );
}

#[test]
fn a_binding_that_is_over_makes_room() {
    for by in Transport::ALL {
        let mut gateway = nat(one_port());
        let one = Conversation::new(2, by);
        let other = Conversation::new(3, by);
        let life = TIMERS.of(by.protocol(), Marks::default());
        one.begin(&mut gateway, &BINDS);
        age(&mut gateway, life + BINDING_REST - 10_000);
        // No session is left, but the port is not another's yet.
        let [sent, _] = other.begins();
        gateway.leaves(&sent).is_dropped(Outcome::OutDropPorts);
        age(&mut gateway, 11_000);
        other.open(&mut gateway, &BINDS);
        assert_eq!(gateway.bindings(), [1, 1]);
        let inside = gateway.binding(one.outside, by.protocol()).unwrap().inside;
        assert_eq!(inside.socket_addr(), other.inside);
        let port = gateway.outside_port(one.inside, one.outside.ip(), by.protocol());
        assert_eq!(port, None, "it is the other's");
        let [sent, _] = one.begins();
        gateway.leaves(sent).is_dropped(Outcome::OutDropPorts);
        other.answer(&mut gateway);
    }
}

/// The same end gets the same port again while its binding lasts, and may later.
#[test]
fn a_silent_end_is_bound_anew() {
    for by in Transport::ALL {
        let mut gateway = nat(row());
        let one = Conversation::new(2, by);
        let life = TIMERS.of(by.protocol(), Marks::default());
        one.begin(&mut gateway, &BINDS);
        age(&mut gateway, life + 1000);
        one.begin(&mut gateway, &BEGINS);
        age(&mut gateway, life + BINDING_REST + 1000);
        one.begin(&mut gateway, &BINDS);
        assert_eq!(gateway.bindings(), [1, 1]);
    }
}

/// A stranger finds no one behind a binding that is over.
#[test]
fn a_binding_that_is_over_is_absent() {
    let mut gateway = nat(row());
    let one = Conversation::new(2, Transport::Udp);
    one.begin(&mut gateway, &BINDS);
    let called = one.with(other_remote(9));
    let [sent, becomes] = called.gets();
    gateway.comes_in(&sent).becomes(becomes, &CALLS);
    age(&mut gateway, TIMERS.udp + BINDING_REST + 1000);
    gateway.comes_in(sent).is_dropped(Outcome::InDropFiltered);
}

#[test]
fn a_binding_lasts_as_long_as_its_session() {
    for by in Transport::ALL {
        let mut gateway = nat(row());
        let one = Conversation::new(2, by);
        let new = TIMERS.of(by.protocol(), Marks::default());
        lasts_from_now(&mut gateway, one, new, |gateway| {
            one.begin(gateway, &BINDS);
        });
        // Answers to the inside host as well: a stream that comes in may need no answer.
        age(&mut gateway, PAUSE);
        lasts_from_now(&mut gateway, one, new, |gateway| one.answer(gateway));
        let proven = TIMERS.of(by.protocol(), Marks::default().proven());
        lasts_from_now(&mut gateway, one, proven, |gateway| {
            let [sent, becomes] = one.goes_on();
            gateway.leaves(sent).becomes(becomes, &PROVES);
        });
        // Later by either end.
        age(&mut gateway, PAUSE);
        lasts_from_now(&mut gateway, one, proven, |gateway| {
            let [sent, becomes] = one.goes_on();
            gateway.leaves(sent).becomes(becomes, &LEAVES);
        });
        if by == Transport::Tcp {
            continue;
        }
        age(&mut gateway, PAUSE);
        lasts_from_now(&mut gateway, one, proven, |gateway| one.answer(gateway));
    }
}

/// Data that comes in keeps a connection, as data that leaves does.
#[test]
fn a_segment_of_the_remote_end_tells_the_binding() {
    let mut gateway = nat(row());
    let one = Conversation::new(2, Transport::Tcp);
    one.open(&mut gateway, &BINDS);
    age(&mut gateway, PAUSE);
    lasts_from_now(&mut gateway, one, TIMERS.tcp_established, |gateway| {
        let [data, becomes] = one.gets_segment(flags::DATA, (5001, 1001));
        gateway.comes_in(data).becomes(becomes, &ARRIVES);
    });
}

/// Only every so often: the bindings of busy sessions would go from CPU to CPU.
#[test]
fn packets_close_together_do_not_tell_the_binding() {
    let mut gateway = nat(row());
    let one = Conversation::new(2, Transport::Udp);
    one.open(&mut gateway, &BINDS);
    let part = || Moment::now().tick() / BINDING_REST;
    // A packet before, in the same part of time, and one after.
    loop {
        let before = part();
        let [sent, becomes] = one.sends();
        gateway.leaves(&sent).becomes(&becomes, &LEAVES);
        gateway.age_bindings(100);
        let expected = until(&gateway, one);
        gateway.leaves(sent).becomes(becomes, &LEAVES);
        if part() == before {
            assert_eq!(until(&gateway, one), expected);
            return;
        }
    }
}

/// A stranger that gets no answer does not keep a binding for ever (RFC 4787 section 4.3).
#[test]
fn strangers_keep_no_binding() {
    let mut gateway = nat(row());
    let one = Conversation::new(2, Transport::Udp);
    one.begin(&mut gateway, &BINDS);
    let called = one.with(other_remote(9));
    let [sent, becomes] = called.gets();
    gateway.comes_in(&sent).becomes(&becomes, &CALLS);
    let mut expected = until(&gateway, one);
    for _ in 0..3 {
        age(&mut gateway, PAUSE);
        expected = expected.wrapping_sub(PAUSE);
        gateway.comes_in(&sent).becomes(&becomes, &ARRIVES);
        assert_eq!(until(&gateway, one), expected);
    }
    // The inside host answers.
    lasts_from_now(&mut gateway, one, TIMERS.udp, |gateway| {
        let [sent, becomes] = called.sends();
        gateway.leaves(sent).becomes(becomes, &LEAVES);
    });
}

#[test]
fn an_ended_connection_gives_its_port_back_soon() {
    const FIN: u8 = flags::FIN | flags::ACK;
    let one = Conversation::new(2, Transport::Tcp);
    // By both ends.
    let mut gateway = nat(one_port());
    one.open(&mut gateway, &BINDS);
    let [fin, becomes] = one.sends_segment(FIN, (1001, 5001));
    lasts_from_now(&mut gateway, one, TIMERS.tcp_established, |gateway| {
        gateway.leaves(fin).becomes(becomes, &LEAVES);
    });
    let [fin, becomes] = one.gets_segment(FIN, (5001, 1002));
    lasts_from_now(&mut gateway, one, TIMERS.tcp_ended, |gateway| {
        gateway.comes_in(fin).becomes(becomes, &ARRIVES);
    });
    let other = Conversation::new(3, Transport::Tcp);
    let [sent, _] = other.begins();
    gateway.leaves(sent).is_dropped(Outcome::OutDropPorts);
    age(&mut gateway, TIMERS.tcp_ended + BINDING_REST + 1000);
    other.open(&mut gateway, &BINDS);
    // By a reset of either.
    for leaves in [true, false] {
        let mut gateway = nat(row());
        one.open(&mut gateway, &BINDS);
        lasts_from_now(&mut gateway, one, TIMERS.tcp_ended, |gateway| {
            if leaves {
                let [reset, becomes] = one.sends_segment(flags::RST, (1001, 0));
                gateway.leaves(reset).becomes(becomes, &LEAVES);
            } else {
                let [reset, becomes] = one.gets_segment(flags::RST, (5001, 0));
                gateway.comes_in(reset).becomes(becomes, &ARRIVES);
            }
        });
    }
}

/// Neither a reset nor a FIN with a guessed number.
#[test]
fn a_forged_end_does_not_shorten_a_binding() {
    let one = Conversation::new(2, Transport::Tcp);
    let mut gateway = nat(row());
    one.open(&mut gateway, &BINDS);
    for (flags, number) in [
        (flags::RST, 77),
        (flags::RST, 5002),
        (flags::FIN | flags::ACK, 0x8000_0000),
    ] {
        lasts_from_now(&mut gateway, one, TIMERS.tcp_established, |gateway| {
            gateway.age_bindings(PAUSE);
            let [forged, becomes] = one.gets_segment(flags, (number, 1001));
            gateway.comes_in(forged).becomes(becomes, &ARRIVES);
        });
    }
}

/// A DHCP or PPP client has set another address.
#[test]
fn a_new_outside_address_is_used_from_then_on() {
    let changed = SocketAddr::new(Family::V4.also_host(), PORT);
    for by in Transport::ALL {
        let mut gateway = nat(row());
        let one = Conversation::new(2, by);
        one.open(&mut gateway, &BINDS);
        gateway.set_nat(
            OWN,
            NatRow {
                outside: Some(changed.ip()),
                ..row()
            },
        );
        let moved = Conversation {
            outside: changed,
            ..one
        };
        if by == Transport::Tcp {
            for flags in [flags::DATA, flags::FIN | flags::ACK, flags::RST] {
                let [stray, _] = one.sends_segment(flags, (1001, 5001));
                gateway.leaves(stray).is_dropped(Outcome::OutDropStray);
            }
        }
        moved.open(&mut gateway, &BINDS);
        assert_eq!(gateway.bindings(), [2, 2]);
        let binding = gateway.binding(changed, by.protocol()).unwrap();
        assert_eq!(binding.inside.socket_addr(), one.inside);
        // The old address is no longer this host's, and strangers do not get in by it.
        if by != Transport::Echo {
            let [sent, _] = one.with(other_remote(9)).is_called();
            gateway.comes_in(sent).passes();
        }
    }
}

/// A reload may change the range: ends with ports outside it get others for new sessions.
#[test]
fn a_new_range_is_used_from_then_on() {
    let mut gateway = nat(one_port());
    let one = Conversation::new(2, Transport::Udp);
    one.open(&mut gateway, &BINDS);
    gateway.set_nat(
        OWN,
        NatRow {
            ports: [PORT + 1, PORT + 1],
            ..row()
        },
    );
    let [sent, becomes] = one.sends();
    gateway.leaves(sent).becomes(becomes, &LEAVES);
    let new = one.with(other_remote(9)).by_port(PORT + 1);
    new.open(&mut gateway, &BINDS);
    new.answer(&mut gateway);
    one.answer(&mut gateway);
}

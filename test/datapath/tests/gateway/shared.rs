//! Bindings that several connections of an inside end share.

use xdptun_common::gateway::nat::BINDING_REST;
use xdptun_common::gateway::outcome::Outcome;
use xdptun_common::gateway::timer::Timers;
use xdptun_common::wire::Protocol;
use xdptun_test_datapath::flags;
use xdptun_test_datapath::gateway::{Gateway, NatRow};

use crate::inside::*;

const TIMERS: Timers = Timers::DEFAULT;

#[test]
fn a_strangers_refused_call_leaves_the_binding_to_others() {
    let one = Conversation::new(2, Transport::Tcp);
    let mut gateway = nat(NatRow {
        ports: [PORT, PORT],
        ..row()
    });
    one.open(&mut gateway, &BINDS);
    let stranger = one.with(other_remote(9));
    let [syn, becomes] = stranger.is_called();
    gateway.comes_in(syn).becomes(becomes, &CALLS);
    let [reset, becomes] = stranger.sends_segment(flags::RST | flags::ACK, (0, 1001));
    gateway.leaves(reset).becomes(becomes, &LEAVES);
    gateway.age(TIMERS.tcp_ended + BINDING_REST + 1000);
    gateway.age_bindings(TIMERS.tcp_ended + BINDING_REST + 1000);
    let [sent, _] = Conversation::new(3, Transport::Tcp)
        .with(remote(9))
        .begins();
    gateway.leaves(sent).is_dropped(Outcome::OutDropPorts);
}

#[test]
fn an_ended_connection_leaves_the_binding_to_others() {
    let one = Conversation::new(2, Transport::Tcp);
    let mut gateway = nat(NatRow {
        ports: [PORT, PORT],
        ..row()
    });
    one.open(&mut gateway, &BINDS);
    let second = one.with(other_remote(443));
    second.open(&mut gateway, &BEGINS);
    let [reset, becomes] = second.sends_segment(flags::RST, (1001, 0));
    gateway.leaves(reset).becomes(becomes, &LEAVES);
    gateway.age(TIMERS.tcp_ended + BINDING_REST + 1000);
    gateway.age_bindings(TIMERS.tcp_ended + BINDING_REST + 1000);
    let [sent, _] = Conversation::new(3, Transport::Tcp)
        .with(remote(9))
        .begins();
    gateway.leaves(sent).is_dropped(Outcome::OutDropPorts);
}

/// RFC 7857 section 7.1: a stranger must not keep a binding by calls that the inside host refuses.
#[test]
fn a_refused_call_keeps_no_binding() {
    let one = Conversation::new(2, Transport::Tcp);
    let mut gateway = nat(row());
    one.begin(&mut gateway, &BINDS);
    let until = |gateway: &Gateway| gateway.binding(one.outside, Protocol::TCP).unwrap().until;
    gateway.age_bindings(100);
    let before = until(&gateway);
    let stranger = one.with(other_remote(9));
    let [syn, becomes] = stranger.is_called();
    gateway.comes_in(syn).becomes(becomes, &CALLS);
    let [reset, becomes] = stranger.sends_segment(flags::RST | flags::ACK, (0, 1001));
    gateway.leaves(reset).becomes(becomes, &LEAVES);
    assert_eq!(until(&gateway), before);
}

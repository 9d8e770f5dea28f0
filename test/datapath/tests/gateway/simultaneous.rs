//! Connections that both ends begin at the same moment (RFC 5382 REQ-2).

use xdptun_test_datapath::flags;

use crate::inside::*;

const SYN_ACK: u8 = flags::SYN | flags::ACK;

#[test]
fn data_of_the_remote_end_may_be_first_after_both_have_called() {
    let one = Conversation::new(2, Transport::Tcp);
    let mut gateway = nat(row());
    one.begin(&mut gateway, &BINDS);
    let [syn, becomes] = one.gets_segment(flags::SYN, (5000, 0));
    gateway.comes_in(syn).becomes(becomes, &ARRIVES);
    let [syn_ack, becomes] = one.sends_segment(SYN_ACK, (1000, 5001));
    gateway.leaves(syn_ack).becomes(becomes, &LEAVES);
    one.answer(&mut gateway);
    let [data, becomes] = one.gets_segment(flags::DATA, (5001, 1001));
    gateway.comes_in(data).becomes(becomes, &ARRIVES);
}

#[test]
fn data_of_the_inside_end_may_be_first_after_both_have_called() {
    let one = Conversation::new(2, Transport::Tcp);
    let mut gateway = nat(row());
    one.with(other_remote(443)).begin(&mut gateway, &BINDS);
    let [syn, becomes] = one.gets_segment(flags::SYN, (5000, 0));
    gateway.comes_in(syn).becomes(becomes, &CALLS);
    one.begin(&mut gateway, &LEAVES);
    one.answer(&mut gateway);
    let [syn_ack, becomes] = one.sends_segment(SYN_ACK, (1000, 5001));
    gateway.leaves(syn_ack).becomes(becomes, &LEAVES);
    let [data, becomes] = one.sends_segment(flags::DATA, (1001, 5001));
    gateway.leaves(data).becomes(becomes, &LEAVES);
}

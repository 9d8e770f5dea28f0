//! Times after which a session is over, with no daemon to remove it.

use xdptun_common::gateway::timer::Timers;
use xdptun_test_datapath::flags;

use crate::both;

/// Ages that a session must survive end ten seconds before its time, as steps take time as well.
const TIMERS: Timers = Timers::DEFAULT;

#[test]
fn a_session_that_is_over_is_absent() {
    for hosts in both(0) {
        let mut gateway = hosts.gateway();
        let [call, forwarded] = hosts.call();
        let [answer, returned] = hosts.answer();
        let began = ["in_forwarded", "sessions_began"];
        gateway.comes_in(&call).becomes(&forwarded, &began);
        gateway.age(TIMERS.udp - 10_000);
        gateway
            .leaves(&answer)
            .becomes(&returned, &["out_returned"]);
        // The call is silent for longer than a session lives, its answer is not.
        gateway.age(TIMERS.udp - 10_000);
        gateway
            .comes_in(&call)
            .becomes(&forwarded, &["in_forwarded", "sessions_proven"]);
        gateway.age(TIMERS.udp + 1000);
        gateway.leaves(&answer).passes();
        gateway.comes_in(&call).becomes(&forwarded, &began);
    }
}

#[test]
fn a_connection_lives_on_without_segments_for_two_hours() {
    for hosts in both(1) {
        let mut gateway = hosts.gateway();
        hosts.connect(&mut gateway);
        gateway.age(TIMERS.tcp_established - 10_000);
        let [data, forwarded] = hosts.call_segment(flags::DATA, (1001, 5001));
        gateway
            .comes_in(&data)
            .becomes(&forwarded, &["in_forwarded"]);
        gateway.age(TIMERS.tcp_established + 1000);
        gateway.comes_in(&data).passes();
    }
}

/// Four minutes after both ends have closed, and no sooner: a late segment still arrives.
#[test]
fn a_closed_connection_goes_after_four_minutes() {
    for hosts in both(2) {
        let mut gateway = hosts.gateway();
        hosts.connect(&mut gateway);
        const FIN: u8 = flags::FIN | flags::ACK;
        let [fin, forwarded] = hosts.call_segment(FIN, (1001, 5001));
        gateway.comes_in(fin).becomes(forwarded, &["in_forwarded"]);
        // Half closed: the back end may go on for long.
        gateway.age(TIMERS.tcp_transitory + 1000);
        let [fin, returned] = hosts.answer_segment(FIN, (5001, 1002));
        gateway.leaves(&fin).becomes(&returned, &["out_returned"]);
        gateway.age(TIMERS.tcp_transitory - 10_000);
        gateway.leaves(&fin).becomes(&returned, &["out_returned"]);
        gateway.age(TIMERS.tcp_transitory + 1000);
        gateway.leaves(&fin).passes();
    }
}

/// Neither a reset nor a FIN with a guessed number shortens the life of an idle connection.
#[test]
fn a_forged_end_ends_nothing() {
    for hosts in both(5) {
        let mut gateway = hosts.gateway();
        hosts.connect(&mut gateway);
        for number in [77, 1000, 1002, 0x8000_0000] {
            let [reset, forwarded] = hosts.call_segment(flags::RST, (number, 0));
            gateway
                .comes_in(reset)
                .becomes(forwarded, &["in_forwarded"]);
            let [reset, returned] = hosts.answer_segment(flags::RST, (number, 0));
            gateway.leaves(reset).becomes(returned, &["out_returned"]);
        }
        for number in [77, 0x8000_0000] {
            let [fin, forwarded] = hosts.call_segment(flags::FIN | flags::ACK, (number, 5001));
            gateway.comes_in(fin).becomes(forwarded, &["in_forwarded"]);
            let [fin, returned] = hosts.answer_segment(flags::FIN | flags::ACK, (number, 1001));
            gateway.leaves(fin).becomes(returned, &["out_returned"]);
        }
        gateway.age(TIMERS.tcp_transitory + 1000);
        let [data, forwarded] = hosts.call_segment(flags::DATA, (1001, 5001));
        gateway.comes_in(data).becomes(forwarded, &["in_forwarded"]);
    }
}

/// The connection goes on, and so even a reset with the right number was forged.
#[test]
fn a_reset_is_over_with_the_next_segment() {
    for hosts in both(3) {
        let mut gateway = hosts.gateway();
        hosts.connect(&mut gateway);
        hosts.reset(&mut gateway);
        let [data, forwarded] = hosts.call_segment(flags::DATA, (1001, 5001));
        gateway
            .comes_in(&data)
            .becomes(&forwarded, &["in_forwarded"]);
        gateway.age(TIMERS.tcp_transitory + 1000);
        gateway
            .comes_in(&data)
            .becomes(&forwarded, &["in_forwarded"]);
    }
}

#[test]
fn a_client_opens_an_ended_connection_anew() {
    for hosts in both(4) {
        let mut gateway = hosts.gateway();
        hosts.connect(&mut gateway);
        let [syn, forwarded] = hosts.call_segment(flags::SYN, (8000, 0));
        // Of an open one the back end decides.
        gateway
            .comes_in(&syn)
            .becomes(&forwarded, &["in_forwarded"]);
        let [reset, returned] = hosts.answer_segment(flags::RST, (5001, 0));
        gateway.leaves(reset).becomes(returned, &["out_returned"]);
        gateway
            .comes_in(&syn)
            .becomes(&forwarded, &["in_forwarded", "sessions_reopened"]);
        // It has to prove itself again, and is counted once.
        let [syn_ack, returned] = hosts.answer_segment(flags::SYN | flags::ACK, (700, 8001));
        gateway.leaves(syn_ack).becomes(returned, &["out_returned"]);
        let [ack, forwarded] = hosts.call_segment(flags::ACK, (8001, 701));
        gateway
            .comes_in(&ack)
            .becomes(&forwarded, &["in_forwarded", "sessions_proven"]);
        gateway.age(TIMERS.tcp_transitory + 1000);
        gateway
            .comes_in(&ack)
            .becomes(&forwarded, &["in_forwarded"]);
        assert_eq!(gateway.lasting(), [1, 0]);
    }
}

/// A SYN alone, which may be forged, gives an ended connection four minutes and no more.
#[test]
fn a_connection_opened_anew_has_to_prove_itself() {
    for hosts in both(6) {
        let mut gateway = hosts.gateway();
        hosts.connect(&mut gateway);
        let [reset, returned] = hosts.answer_segment(flags::RST, (5001, 0));
        gateway.leaves(reset).becomes(returned, &["out_returned"]);
        let [syn, forwarded] = hosts.call_segment(flags::SYN, (8000, 0));
        gateway
            .comes_in(&syn)
            .becomes(&forwarded, &["in_forwarded", "sessions_reopened"]);
        gateway.age(TIMERS.tcp_transitory + 1000);
        gateway
            .comes_in(&syn)
            .becomes(&forwarded, &["in_forwarded", "sessions_began"]);
    }
}

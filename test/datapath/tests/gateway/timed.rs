//! Times after which a session is over, with no daemon to remove it.

use xdptun_common::gateway::timer::Timers;
use xdptun_test_datapath::flags;

use crate::both;

const TIMERS: Timers = Timers::DEFAULT;

#[test]
fn a_session_that_is_over_is_absent() {
    for hosts in both(0) {
        let mut gateway = hosts.gateway();
        let [call, forwarded] = hosts.call();
        let [answer, returned] = hosts.answer();
        let began = ["in_forwarded", "sessions_began"];
        gateway.comes_in(&call).becomes(&forwarded, &began);
        gateway.age(TIMERS.udp - 1000);
        gateway
            .leaves(&answer)
            .becomes(&returned, &["out_returned"]);
        // The call is silent for longer than a session lives, its answer is not.
        gateway.age(TIMERS.udp - 1000);
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
        gateway.age(TIMERS.tcp_established - 1000);
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
        gateway.age(TIMERS.tcp_transitory - 1000);
        gateway.leaves(&fin).becomes(&returned, &["out_returned"]);
        gateway.age(TIMERS.tcp_transitory + 1000);
        gateway.leaves(&fin).passes();
    }
}

/// The connection goes on, and so it was forged.
#[test]
fn a_forged_reset_ends_nothing() {
    for hosts in both(3) {
        let mut gateway = hosts.gateway();
        hosts.connect(&mut gateway);
        let [reset, forwarded] = hosts.call_segment(flags::RST, (77, 0));
        gateway
            .comes_in(reset)
            .becomes(forwarded, &["in_forwarded"]);
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
        gateway.age(TIMERS.tcp_transitory + 1000);
        gateway
            .comes_in(&syn)
            .becomes(&forwarded, &["in_forwarded"]);
        assert_eq!(gateway.lasting(), [1, 0]);
    }
}

//! Packets of sessions that user space has ended.

use xdptun_common::gateway::outcome::Outcome;
use xdptun_common::gateway::request::Kind;
use xdptun_common::gateway::tuple::{Side, Tuple};
use xdptun_common::wire::Protocol;
use xdptun_test_datapath::flags;

use crate::{Hosts, both};

/// Ten minutes, in ticks.
const LONG: i32 = 572_205;

/// A call and its answer.
fn met(hosts: Hosts, protocol: Protocol) -> [Tuple; 2] {
    let call = Tuple::new(hosts.client, hosts.listen, protocol, Side::In);
    [call, call.answer(hosts.back_end.into())]
}

#[test]
fn segments_are_dropped_and_answered_until_the_note_is_over() {
    for hosts in both(0) {
        let mut gateway = hosts.gateway();
        gateway.has_daemon();
        gateway.cuts(&met(hosts, Protocol::TCP), LONG);
        let [data, _] = hosts.call_segment(flags::DATA, (1001, 5001));
        let [answer, _] = hosts.answer_segment(flags::DATA, (5001, 1001));
        gateway.comes_in(&data).is_dropped(Outcome::InDropCut);
        assert_eq!(gateway.requests(), [(Kind::Reset, data.clone().into())]);
        gateway.leaves(&answer).is_dropped(Outcome::OutDropCut);
        assert_eq!(gateway.requests(), [(Kind::Reset, answer.clone().into())]);
        gateway.cuts(&met(hosts, Protocol::TCP), -1);
        gateway.comes_in(data).passes();
        gateway.leaves(answer).passes();
        assert_eq!(gateway.requests(), []);
    }
}

#[test]
fn without_a_daemon_nobody_is_asked() {
    for hosts in both(0) {
        let mut gateway = hosts.gateway();
        gateway.cuts(&met(hosts, Protocol::TCP), LONG);
        let [data, _] = hosts.call_segment(flags::DATA, (1001, 5001));
        gateway.comes_in(data).is_dropped(Outcome::InDropCut);
        assert_eq!(gateway.requests(), []);
    }
}

/// By a rule that is there now.
#[test]
fn a_client_may_call_anew() {
    for hosts in both(0) {
        let mut gateway = hosts.gateway();
        gateway.has_daemon();
        gateway.cuts(&met(hosts, Protocol::TCP), LONG);
        hosts.connect(&mut gateway);
        let [data, forwarded] = hosts.call_segment(flags::DATA, (1001, 5001));
        gateway.comes_in(data).becomes(forwarded, &["in_forwarded"]);
        assert_eq!(gateway.requests(), []);
    }
}

/// They would leave with the address of the back end.
#[test]
fn datagrams_of_the_back_end_are_dropped() {
    for hosts in both(0) {
        let mut gateway = hosts.gateway();
        gateway.has_daemon();
        gateway.cuts(&met(hosts, Protocol::UDP), LONG);
        let [answer, returned] = hosts.answer();
        gateway.leaves(&answer).is_dropped(Outcome::OutDropCut);
        assert_eq!(gateway.requests(), []);
        let [call, forwarded] = hosts.call();
        let began = ["in_forwarded", "sessions_began"];
        gateway.comes_in(call).becomes(forwarded, &began);
        gateway.leaves(answer).becomes(returned, &["out_returned"]);
    }
}

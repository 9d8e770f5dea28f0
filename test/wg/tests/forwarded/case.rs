//! A download through the gateway, and what has to be true of it.

use std::time::Duration;

use xdptun_lab::content::Filling;
use xdptun_lab::{Capture, Family, WireStats, wait, xdptun};
use xdptun_test_wg::forwarding::{Form, Source};
use xdptun_test_wg::{Between, Crossing, Forwarding, Gateway, Path, Scenario};

use crate::counted::{counted, expected};

/// Large enough for thousands of datagrams.
const MIB: usize = 4;

/// How long counters, and what is on its way, may take to catch up.
const LIMIT: Duration = Duration::from_secs(10);

/// Who computes the checksums of what hosts and gateway send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksums {
    /// Their kernels, so that a capture shows those of the wire.
    Complete,
    /// Nobody: they are left to cards, and a wire between namespaces has none.
    LeftToCards,
}

/// How a download goes through the gateway.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Of the gateway's address that peer 1 knows.
    pub family: Family,
    /// What runs on the gateway and on the hosts.
    pub forwarding: Forwarding,
    /// Who computes them.
    pub checksums: Checksums,
}

impl Case {
    /// Downloads, and judges what crossed both wires and what was counted.
    pub fn check(self) {
        let scenario = self.scenario();
        let gateway = scenario.gateway().unwrap();
        let running = self.forwarding.start(gateway).unwrap();
        let wires = gateway.watch().unwrap();

        scenario.ping().unwrap();
        let download = scenario.fetch(Path::Xdptun, |_| {}).unwrap();
        scenario.verify(&download).unwrap();
        self.assert_seen(&scenario);
        scenario.down().unwrap();

        self.wait_settled(gateway, &wires);
        assert_one_session(gateway);
        running.stop().unwrap();
        let crossed = wires.map(|wire| wire.stop().unwrap());
        for (form, crossing) in self.forwarding.wires.into_iter().zip(&crossed) {
            self.assert_crossed(form, &crossing.stats);
        }
    }

    fn is_masqueraded(&self) -> bool {
        self.forwarding.source == Source::Masquerade
    }

    /// A network without what it must not need: a card's checksums, or a way back from the server
    /// to the client beside the masquerade.
    fn scenario(&self) -> Scenario {
        let between = Between::Gateway(self.family);
        let scenario = Scenario::new(between, MIB, Filling::Pattern).unwrap();
        let net = scenario.gateway().unwrap().net();
        if self.checksums == Checksums::Complete {
            net.complete_checksums().unwrap();
        }
        if self.is_masqueraded() {
            net.strand_back_end().unwrap();
        }
        scenario
    }

    /// Peer 2 sees peer 1 where `--source` says.
    fn assert_seen(&self, scenario: &Scenario) {
        let gateway = scenario.gateway().unwrap();
        let seen = scenario.peer1_seen().unwrap();
        if self.is_masqueraded() {
            assert_eq!(seen.ip(), gateway.net().inner(self.family), "{self:?}");
        } else {
            assert_eq!(seen, gateway.client(), "{self:?}");
        }
    }

    /// Waits until each datagram that came in by one wire has left by the other, and until exactly
    /// that is counted.
    fn wait_settled(&self, gateway: &Gateway, wires: &[Capture<Crossing>; 2]) {
        let mut last = None;
        let settled = wait::until_some(LIMIT, "the counters", || {
            let crossed = wires.each_ref().map(|wire| wire.peek(Crossing::clone));
            let (counted, expected) = (
                counted(gateway.netns())?,
                expected(&self.forwarding, &crossed),
            );
            let [wan, lan] = &crossed;
            let all_passed = (wan.received, lan.received) == (lan.sent, wan.sent);
            let settled = all_passed && counted == expected;
            last = Some((counted, expected, crossed));
            Ok(settled.then_some(()))
        });
        settled.unwrap_or_else(|error| panic!("{self:?}: {error:#}: {last:#?}"));
    }

    fn assert_crossed(&self, form: Form, stats: &WireStats) {
        let context = format!("{self:?}, {form:?}: {stats:#?}");
        assert!(stats.payload_bytes > (MIB << 20) as u64, "{context}");
        assert_eq!(stats.bad_checksums, 0, "{context}");
        assert_eq!((stats.fragments, stats.malformed), (0, 0), "{context}");
        match form {
            Form::Plain => self.assert_plain(stats, &context),
            Form::Disguised => assert_disguised(stats, &context),
        }
    }

    fn assert_plain(&self, stats: &WireStats, context: &str) {
        assert_eq!(stats.tcp_segments, 0, "{context}");
        if self.checksums == Checksums::Complete {
            assert_eq!(stats.unready_checksums, 0, "{context}");
        }
    }
}

/// One connection, from its handshake to the FIN of both ends.
fn assert_disguised(stats: &WireStats, context: &str) {
    assert_eq!(stats.udp_datagrams, 0, "{context}");
    assert_eq!(stats.unready_checksums, 0, "{context}");
    assert_eq!(stats.segments_without_df, 0, "{context}");
    assert_eq!(stats.handshakes.len(), 1, "{context}");
    assert_eq!((stats.fin, stats.rst), (2, 0), "{context}");
}

fn assert_one_session(gateway: &Gateway) {
    let status = xdptun::status(gateway.netns()).unwrap();
    for attached in status["gateways"].as_array().unwrap() {
        let states = attached["session_states"].to_string();
        assert_eq!(states, r#"{"open":1}"#);
    }
}

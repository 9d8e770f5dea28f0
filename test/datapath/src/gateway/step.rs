//! One packet at a hook, and what comes of it.

use std::collections::BTreeMap;

use xdptun_common::gateway::outcome::Outcome;
use xdptun_common::gateway::tuple::Side;

use crate::case::Verdict;
use crate::diff;
use crate::gateway::{Gateway, OWN};
use crate::program::{Program, Skb};

/// A packet at a hook.
#[must_use]
pub struct Step<'a> {
    gateway: &'a mut Gateway,
    side: Side,
    packet: Vec<u8>,
    skb: Skb,
    interface: u32,
}

impl<'a> Step<'a> {
    pub(super) fn new(gateway: &'a mut Gateway, side: Side, packet: Vec<u8>) -> Self {
        gateway.moved();
        Self {
            gateway,
            side,
            packet,
            skb: Skb::default(),
            interface: OWN,
        }
    }

    /// It is met at the interface with this index.
    pub const fn at(mut self, interface: u32) -> Self {
        self.interface = interface;
        self
    }

    /// It carries a mark.
    pub fn marked(mut self, mark: u32) -> Self {
        self.skb.mark = mark;
        self
    }

    /// It goes on as another one, and these are counted, once each.
    ///
    /// # Panics
    ///
    /// If anything else comes of it.
    #[track_caller]
    pub fn becomes(self, expected: impl Into<Vec<u8>>, counters: &[&str]) {
        self.judge(Verdict::Pass, Some(expected.into()), counters);
    }

    /// It goes on as it is, and nothing is counted.
    ///
    /// # Panics
    ///
    /// If anything else comes of it.
    #[track_caller]
    pub fn passes(self) {
        let packet = self.packet.clone();
        self.judge(Verdict::Pass, Some(packet), &[]);
    }

    /// It is dropped.
    ///
    /// # Panics
    ///
    /// If anything else comes of it.
    #[track_caller]
    pub fn is_dropped(self, outcome: Outcome) {
        self.judge(Verdict::Drop, None, &[outcome.name()]);
    }

    /// It waits with the daemon.
    ///
    /// # Panics
    ///
    /// If anything else comes of it.
    #[track_caller]
    pub fn is_held(self, outcome: Outcome) {
        self.judge(Verdict::Redirect, None, &[outcome.name()]);
    }

    /// It goes elsewhere, and nothing is counted.
    ///
    /// # Panics
    ///
    /// If anything else comes of it.
    #[track_caller]
    pub fn is_redirected(self) {
        self.judge(Verdict::Redirect, None, &[]);
    }

    /// It goes on as another one, and this is counted, whatever begins with it.
    ///
    /// # Panics
    ///
    /// If anything else comes of it.
    #[track_caller]
    pub fn goes_on_as(self, expected: impl Into<Vec<u8>>, counter: &'static str) {
        self.judge_counted(Verdict::Pass, Some(expected.into()), |moved| {
            moved.get(counter) == Some(&1)
        });
    }

    #[track_caller]
    fn judge(self, verdict: Verdict, packet: Option<Vec<u8>>, counters: &[&str]) {
        let expected: BTreeMap<&str, u64> = counters.iter().map(|name| (*name, 1)).collect();
        self.judge_counted(verdict, packet, |moved| *moved == expected);
    }

    #[track_caller]
    fn judge_counted(
        self,
        verdict: Verdict,
        packet: Option<Vec<u8>>,
        is_expected: impl FnOnce(&BTreeMap<&'static str, u64>) -> bool,
    ) {
        self.gateway.meet_at(self.interface);
        let (value, after) = self.gateway.run(self.side, &self.packet, self.skb);
        let found = Verdict::of(Program::Ingress, value);
        let moved = self.gateway.moved_by_packet(&after);
        assert_eq!(found, Some(verdict), "verdict; counted {moved:?}");
        if let Some(expected) = packet {
            assert!(expected == after, "{}", diff::hexdump(&expected, &after));
        }
        assert!(is_expected(&moved), "counted {moved:?}");
    }
}

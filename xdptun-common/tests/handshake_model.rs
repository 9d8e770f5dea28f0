//! `handshake` as a whole: two hosts, a network that loses, repeats and
//! reorders, an attacker who cannot see the wire, and hosts that forget.

#[path = "common/host.rs"]
mod host;

use host::{DATA, FIN_ACK, Link, Packet, SYN_ACK};
use proptest::prelude::*;
use xdptun_common::flow::seq::{distance, near};
use xdptun_common::tunnel::handshake::Segment;
use xdptun_common::tunnel::isn::{EPOCH_NS, Secret};
use xdptun_common::tunnel::outcome::{Outcome, Sent};
use xdptun_common::tunnel::state::State;
use xdptun_common::tunnel::window::MAX_WINDOW;
use xdptun_common::wire::Flags;

/// One thing that happens.
#[derive(Clone, Debug)]
enum Step {
    Send {
        host: usize,
        len: u32,
    },
    Retransmit {
        host: usize,
    },
    Probe {
        host: usize,
    },
    Deliver {
        to: usize,
        which: prop::sample::Index,
    },
    Duplicate {
        to: usize,
        which: prop::sample::Index,
    },
    Drop {
        to: usize,
        which: prop::sample::Index,
    },
    Finish {
        host: usize,
    },
    /// The table entry expires or is lost.
    Forget {
        host: usize,
    },
    /// Detached and attached again: no flows, another secret.
    Restart {
        host: usize,
        secret: u64,
    },
    Spoof {
        to: usize,
        flags: Flags,
        sequence: Guess,
        acknowledgment: Guess,
        len: u32,
    },
    Wait {
        ns: u64,
    },
    /// All that an established flow sends for a while is lost.
    Outage {
        host: usize,
        bytes: u32,
    },
}

/// How an attacker picks a number.
#[derive(Clone, Debug)]
enum Guess {
    Random(u32),
    /// By luck, so close to the right one.
    Close(i32),
}

impl Guess {
    fn number(&self, right: u32) -> u32 {
        match self {
            Self::Random(number) => *number,
            Self::Close(offset) => right.wrapping_add(offset.cast_unsigned()),
        }
    }
}

fn guess() -> impl Strategy<Value = Guess> {
    let limit = MAX_WINDOW.cast_signed();
    prop_oneof![
        any::<u32>().prop_map(Guess::Random),
        (-3..=3).prop_map(Guess::Close),
        (-limit - 2..=limit + 2).prop_map(Guess::Close),
    ]
}

fn flags() -> impl Strategy<Value = Flags> {
    prop_oneof![
        prop::sample::select(vec![
            Flags::SYN,
            SYN_ACK,
            Flags::RST,
            Flags::ACK,
            DATA,
            FIN_ACK
        ]),
        (0u8..0x40).prop_map(Flags),
    ]
}

fn len() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), Just(1), 2..1461u32, Just(65_495)]
}

/// Everything but what makes a host forget or an attacker.
fn peaceful_step() -> impl Strategy<Value = Step> {
    let host = 0..2usize;
    let which = || any::<prop::sample::Index>();
    prop_oneof![
        6 => (host.clone(), len()).prop_map(|(host, len)| Step::Send { host, len }),
        2 => host.clone().prop_map(|host| Step::Retransmit { host }),
        1 => host.clone().prop_map(|host| Step::Probe { host }),
        12 => (host.clone(), which()).prop_map(|(to, which)| Step::Deliver { to, which }),
        2 => (host.clone(), which()).prop_map(|(to, which)| Step::Duplicate { to, which }),
        3 => (host, which()).prop_map(|(to, which)| Step::Drop { to, which }),
    ]
}

fn rough_step() -> impl Strategy<Value = Step> {
    let host = 0..2usize;
    prop_oneof![
        12 => peaceful_step(),
        1 => host.clone().prop_map(|host| Step::Finish { host }),
        1 => host.clone().prop_map(|host| Step::Forget { host }),
        1 => (host.clone(), any::<u64>()).prop_map(|(host, secret)| Step::Restart { host, secret }),
        2 => (host, flags(), guess(), guess(), len()).prop_map(|(to, flags, sequence, acknowledgment, len)| {
            Step::Spoof { to, flags, sequence, acknowledgment, len }
        }),
        1 => (0..EPOCH_NS).prop_map(|ns| Step::Wait { ns }),
        1 => (0..2usize, 0..3 * MAX_WINDOW).prop_map(|(host, bytes)| Step::Outage { host, bytes }),
    ]
}

/// The link, and what must be true of it at all times.
struct Model {
    link: Link,
    sent: u32,
}

impl Model {
    fn new(secrets: [u64; 2]) -> Self {
        Self {
            link: Link::new(secrets),
            sent: 0,
        }
    }

    fn send(&mut self, host: usize, len: u32) {
        self.sent += 1;
        self.link.send(host, self.sent, len);
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Send { host, len } => self.send(*host, *len),
            Step::Retransmit { host } => {
                let sent = self.link.hosts[*host].retransmit();
                self.link.emit(*host, sent);
            }
            Step::Probe { host } => {
                let sent = self.link.hosts[*host].probe();
                self.link.emit(*host, sent);
            }
            Step::Deliver { to, which } => {
                if let Some(position) = self.pick(*to, which) {
                    self.check(*to, &self.link.wires[*to][position].segment);
                    self.link.deliver(*to, position);
                }
            }
            Step::Duplicate { to, which } => {
                if let Some(position) = self.pick(*to, which) {
                    let packet = self.link.wires[*to][position];
                    self.link.wires[*to].push(packet);
                }
            }
            Step::Drop { to, which } => {
                if let Some(position) = self.pick(*to, which) {
                    self.link.wires[*to].remove(position);
                }
            }
            Step::Finish { host } => {
                let sent = self.link.hosts[*host].finish();
                self.link.emit(*host, sent);
            }
            Step::Forget { host } => self.link.hosts[*host].flow = None,
            Step::Restart { host, secret } => {
                self.link.hosts[*host].flow = None;
                self.link.hosts[*host].secret = Secret::new([*secret, 3]);
            }
            Step::Spoof {
                to,
                flags,
                sequence,
                acknowledgment,
                len,
            } => {
                let (rcv_nxt, snd_nxt) = self.link.hosts[*to]
                    .flow
                    .map_or((0, self.link.hosts[*to].isn()), |flow| {
                        (flow.rcv_nxt, flow.snd_nxt)
                    });
                let segment = Segment {
                    flags: *flags,
                    sequence: sequence.number(rcv_nxt),
                    acknowledgment: acknowledgment.number(snd_nxt),
                    len: *len,
                    asks: len % 2 == 1,
                    exact: len % 2 == 1,
                };
                if !self.is_right(*to, &segment) {
                    self.check(*to, &segment);
                    let replies = self.link.hosts[*to].take(&Packet {
                        segment,
                        datagram: None,
                    });
                    self.link.emit(*to, replies);
                }
            }
            Step::Outage { host, bytes } => {
                if let Some(flow) = &mut self.link.hosts[*host].flow
                    && flow.state == State::Established
                {
                    flow.snd_nxt = flow.snd_nxt.wrapping_add(*bytes);
                }
            }
            Step::Wait { ns } => {
                for host in &mut self.link.hosts {
                    host.now += ns;
                }
            }
        }
    }

    fn pick(&self, to: usize, which: &prop::sample::Index) -> Option<usize> {
        let waiting = self.link.wires[to].len();
        (waiting > 0).then(|| which.index(waiting))
    }

    /// Whether an attacker would have to know, or hit, the numbers of the flow
    /// to send this.
    fn is_right(&self, to: usize, segment: &Segment) -> bool {
        let host = &self.link.hosts[to];
        let proof = segment.acknowledgment.wrapping_sub(1);
        if segment.flags.contains(Flags::ACK) && host.gave(proof) {
            return true;
        }
        let Some(flow) = host.flow else { return false };
        let in_window = near(segment.sequence, flow.rcv_nxt, MAX_WINDOW)
            && near(segment.acknowledgment, flow.snd_nxt, MAX_WINDOW);
        match flow.state {
            State::Closed => false,
            State::SynSent | State::SynReceived => {
                segment.flags.contains(Flags::ACK) && proof == flow.iss
            }
            State::Established | State::FinSent => {
                if segment.flags.contains(Flags::RST) {
                    segment.sequence == flow.rcv_nxt
                } else {
                    segment.flags.contains(Flags::ACK) && in_window
                }
            }
        }
    }

    /// What must hold of every reaction.
    fn check(&self, to: usize, segment: &Segment) {
        let host = &self.link.hosts[to];
        let reaction = host.reaction(segment);
        let after = reaction.endpoint;
        let context = format!("{segment:?} to {:?}: {reaction:?}", host.flow);
        let is_open = |state| matches!(state, State::Established | State::FinSent);

        if reaction.outcome == Outcome::RxRestored {
            assert!(
                is_open(after.state),
                "data before the handshake ended: {context}"
            );
            assert!(
                !reaction.reply.is_some(),
                "data provoked an answer: {context}"
            );
        }
        if segment.flags.contains(Flags::RST) {
            let reply = reaction.reply;
            let challenge = !reply.is_some() || reply.kind == Sent::ChallengeAck;
            assert!(
                challenge,
                "a reset provoked more than a challenge: {context}"
            );
        }
        if reaction.reply.is_some() {
            let reply = reaction.reply;
            assert_eq!(
                reply.flags.contains(Flags::RST),
                reply.kind == Sent::Rst,
                "counted as something else: {context}"
            );
        }
        let Some(before) = host.flow else {
            assert!(
                matches!(after.state, State::Closed | State::Established),
                "{context}"
            );
            return;
        };
        if is_open(before.state) {
            // Only what names its sender's latest numbers, or ends a silence, moves it
            // back.
            let back = distance(before.rcv_nxt, after.rcv_nxt);
            assert!(
                back <= 0 || segment.exact || host.silent,
                "rcv_nxt moved back: {context}"
            );
            // Only what a firewall counts moves it ahead, until the end.
            let is_end = segment.flags.contains(Flags::FIN) || before.state == State::FinSent;
            let counts = segment.is_datagram() || is_end;
            assert!(back >= 0 || counts, "rcv_nxt moved ahead: {context}");
            assert_eq!(after.iss, before.iss, "{context}");
            if after.state != before.state {
                assert_eq!(after.state, State::Closed, "{context}");
                let exact = if segment.flags.contains(Flags::RST) {
                    segment.sequence
                } else {
                    assert!(segment.flags.contains(FIN_ACK), "{context}");
                    segment.end()
                };
                // The number of a FIN may have been counted.
                let counted =
                    segment.flags.contains(Flags::FIN) && exact.wrapping_add(1) == before.rcv_nxt;
                assert!(
                    counted || exact == before.rcv_nxt,
                    "closed by a wrong number: {context}"
                );
            }
            let quick = before.takes_datagram(segment);
            if before.state == State::Established {
                let restored = reaction.outcome == Outcome::RxRestored;
                assert_eq!(quick, restored, "the quick path disagrees: {context}");
            } else {
                assert!(!quick, "{context}");
            }
        } else {
            assert!(!before.takes_datagram(segment), "{context}");
        }
        if before.state == State::Closed && after.state == State::Closed {
            assert_eq!(
                (after.snd_nxt, after.rcv_nxt),
                (before.snd_nxt, before.rcv_nxt),
                "a closed flow forgot its end: {context}"
            );
        }
    }

    /// How far the number that each end expects is ahead of what the other
    /// sends next.
    fn ahead(&self) -> [i32; 2] {
        let [a, b] = self
            .link
            .hosts
            .each_ref()
            .map(|host| host.flow.expect("a flow"));
        [
            distance(a.rcv_nxt, b.snd_nxt),
            distance(b.rcv_nxt, a.snd_nxt),
        ]
    }

    /// From here on the network is reliable. The hosts send a datagram and
    /// repeat what they repeat, a few times over; then they must agree.
    fn converge(&mut self) {
        let waiting: usize = self.link.wires.iter().map(Vec::len).sum();
        let took = self.link.settle();
        // A segment may be answered by a challenge, that by the reset of a host
        // that lost its memory, and then a handshake begins anew (three more); a
        // handshake that ends lets queued datagrams go.
        let bound = 6 * waiting + 2 * self.sent as usize;
        assert!(took <= bound, "{waiting} segments led to {took}");
        for round in 0..8 {
            for host in 0..2 {
                if round == 3 && self.link.hosts[host].state() == State::FinSent {
                    // The daemon gives up on a FIN that the peer does not answer.
                    self.link.hosts[host].flow = None;
                }
                let sent = self.link.hosts[host].retransmit();
                self.link.emit(host, sent);
                self.send(host, 100);
            }
            let took = self.link.settle();
            assert!(
                took <= 16 + 2 * self.sent as usize,
                "one round led to {took} segments"
            );
            for asked in [false, true] {
                for host in 0..2 {
                    let sent = self.link.hosts[host].doubt(asked);
                    self.link.emit(host, sent);
                }
                let took = self.link.settle();
                assert!(took <= 16 + 2 * self.sent as usize, "doubt led to {took}");
            }
        }
        assert_eq!(
            self.link.states(),
            [State::Established; 2],
            "{:#?}",
            self.link.hosts
        );
        for ahead in self.ahead() {
            // What a predecessor with the same initial number had in flight may
            // have been counted; and what was lost is caught up with in steps.
            let near = ahead.unsigned_abs() <= MAX_WINDOW;
            assert!(near, "{:#?}", self.link.hosts);
        }
        for host in 0..2 {
            self.send(host, 1);
            assert_eq!(
                self.link.settle(),
                1,
                "data of a settled flow is not answered"
            );
            assert_eq!(self.link.hosts[1 - host].delivered.last(), Some(&self.sent));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happened_both_ends_agree_once_the_network_is_reliable(
        secrets: [u64; 2], steps in prop::collection::vec(rough_step(), 0..80),
    ) {
        let mut model = Model::new(secrets);
        for step in &steps {
            model.step(step);
        }
        model.converge();
    }

    /// Without attacker and memory loss, no flow that is open ever closes.
    #[test]
    fn loss_and_reordering_close_nothing(
        secrets: [u64; 2], steps in prop::collection::vec(peaceful_step(), 0..80),
    ) {
        let mut model = Model::new(secrets);
        let mut open = [false; 2];
        for step in &steps {
            model.step(step);
            for (open, state) in open.iter_mut().zip(model.link.states()) {
                prop_assert!(!*open || state == State::Established);
                *open |= state == State::Established;
            }
        }
        model.converge();
        prop_assert_eq!(model.ahead(), [0, 0], "{:#?}", model.link.hosts);
    }

    /// What was sent is delivered to the other end, and as often as the network
    /// carried it: nothing of its own accord.
    #[test]
    fn a_datagram_is_delivered_at_most_once_by_a_network_that_repeats_nothing(
        secrets: [u64; 2], steps in prop::collection::vec(peaceful_step(), 0..80),
    ) {
        let mut model = Model::new(secrets);
        let mut senders = vec![usize::MAX];
        for step in &steps {
            match step {
                Step::Duplicate { .. } => continue,
                Step::Send { host, .. } => senders.push(*host),
                _ => {}
            }
            model.step(step);
        }
        for (host, end) in model.link.hosts.iter().enumerate() {
            let mut delivered = end.delivered.clone();
            delivered.sort_unstable();
            let count = delivered.len();
            delivered.dedup();
            prop_assert_eq!(delivered.len(), count);
            prop_assert!(delivered.iter().all(|number| senders[*number as usize] == 1 - host));
        }
    }
}

//! Rules that hold whatever an attacker off the path sends.

use std::collections::BTreeMap;

use etherparse::IpNumber;
use xdptun_common::bytes_of;
use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::ack::AckMarks;
use xdptun_common::tunnel::outcome::{Outcome, Sent};
use xdptun_common::tunnel::state::{Flow, State};

use super::arrive::{Flows, Met};
use super::guess::{self, Quote};
use super::{Attack, Fate};
use crate::case::Verdict;
use crate::diff;
use crate::fuzz::judge::segment::{control_bits, made};
use crate::fuzz::judge::{Judgement, rule};
use crate::fuzz::reading::read;
use crate::fuzz::rig::Rig;
use crate::fuzz::scene::Setup;
use crate::moment::Moment;
use crate::path::Path;

/// Runs an attack and holds it against every rule.
pub fn examine(rig: &mut Rig, attack: &Attack) -> Judgement<Vec<Fate>> {
    rig.forget_proofs(attack.setup);
    let mut flows = attack.table(rig);
    let quiet = attack.honest(rig, &mut flows)?;
    attack.caller_is_answered(rig)?;
    let mut flows = attack.table(rig);
    let fates: Result<_, _> = attack
        .burst
        .iter()
        .map(|frame| attack.forged(rig, &mut flows, frame))
        .collect();
    let fates = fates?;
    attack.caller_is_answered(rig)?;
    let after = attack.honest(rig, &mut flows)?;
    rule(
        "after an attack all is as it would be without",
        quiet == after,
        || diff::fields(&quiet, &after),
    )?;
    Ok(fates)
}

impl Attack {
    fn key(&self) -> FlowKey {
        self.path.key()
    }

    /// The flow table at first; the programs remember what they remembered then.
    fn table(&self, rig: &mut Rig) -> Flows {
        rig.remember(self.setup, &self.flow, &self.sent, self.path.remote.ip());
        BTreeMap::from([(self.key(), self.flow)])
    }

    /// One forged packet, unless it is a guess that counts.
    fn forged(&self, rig: &mut Rig, flows: &mut Flows, frame: &[u8]) -> Judgement<Fate> {
        let before = flows.clone();
        let flow = before[&self.key()];
        if guess::counts(frame, &self.key(), &flow, &self.sent, Moment::now()) {
            return Ok(Fate::Guessed);
        }
        let met = self.arrives(rig, flows, frame)?;
        self.changes_nothing(&before, flows)?;
        self.is_not_delivered(&met)?;
        self.is_hardly_answered(frame, &flow, &met)?;
        Ok(Fate::Futile(met.ended))
    }

    /// A forged packet changes nothing in the table except the flow's limits: when it may
    /// challenge again, and the time of an error that proved nothing.
    fn changes_nothing(&self, before: &Flows, after: &Flows) -> Judgement {
        let mut expected = before.clone();
        if let (Some(flow), Some(now)) = (expected.get_mut(&self.key()), after.get(&self.key())) {
            flow.answers_earned_at = now.answers_earned_at;
            flow.distrusted_at = now.distrusted_at;
        }
        let same = expected.keys().eq(after.keys())
            && expected
                .values()
                .zip(after.values())
                .all(|(a, b)| bytes_of(a) == bytes_of(b));
        rule("a forged packet changes no flow", same, || {
            diff::fields(&expected, after)
        })
    }

    /// Nothing of it gets to a socket, and nothing that the kernel would take for news of
    /// the flow or of the route to its peer.
    fn is_not_delivered(&self, met: &Met) -> Judgement {
        let told = || format!("{:?}", met.ended);
        let passes = met.ended.verdict == Verdict::Pass;
        rule(
            "a forged packet that is ours ends here",
            !passes || met.ended.outcome.is_none(),
            told,
        )?;
        rule(
            "the daemon hears nothing of forged packets",
            met.seen.reports.is_empty(),
            || format!("{:?}", met.seen.reports),
        )?;
        rule(
            "no forged packet reaches the flow or the route of its peer",
            !passes || !concerns(&met.seen.ran.packet, self.path),
            told,
        )
    }

    /// A segment of the flow is answered with the challenge that any such segment gets;
    /// what belongs to no flow only where callers need not prove anything.
    fn is_hardly_answered(&self, frame: &[u8], flow: &Flow, met: &Met) -> Judgement {
        let told = || format!("{:?}", met.ended);
        let is_of_flow = read(frame).and_then(|packet| packet.inbound()) == Some(self.key());
        let may = match met.ended.sent {
            None | Some(Sent::Limited) => true,
            Some(Sent::ChallengeAck) => is_of_flow,
            Some(Sent::SynAck | Sent::Rst) => !is_of_flow && self.setup != Setup::Hidden,
            Some(Sent::Syn | Sent::Ack | Sent::Probe | Sent::Fin) => false,
        };
        rule("an attacker is told nothing new", may, told)?;
        if met.ended.sent != Some(Sent::ChallengeAck) {
            return Ok(());
        }
        let (_, tcp) = made(&met.seen.ran.packet)?;
        let numbers = (tcp.sequence_number(), tcp.acknowledgment_number());
        rule(
            "a challenge has the flow's numbers",
            numbers == (flow.snd_nxt, flow.rcv_nxt),
            || format!("{numbers:x?}"),
        )
    }

    /// The peer calls from another port and address as often as it likes, with a proof
    /// that it has shown before.
    fn caller_is_answered(&self, rig: &mut Rig) -> Judgement {
        let Some(call) = self.call else {
            return Ok(());
        };
        let from = (self.path.family().peer(), 4444).into();
        let mut flows = Flows::new();
        let met = self.arrives(rig, &mut flows, &call.syn(from).bytes())?;
        let answer = if self.may_reply {
            Sent::SynAck
        } else {
            Sent::Limited
        };
        rule(
            "the first sender of a proof is answered",
            (met.ended.outcome, met.ended.sent) == (Some(Outcome::RxSyn), Some(answer))
                && flows.is_empty(),
            || format!("{:?}", met.ended),
        )
    }

    /// The honest packets: a datagram each way and the end of the flow.
    fn honest(&self, rig: &mut Rig, flows: &mut Flows) -> Judgement<[Told; 3]> {
        let came = self.arrives(rig, flows, &self.honest.inbound)?;
        let came = Told::datagram(came, Outcome::RxRestored, flows[&self.key()])?;
        let left = self.leaves(rig, flows, &self.honest.outbound)?;
        let left = Told::datagram(left, Outcome::TxDisguised, flows[&self.key()])?;
        let ended = self.arrives(rig, flows, &self.honest.end)?;
        let flow = flows[&self.key()];
        rule(
            "the peer's reset or FIN ends its flow",
            flow.state() == State::Closed,
            || format!("{:?}, {flow:?}", ended.ended),
        )?;
        Ok([came, left, Told::control(&ended, flow)])
    }
}

/// The result of an honest packet, without times.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    outcome: Option<Outcome>,
    sent: Option<Sent>,
    /// The datagram or segment that goes on; of a control segment, what a number says.
    bytes: Vec<u8>,
    flow: Vec<u8>,
}

impl Told {
    /// A datagram that went through.
    fn datagram(met: Met, outcome: Outcome, flow: Flow) -> Judgement<Self> {
        let went = met.ended.verdict == Verdict::Pass && met.ended.outcome == Some(outcome);
        rule("an honest datagram goes through", went, || {
            format!("{:?}", met.ended)
        })?;
        Ok(Self {
            bytes: met.seen.ran.packet.clone(),
            ..Self::control(&met, flow)
        })
    }

    fn control(met: &Met, flow: Flow) -> Self {
        let answer = read(&met.seen.ran.packet).filter(|_| met.ended.sent.is_some());
        let bytes = answer.and_then(|packet| packet.segment()).map(|tcp| {
            let numbers = [tcp.sequence_number(), tcp.acknowledgment_number()];
            let numbers = numbers.iter().flat_map(|number| number.to_be_bytes());
            numbers.chain([control_bits(&tcp)]).collect()
        });
        Self {
            outcome: met.ended.outcome,
            sent: met.ended.sent,
            bytes: bytes.unwrap_or_default(),
            flow: bytes_of(&without_times(flow)).to_vec(),
        }
    }
}

/// A flow without the values that depend on the clock, and without its limits.
fn without_times(flow: Flow) -> Flow {
    Flow {
        sent_at: 0,
        received_at: 0,
        unanswered_at: 0,
        data_at: 0,
        ack_marks: AckMarks {
            numbers: [0; 2],
            since: 0,
        },
        answers_earned_at: 0,
        distrusted_at: 0,
        ..flow
    }
}

/// Whether the kernel would take a packet for a datagram of the flow, for an error about
/// it, or for news of the route to its peer. An IPv6 redirect is another matter: it
/// counts from neighbours only.
fn concerns(frame: &[u8], path: Path) -> bool {
    let Some(packet) = read(frame).filter(|packet| packet.is_untagged()) else {
        return false;
    };
    if let Some(quote) = Quote::of(&packet) {
        let (is_error, changes_route) = match (packet.is_v4(), quote.kind) {
            (true, (3, 4) | (5, _)) | (false, (2, _)) => (true, true),
            (true, (3 | 4 | 11 | 12, _)) | (false, (..128, _)) => (true, false),
            _ => (false, false),
        };
        let is_ours = [IpNumber::TCP, IpNumber::UDP].contains(&quote.protocol());
        let key = path.key();
        let is_to_peer = key.remote_address().ends_with(quote.destination());
        let is_about_flow = is_ours && quote.key() == Some(key);
        return is_error && is_about_flow
            || changes_route && is_to_peer && quote.protocol() != IpNumber::TCP;
    }
    packet.is_owned_datagram() && packet.inbound() == Some(path.key())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::icmp::Message;
    use crate::packet::{Packet, flags, payload};
    use crate::path::{Family, OTHER};

    /// Types and codes of ICMP, and whether a socket hears of them and whether they change
    /// a route.
    fn kinds(family: Family) -> [((u8, u8), bool, bool); 4] {
        match family {
            Family::V4 => [
                ((3, 4), true, true),
                ((5, 0), true, true),
                ((3, 3), true, false),
                ((8, 0), false, false),
            ],
            Family::V6 => [
                ((2, 0), true, true),
                ((100, 0), true, false),
                ((1, 4), true, false),
                ((128, 0), false, false),
            ],
        }
    }

    #[test]
    fn an_error_concerns_the_flow_that_it_quotes_or_the_route_to_its_peer() {
        for family in Family::ALL {
            let path = Path::client(family);
            let message = |(kind, code), packet: &Packet| {
                let body = packet.quote(8);
                let message = Message {
                    kind,
                    code,
                    rest: 0,
                    body,
                };
                message.packet(family.stranger(), path.local.ip()).bytes()
            };
            let datagram = path.outbound().payload(payload(9));
            let segment = datagram.clone().segment(flags::DATA, 1, 2);
            let beside = Path::new(family, OTHER, OTHER)
                .outbound()
                .payload(payload(9));
            let ping = Packet::other(path.local.ip(), path.remote.ip(), IpNumber(47));
            let ping = ping.payload(payload(16));
            for (kind, is_error, changes_route) in kinds(family) {
                for (packet, expected) in [
                    (&datagram, is_error),
                    (&segment, is_error),
                    (&beside, changes_route),
                    (&ping, changes_route),
                ] {
                    let found = concerns(&message(kind, packet), path);
                    assert_eq!(found, expected, "{kind:?} about {packet:?}");
                }
            }
            assert!(concerns(&path.inbound().bytes(), path), "a datagram");
            assert!(!concerns(
                &path.inbound().segment(flags::DATA, 1, 2).bytes(),
                path
            ));
        }
    }
}

//! A port that answers only callers that know the secret.

use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::outcome::{Outcome, Sent};
use xdptun_common::tunnel::proof::{ProofKey, count_of};
use xdptun_common::tunnel::state::State;

use super::segment::{control_bits, whole};
use super::{Ended, Judgement, accounting, ingress, rule, some};
use crate::fuzz::reading::{LINK, Reading, read};
use crate::fuzz::rig::Seen;
use crate::fuzz::scene::{Scene, Setup};
use crate::moment::{Moment, OWN_KEY, PROOF_KEY, SECOND_KEY};
use crate::packet::flags;
use crate::path::{Family, HTTPS, OWNED};
use crate::program::Program;

/// The start of the 20 bytes of options of a SYN with a timestamp: size, SACK permitted, and
/// kind and length of the timestamp.
const IN_ORDER: [u8; 4] = [4, 2, 8, 10];

pub fn judge(
    scene: &Scene,
    seen: &Seen,
    outcome: Option<Outcome>,
    sent: Option<Sent>,
) -> Judgement {
    if scene.setup != Setup::Hidden {
        return Ok(());
    }
    match scene.program {
        Program::Egress if sent == Some(Sent::Syn) => our_syn_proves(seen),
        Program::Ingress | Program::Xdp | Program::XdpFrags => {
            strangers_hear_nothing(scene, seen, outcome, sent)
        }
        Program::Egress | Program::Splitter => Ok(()),
    }
}

/// The SYN that leaves is a proof to the peer.
fn our_syn_proves(seen: &Seen) -> Judgement {
    let (packet, tcp) = whole(&seen.ran.packet)?;
    let key = some("a SYN has a flow", packet.outbound())?;
    let proof = some(
        "a SYN of ours has a timestamp",
        timestamp(packet.transport()),
    )?;
    let first = &keys_of(&key)[..1];
    rule(
        "a SYN of ours proves the first secret of its peer",
        is_proof(first, tcp.sequence_number(), proof, seen.at),
        || format!("{proof:#x} for {:#x}", tcp.sequence_number()),
    )
}

/// Without a flow nothing is said but the SYN-ACK to a proof.
fn strangers_hear_nothing(
    scene: &Scene,
    seen: &Seen,
    outcome: Option<Outcome>,
    sent: Option<Sent>,
) -> Judgement {
    let packet = read(&scene.frame);
    let key = packet.and_then(|packet| packet.inbound());
    let flow = key.and_then(|key| scene.flows.get(&key));
    let has_flow = flow.is_some_and(|flow| flow.state() != State::Closed);
    let told = || format!("{outcome:?}, sent {sent:?}");
    rule(
        "a caller without a flow hears nothing but a SYN-ACK",
        has_flow || matches!(sent, None | Some(Sent::SynAck | Sent::Limited)),
        told,
    )?;
    let proves = packet.is_some_and(|packet| proves(&packet, seen.at));
    rule(
        "only a proof is answered with a SYN-ACK",
        sent != Some(Sent::SynAck) || proves,
        told,
    )?;
    let Some(segment) = packet.and_then(|packet| Call::read(scene, packet)) else {
        return Ok(());
    };
    let is_known = proves || segment.names_cookie(seen.at);
    rule(
        "a segment without flow or proof is dropped without an answer",
        is_known || (outcome, sent) == (Some(Outcome::RxDropUnproven), None),
        told,
    )
}

/// A proof that has not been used before opens the port.
pub fn callers_are_answered(scene: &Scene, seen: &Seen, ended: &Ended) -> Judgement {
    let is_call = scene.setup == Setup::Hidden
        && read(&scene.frame)
            .and_then(|packet| Call::read(scene, packet))
            .is_some_and(|call| {
                proves(&call.packet, seen.at) && proves(&call.packet, Moment::now())
            });
    let answer = if scene.may_reply {
        Sent::SynAck
    } else {
        Sent::Limited
    };
    rule(
        "a proof is answered",
        !is_call || (ended.outcome, ended.sent) == (Some(Outcome::RxSyn), Some(answer)),
        || format!("{ended:?}"),
    )
}

/// An intact segment in no unusual shape to an owned port, of a flow in no table.
struct Call<'a> {
    packet: Reading<'a>,
    key: FlowKey,
}

impl<'a> Call<'a> {
    fn read(scene: &Scene, packet: Reading<'a>) -> Option<Self> {
        let key = packet.inbound()?;
        let family = if packet.is_v4() {
            Family::V4
        } else {
            Family::V6
        };
        let is_plain = scene.program == Program::Ingress
            && scene.skb.gso_size == 0
            && packet.l3 == LINK
            && packet.l4 == LINK + family.header_len()
            && !accounting::is_for_another_host(scene);
        let is_sound = packet.segment().is_some()
            && packet.header_sum_is_right()
            && packet.transport_sum_is_right()
            && packet.packet[packet.l3 + if packet.is_v4() { 8 } else { 7 }] != 0;
        let is_ours = [OWNED, HTTPS].contains(&key.local_port())
            && packet.addresses.1 == family.host()
            && [family.peer(), family.stranger(), family.with_own_key()]
                .contains(&packet.addresses.0);
        let is_new = !scene.flows.contains_key(&key);
        (is_plain && is_sound && is_ours && is_new).then_some(Self { packet, key })
    }

    /// Whether it may be the last segment of a handshake.
    fn names_cookie(&self, at: Moment) -> bool {
        let tcp = self.packet.segment();
        tcp.is_some_and(|tcp| {
            control_bits(&tcp) & flags::ACK != 0
                && ingress::is_cookie(tcp.acknowledgment_number().wrapping_sub(1), &self.key, at)
        })
    }
}

/// Whether a packet is a SYN that proves the secret which holds for its sender, before
/// or after the program ran.
fn proves(packet: &Reading<'_>, at: Moment) -> bool {
    let (Some(tcp), Some(key)) = (packet.segment(), packet.inbound()) else {
        return false;
    };
    let bits = control_bits(&tcp) & (flags::SYN | flags::ACK | flags::FIN | flags::RST);
    let keys = keys_of(&key);
    let is_proof = |proof, at| is_proof(keys, tcp.sequence_number(), proof, at);
    bits == flags::SYN
        && timestamp(packet.transport())
            .is_some_and(|proof| is_proof(proof, at) || is_proof(proof, Moment::now()))
}

/// The timestamp in a TCP header with Linux's options of a SYN.
fn timestamp(tcp: &[u8]) -> Option<u32> {
    let options = tcp.get(20..usize::from(tcp[12] >> 4) * 4)?;
    let value = options.get(4..20)?.strip_prefix(&IN_ORDER)?;
    Some(u32::from_be_bytes(*value.first_chunk()?))
}

/// The secrets that hold for the peer of a flow.
fn keys_of(key: &FlowKey) -> &'static [ProofKey] {
    if Family::ALL
        .map(Family::with_own_key)
        .contains(&key.remote().ip())
    {
        &[OWN_KEY]
    } else {
        &[PROOF_KEY, SECOND_KEY]
    }
}

/// Whether a proof is one of this epoch or its neighbours.
fn is_proof(keys: &[ProofKey], isn: u32, proof: u32, at: Moment) -> bool {
    let count = count_of(proof, isn);
    let epochs = [-1, 0, 1];
    let mut all = keys
        .iter()
        .flat_map(|key| epochs.map(|epoch| (*key, epoch)));
    all.any(|(key, epoch)| at.proof_in(key, isn, count, epoch) == proof)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::judge::example::{broken, scene, seen};
    use crate::packet::Packet;
    use crate::path::{Path, timestamped_syn_options};

    /// The peer's SYN with a proof, of which some bits are changed.
    fn syn(wrong: u32) -> Packet {
        let proof = Moment::now().proof(77, 1, 0) ^ wrong;
        let syn = Path::server(Family::V6)
            .inbound()
            .segment(flags::SYN, 77, 0);
        syn.options(&timestamped_syn_options(Family::V6, proof))
    }

    #[test]
    fn only_a_proof_may_be_answered_and_has_to_be() {
        let (answered, dropped) = (
            (Some(Outcome::RxSyn), Some(Sent::SynAck)),
            (Some(Outcome::RxDropUnproven), None),
        );
        let ack = Path::server(Family::V6).inbound().segment(flags::ACK, 1, 2);
        for (packet, wrong, right) in [
            (
                syn(0),
                (Some(Outcome::RxDropNoFlow), Some(Sent::Rst)),
                answered,
            ),
            (syn(0), dropped, answered),
            (syn(1 << 31), answered, dropped),
            (syn(1 << 31), (Some(Outcome::RxDropNoFlow), None), dropped),
            (ack, (Some(Outcome::RxDropNoFlow), Some(Sent::Rst)), dropped),
        ] {
            let mut scene = scene(Program::Ingress, packet.clone(), []);
            scene.setup = Setup::Hidden;
            let seen = seen(&scene, packet);
            let judge = |(outcome, sent)| {
                let ended = Ended {
                    verdict: crate::case::Verdict::Drop,
                    outcome,
                    sent,
                    returned: false,
                };
                let first = judge(&scene, &seen, outcome, sent);
                broken(first.and_then(|()| callers_are_answered(&scene, &seen, &ended)))
            };
            assert_eq!(judge(right), None, "{scene}");
            assert_ne!(judge(wrong), None, "{scene}");
        }
    }

    #[test]
    fn our_syn_is_a_proof_or_broken() {
        let path = Path::client(Family::V4);
        let at = Moment::now();
        for (proof, is_right) in [(at.proof(5, 1, 0), true), (at.proof(6, 1, 0), false)] {
            let syn = path.outbound().segment(flags::SYN, 5, 0).window(64_240);
            let syn = syn.options(&timestamped_syn_options(Family::V4, proof));
            let mut scene = scene(Program::Egress, path.outbound(), []);
            scene.setup = Setup::Hidden;
            let judged = judge(&scene, &seen(&scene, syn), None, Some(Sent::Syn));
            assert_eq!(broken(judged).is_none(), is_right);
        }
    }
}

//! A packet that was turned into a reply and sent back.

use etherparse::IpNumber;
use xdptun_common::tunnel::outcome::Sent;
use xdptun_common::tunnel::state::{ANSWER_AGAIN, ANSWERS, KEPT_ANSWERS};

use super::segment::{control_bits, made};
use super::{Judgement, rule, some};
use crate::fuzz::reading::read;
use crate::fuzz::rig::Seen;
use crate::fuzz::scene::Scene;
use crate::packet::flags;

pub fn judge(scene: &Scene, seen: &Seen, sent: Sent) -> Judgement {
    rule(
        "a withheld reply stays here",
        may_go(scene, seen, sent),
        || format!("{sent:?}"),
    )?;
    let cause = some("only packets are answered", read(&scene.frame))?;
    let asked = some("only segments are answered", cause.segment())?;
    let (answer, tcp) = made(&seen.ran.packet)?;
    let back = cause.sockets().map(|(from, to)| (to, from));
    rule(
        "an answer goes to the sender",
        answer.sockets() == back && answer.is_whole(IpNumber::TCP),
        || format!("{:?}", answer.sockets()),
    )?;
    let (there, here) = (&seen.ran.packet[..12], &scene.frame[..12]);
    rule(
        "an answer's link header is turned round",
        there[..6] == here[6..] && there[6..] == here[..6],
        || format!("{there:x?}"),
    )?;
    // A SYN-ACK always has the maximum segment size, as Linux's has.
    let added = if sent == Sent::SynAck { 4 } else { 0 };
    rule(
        "an answer is longer than its cause by one option at most",
        answer.ip_len() <= cause.ip_len() + added
            && seen.ran.packet.len() <= scene.frame.len() + added,
        || format!("{} bytes for {}", answer.ip_len(), cause.ip_len()),
    )?;
    let bits = control_bits(&tcp);
    let expected = match sent {
        Sent::SynAck => flags::SYN | flags::ACK,
        Sent::Ack | Sent::ChallengeAck => flags::ACK,
        Sent::Fin => flags::FIN | flags::ACK,
        Sent::Rst => flags::RST | bits & flags::ACK,
        Sent::Syn | Sent::Probe | Sent::Limited => {
            return rule("only replies answer", false, || format!("{sent:?}"));
        }
    };
    rule("an answer is what was counted", bits == expected, || {
        format!("{sent:?}, flags {bits:#x}")
    })?;
    let (syn, rst) = (flags::SYN, flags::RST);
    let asked = control_bits(&asked);
    rule(
        "only a SYN is answered with a SYN, and no reset with a reset",
        (bits & syn == 0 || asked & syn != 0) && bits & asked & rst == 0,
        || format!("flags {asked:#x}, answered with {bits:#x}"),
    )
}

/// Whether a reply may be sent: strangers share what the scene grants, a flow has answers of
/// its own, and one for each change of its state.
fn may_go(scene: &Scene, seen: &Seen, sent: Sent) -> bool {
    if matches!(sent, Sent::SynAck | Sent::Rst) {
        return scene.may_reply;
    }
    let key = read(&scene.frame).and_then(|cause| cause.inbound());
    let Some((before, after)) =
        key.and_then(|key| Some((scene.flows.get(&key)?, seen.flows[&key])))
    else {
        return false;
    };
    let owed = before.answers_earned_at.wrapping_sub(seen.at.tick());
    let all = ANSWERS * ANSWER_AGAIN;
    let kept = match sent {
        Sent::ChallengeAck => KEPT_ANSWERS,
        _ => 0,
    };
    let has_none = owed <= all && owed > all - (1 + kept) * ANSWER_AGAIN;
    after.state != before.state || !has_none
}

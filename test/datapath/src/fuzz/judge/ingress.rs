//! Packets that arrive, by tc and by XDP.

use xdptun_common::bytes_of;
use xdptun_common::flow::key::FlowKey;
use xdptun_common::report::outcome::Fate;
use xdptun_common::tunnel::isn::{LIFETIME, same_cookie};
use xdptun_common::tunnel::outcome::{Outcome, Sent};
use xdptun_common::tunnel::state::{Flow, State};

use super::{Judgement, accounting, answer, fragment, icmp, restored, rule, some};
use crate::case::Verdict;
use crate::fuzz::reading::read;
use crate::fuzz::rig::Seen;
use crate::fuzz::scene::{Scene, Setup};
use crate::moment::Moment;
use crate::packet::flags;
use crate::path::Family;
use crate::program::Program;

use super::segment::control_bits;

/// How far a segment may be from what a flow expects.
const WINDOW: u32 = 1 << 26;

pub fn judge(
    scene: &Scene,
    seen: &Seen,
    verdict: Verdict,
    outcome: Option<Outcome>,
    sent: Option<Sent>,
) -> Judgement {
    plain_udp_is_refused(scene, outcome)?;
    for key in seen.changed(scene) {
        if outcome == Some(Outcome::RxDropIcmp) {
            an_error_is_only_distrusted(scene, seen, &key)?;
        } else {
            flow_moved_for_a_reason(scene, seen, &key)?;
        }
    }
    what_tcp_refuses_has_no_effect(scene, seen, outcome, sent)?;
    match (outcome, sent) {
        (Some(Outcome::RxRestored), _) => restored::judge(scene, seen),
        (Some(Outcome::RxFragment), _) => fragment::arrived(scene, seen),
        (Some(Outcome::RxToHost), _) => {
            accounting::same_packet("what is the host's stays whole", scene, seen)
        }
        (Some(outcome), _) if outcome.fate() == Fate::Pass => icmp::is_translated(scene, seen),
        (Some(_), Some(sent)) if verdict == Verdict::Redirect => answer::judge(scene, seen, sent),
        _ => Ok(()),
    }
}

/// UDP of an owned port did not come through a tunnel, unless XDP has restored
/// it; and then it is one datagram.
fn plain_udp_is_refused(scene: &Scene, outcome: Option<Outcome>) -> Judgement {
    let Some(packet) = read(&scene.frame) else {
        return Ok(());
    };
    let is_plain = packet.is_owned_datagram()
        && scene.setup.is_peer(packet.addresses.0)
        && !accounting::is_for_another_host(scene);
    // XDP leaves tagged frames to tc.
    let is_met = packet.is_untagged() || scene.program == Program::Ingress;
    if !is_plain || !is_met {
        return Ok(());
    }
    let behind_xdp = scene.program == Program::Ingress && scene.setup == Setup::Guarded;
    let was_restored = behind_xdp && packet.is_untagged();
    let expected = match (was_restored, scene.skb.gso_size) {
        (false, _) => Some(Outcome::RxDropPlainUdp),
        (true, 0) => None,
        (true, _) => Some(Outcome::RxDropMerged),
    };
    rule(
        "undisguised UDP of an owned port is refused",
        outcome == expected,
        || format!("{outcome:?}, not {expected:?}"),
    )
}

/// An ICMP error that proves nothing leaves the time at which it came.
fn an_error_is_only_distrusted(scene: &Scene, seen: &Seen, key: &FlowKey) -> Judgement {
    let after = &seen.flows[key];
    let before = some("no entry without a flow", scene.flows.get(key))?;
    let expected = Flow {
        distrusted_at: after.distrusted_at,
        ..*before
    };
    rule(
        "an error that proves nothing is only distrusted",
        bytes_of(&expected) == bytes_of(after),
        || crate::diff::fields(&expected, after),
    )
}

/// The programs do not answer a segment that the kernel's TCP would not take, and it changes
/// no flow. They leave it to the kernel's UDP to verify what they restore.
fn what_tcp_refuses_has_no_effect(
    scene: &Scene,
    seen: &Seen,
    outcome: Option<Outcome>,
    sent: Option<Sent>,
) -> Judgement {
    let Some(packet) = read(&scene.frame).filter(|packet| packet.segment().is_some()) else {
        return Ok(());
    };
    let is_new = (packet.inbound()).is_some_and(|key| !scene.flows.contains_key(&key));
    let (source, destination) = packet.addresses;
    let is_host = |address| Family::ALL.map(Family::host).contains(&address);
    let has_own_addresses = is_host(destination) && !is_host(source) && !source.is_multicast();
    let is_intact = packet.header_sum_is_right() && packet.transport_sum_is_right();
    let is_restored = matches!(outcome, Some(Outcome::RxRestored | Outcome::RxFragment));
    if is_intact && (!is_new || has_own_addresses) || is_restored {
        return Ok(());
    }
    let changed = seen.changed(scene);
    rule(
        "what a TCP refuses has no effect",
        sent.is_none() && changed.is_empty(),
        || format!("{outcome:?}, sent {sent:?}, flows {changed:?}"),
    )
}

/// A flow changes only by a segment that may change it.
fn flow_moved_for_a_reason(scene: &Scene, seen: &Seen, key: &FlowKey) -> Judgement {
    let packet = read(&scene.frame).filter(|packet| packet.inbound() == Some(*key));
    let packet = some("a flow is moved by its own packets", packet)?;
    let tcp = some("a flow is moved by whole segments", packet.segment())?;
    let segment = Segment {
        flags: control_bits(&tcp),
        sequence: tcp.sequence_number(),
        acknowledgment: tcp.acknowledgment_number(),
        end: tcp
            .sequence_number()
            .wrapping_add(tcp.payload().len() as u32),
        window: tcp.window_size(),
    };
    let after = &seen.flows[key];
    let before = scene.flows.get(key);
    let told = || format!("{segment:x?}\nbefore {before:?}\nafter {after:?}");
    rule(
        "a flow is in a state that there is",
        after.state <= State::FinSent as u32,
        told,
    )?;
    let is_open = |flow: &&Flow| matches!(flow.state(), State::Established | State::FinSent);
    match before.filter(is_open) {
        Some(before) => rule(
            "an open flow is not disturbed",
            segment.may_move(before, after, seen.at),
            told,
        ),
        None if after.state() == State::Established => rule(
            "a flow is opened by proof only",
            segment.proves(before, key, seen.at),
            told,
        ),
        None => rule("no entry without a flow", before.is_some(), told),
    }
}

/// The fields of a segment that matter to a flow.
#[derive(Debug)]
struct Segment {
    flags: u8,
    sequence: u32,
    acknowledgment: u32,
    end: u32,
    window: u16,
}

impl Segment {
    const fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// Whether an open flow may become what it became: ended by the exact reset
    /// or FIN, or moved forward by data in the window and by acknowledgements of
    /// what was sent.
    fn may_move(&self, before: &Flow, after: &Flow, at: Moment) -> bool {
        if after.state != before.state {
            let reset = self.has(flags::RST) && self.sequence == before.rcv_nxt;
            // The second one repeats a FIN that was counted.
            let ends = [self.end, self.end.wrapping_add(1)];
            let fin = self.has(flags::FIN | flags::ACK) && ends.contains(&before.rcv_nxt);
            return after.state() == State::Closed && (reset || fin);
        }
        let kept = (after.iss, after.snd_nxt) == (before.iss, before.snd_nxt)
            && (after.tx_packets, after.tx_bytes) == (before.tx_packets, before.tx_bytes);
        let numbers = |flow: &Flow| (flow.rcv_nxt, flow.snd_una);
        let is_latest = distance(self.acknowledgment, before.snd_una) > 0;
        let next = (
            self.next_expected(before),
            if is_latest {
                self.acknowledgment
            } else {
                before.snd_una
            },
        );
        let moved = numbers(after) == next && self.is_plausible(before, at);
        kept && (moved || numbers(after) == numbers(before))
    }

    /// Whether it acknowledges what was acknowledged of late or later, and lies within the
    /// window, unless the peer was silent.
    fn is_plausible(&self, before: &Flow, at: Moment) -> bool {
        is_recent(self.acknowledgment, before, at)
            && (is_silent(before, at)
                || distance(self.sequence, before.rcv_nxt).unsigned_abs() <= WINDOW)
    }

    /// The number that is expected after it: data moves it ahead by a megabyte at most, or
    /// after silence anywhere; a probe or challenge of the peer moves it back, and after this
    /// host's FIN to whatever it names.
    fn next_expected(&self, flow: &Flow) -> u32 {
        const STEP: i32 = 1 << 20;
        let before = flow.rcv_nxt;
        const ASKS: u16 = 0x0800;
        const CHALLENGES: u16 = 0x0400;
        if self.end == self.sequence && !self.has(flags::PSH) {
            let asks = u32::from(self.window & ASKS != 0);
            let named = self.sequence.wrapping_add(asks);
            let is_exact = self.window & (ASKS | CHALLENGES) != 0;
            let has_finished = flow.state() == State::FinSent;
            let moves = is_exact && (has_finished || distance(named, before) < 0);
            return if moves { named } else { before };
        }
        if distance(self.sequence, before).unsigned_abs() > WINDOW {
            return self.end;
        }
        let ahead = distance(self.end, before).clamp(0, STEP);
        before.wrapping_add(ahead.unsigned_abs())
    }

    /// Whether it names a number that only a receiver of this host's SYN or SYN-ACK
    /// knows: the flow's own, or a cookie that is not too old.
    fn proves(&self, before: Option<&Flow>, key: &FlowKey, at: Moment) -> bool {
        let named = self.acknowledgment.wrapping_sub(1);
        self.has(flags::ACK)
            && (is_cookie(named, key, at) || before.is_some_and(|flow| flow.iss == named))
    }
}

/// How far a number lies ahead of another.
pub const fn distance(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b).cast_signed()
}

/// Whether a number was acknowledged about half a second ago at the earliest, or may be.
pub fn is_recent(number: u32, flow: &Flow, at: Moment) -> bool {
    /// Half a second in ticks.
    const PERIOD: u32 = 512;
    let marks = &flow.ack_marks;
    let oldest = match passed(at, marks.since) / PERIOD {
        0 => marks.numbers[0],
        1 => marks.numbers[1],
        _ => flow.snd_una,
    };
    number.wrapping_sub(oldest) <= flow.snd_nxt.wrapping_sub(oldest)
}

/// Whether nothing came from the peer for 537 ms.
pub const fn is_silent(flow: &Flow, at: Moment) -> bool {
    passed(at, (flow.received_at >> 20) as u32) > 512
}

/// Ticks of 2^20 ns since then.
pub const fn passed(at: Moment, then: u32) -> u32 {
    at.tick().wrapping_sub(then)
}

/// Whether a SYN-ACK to the flow carried this number not too long ago.
pub fn is_cookie(number: u32, key: &FlowKey, at: Moment) -> bool {
    // The epoch may have changed since the clock was read.
    let mut given = (0..=LIFETIME)
        .map(|epochs| at.earlier_isn(key, epochs))
        .chain([Moment::now().isn(key)]);
    given.any(|isn| same_cookie(isn, number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::judge::example::{broken, scene, seen};
    use crate::path::Path;

    #[test]
    fn plain_udp_passes_behind_xdp_only_and_alone() {
        let refused = Some(Outcome::RxDropPlainUdp);
        let datagram = Path::server(Family::V4).inbound();
        let tagged = datagram.clone().vlan(7);
        for (setup, packet, gso_size, expected) in [
            (Setup::Open, &datagram, 0, refused),
            (Setup::Open, &datagram, 1000, refused),
            (Setup::Open, &tagged, 0, refused),
            (Setup::Guarded, &datagram, 0, None),
            (Setup::Guarded, &datagram, 1000, Some(Outcome::RxDropMerged)),
            (Setup::Guarded, &tagged, 0, refused),
        ] {
            let mut scene = scene(Program::Ingress, packet, []);
            (scene.setup, scene.skb.gso_size) = (setup, gso_size);
            for outcome in [None, refused, Some(Outcome::RxDropMerged)] {
                let is_right = plain_udp_is_refused(&scene, outcome).is_ok();
                assert_eq!(is_right, outcome == expected, "{scene}: {outcome:?}");
            }
        }
    }

    #[test]
    fn only_an_intact_segment_is_answered() {
        let path = Path::server(Family::V4);
        let mut to_many = path;
        to_many.local.set_ip(std::net::Ipv4Addr::BROADCAST.into());
        to_many.remote.set_ip([224, 0, 0, 1].into());
        let refused = Some("what a TCP refuses has no effect");
        for (path, at, expected) in [
            (path, None, None),
            // The time to live, the window and the TCP checksum.
            (path, Some(22), refused),
            (path, Some(48), refused),
            (path, Some(50), refused),
            (to_many, None, refused),
        ] {
            let segment = path.inbound().segment(flags::SYN, 5, 0);
            let mut scene = scene(Program::Ingress, &segment, []);
            if let Some(at) = at {
                scene.frame[at] ^= 1;
            }
            let seen = seen(&scene, &segment);
            let answered = (Some(Outcome::RxSyn), Some(Sent::Limited));
            let (outcome, sent) = answered;
            let result = judge(&scene, &seen, Verdict::Drop, outcome, sent);
            assert_eq!(broken(result), expected, "{path:?}, byte {at:?}");
            assert_eq!(
                broken(judge(&scene, &seen, Verdict::Drop, outcome, None)),
                None
            );
        }
    }

    /// What is wrong with a flow that became another by one segment.
    fn moved(flags: u8, ahead: u32, change: impl FnOnce(&mut Flow)) -> Option<&'static str> {
        let path = Path::client(Family::V4);
        let before = path.established(Moment::now());
        let sequence = before.rcv_nxt.wrapping_add(ahead);
        let segment = path.inbound().segment(flags, sequence, before.snd_nxt);
        let scene = scene(Program::Ingress, &segment, [(path.key(), before)]);
        let mut seen = seen(&scene, &segment);
        change(seen.flows.get_mut(&path.key()).expect("in the table"));
        let outcome = Some(Outcome::RxAck);
        broken(judge(&scene, &seen, Verdict::Drop, outcome, None))
    }

    fn closed(flow: &mut Flow) {
        flow.state = State::Closed as u32;
    }

    #[test]
    fn only_the_exact_reset_or_fin_ends_a_flow() {
        let disturbed = Some("an open flow is not disturbed");
        let fin = flags::FIN | flags::ACK;
        for (flags, ahead, expected) in [
            (flags::RST, 0, None),
            (flags::RST, 1, disturbed),
            (fin, 0, None),
            (fin, 1, disturbed),
            (flags::FIN, 0, disturbed),
            (flags::SYN, 0, disturbed),
            (flags::DATA, 0, disturbed),
        ] {
            assert_eq!(
                moved(flags, ahead, closed),
                expected,
                "{flags:#x} + {ahead}"
            );
        }
    }

    #[test]
    fn an_open_flow_moves_forward_to_the_end_of_a_segment() {
        let back = |flow: &mut Flow| flow.rcv_nxt = flow.rcv_nxt.wrapping_sub(1);
        assert!(moved(flags::DATA, 0, back).is_some());
        let on = |flow: &mut Flow| flow.rcv_nxt = flow.rcv_nxt.wrapping_add(7);
        assert_eq!(moved(flags::DATA, 7, on), None);
        assert!(moved(flags::DATA, 8, on).is_some());
        let news = |flow: &mut Flow| {
            flow.snd_una = flow.snd_una.wrapping_sub(1);
        };
        assert!(moved(flags::DATA, 0, news).is_some());
        let sends = |flow: &mut Flow| flow.snd_nxt = flow.snd_nxt.wrapping_add(1);
        assert!(moved(flags::DATA, 0, sends).is_some());
    }

    /// A flow appears in the table after a segment that acknowledges `isn` + 1.
    fn appeared(isn: u32) -> Option<&'static str> {
        let path = Path::server(Family::V6);
        let flow = path.established(Moment::now());
        let acknowledgment = isn.wrapping_add(1);
        let segment = path.inbound().segment(flags::ACK, 5, acknowledgment);
        let scene = scene(Program::Ingress, &segment, []);
        let mut seen = seen(&scene, &segment);
        seen.flows.insert(path.key(), flow);
        let outcome = Some(Outcome::RxAck);
        broken(judge(&scene, &seen, Verdict::Drop, outcome, None))
    }

    #[test]
    fn a_flow_is_opened_by_a_number_of_ours() {
        let key = Path::server(Family::V6).key();
        let at = Moment::now();
        assert_eq!(appeared(at.isn(&key)), None);
        assert_eq!(appeared(at.earlier_isn(&key, LIFETIME - 1)), None);
        let unproven = Some("a flow is opened by proof only");
        assert_eq!(appeared(at.isn(&key) ^ 1), unproven);
        assert_eq!(appeared(at.earlier_isn(&key, LIFETIME + 1)), unproven);
    }
}

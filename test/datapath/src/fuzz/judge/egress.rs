//! Packets that leave the host.

use xdptun_common::report::outcome::Fate;
use xdptun_common::tunnel::event::Kind;
use xdptun_common::tunnel::outcome::Outcome;

use super::{Judgement, accounting, disguised, fragment, icmp, rule, segment, some};
use crate::case::Verdict;
use crate::fuzz::reading::read;
use crate::fuzz::rig::Seen;
use crate::fuzz::scene::Scene;

pub fn judge(scene: &Scene, seen: &Seen, verdict: Verdict, outcome: Option<Outcome>) -> Judgement {
    if verdict == Verdict::Pass {
        nothing_leaks(scene, seen)?;
    }
    let Some(outcome) = outcome else {
        return Ok(());
    };
    if outcome.fate() == Fate::Return {
        return icmp::tells_sender(scene, seen);
    }
    match outcome {
        Outcome::TxDisguised => {
            let mark = accounting::mark_after(scene);
            rule(
                "only a request to send again is taken off",
                seen.ran.mark == mark,
                || format!("mark {:#x}", seen.ran.mark),
            )?;
            disguised::judge(scene, seen)
        }
        Outcome::TxFragment => fragment::left(scene, seen),
        Outcome::TxOpened => {
            queued(scene, seen)?;
            control(scene, seen)
        }
        Outcome::TxQueued => queued(scene, seen),
        Outcome::TxOpenedLost | Outcome::TxAskedLost => control(scene, seen),
        Outcome::TxRequested => {
            rule("a request is taken off", seen.ran.mark == 0, || {
                format!("mark {:#x}", seen.ran.mark)
            })?;
            control(scene, seen)
        }
        _ => Ok(()),
    }
}

/// The promise of the whole tool: no datagram of an owned port leaves as one.
fn nothing_leaks(scene: &Scene, seen: &Seen) -> Judgement {
    let Some(packet) = read(&seen.ran.packet) else {
        return Ok(());
    };
    let (_, remote) = packet.addresses;
    let key = packet.outbound();
    let is_ours =
        scene.setup.is_peer(remote) || key.is_some_and(|key| scene.flows.contains_key(&key));
    rule(
        "no datagram of an owned port leaves undisguised",
        !(packet.is_owned_datagram() && is_ours),
        || format!("{:?} as {:?}", packet.sockets(), packet.part),
    )
}

/// A datagram that waits: the daemon has all of it.
fn queued(scene: &Scene, seen: &Seen) -> Judgement {
    let datagram = some("only a readable datagram waits", read(&scene.frame))?;
    let [record] = &seen.reports[..] else {
        return rule("one record goes with a queued datagram", false, || {
            format!("{:?}", seen.reports)
        });
    };
    rule(
        "the record of a queued datagram names its flow",
        record.kind == Kind::Queued as u32 && Some(record.flow) == datagram.outbound(),
        || format!("kind {}, {:?}", record.kind, record.flow),
    )?;
    // Padding may come along or not.
    let is_whole = record.frame.starts_with(datagram.packet);
    let is_it = scene.frame.starts_with(&record.frame);
    rule(
        "a queued datagram is the one that was sent",
        is_whole && is_it,
        || crate::diff::hexdump(datagram.packet, &record.frame),
    )
}

/// The packet became a control segment of its own flow.
fn control(scene: &Scene, seen: &Seen) -> Judgement {
    let (packet, _) = segment::made(&seen.ran.packet)?;
    let key = some("a control segment has a flow", packet.outbound())?;
    rule(
        "a control segment belongs to a flow in the table",
        seen.flows.contains_key(&key),
        || format!("{key:?}"),
    )?;
    // A marked packet need not be one that another host would accept.
    let cause = read(&scene.frame).filter(|cause| cause.sockets().is_some());
    let causes = cause.map_or([Some(key); 2], |cause| [cause.outbound(), cause.inbound()]);
    rule(
        "a control segment stays in its flow",
        causes.contains(&Some(key)),
        || format!("{key:?}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::judge::example::{broken, scene, seen};
    use crate::packet::payload;
    use crate::path::{Family, OTHER, Path};
    use crate::program::Program;

    #[test]
    fn a_datagram_that_leaves_is_a_leak_unless_it_is_foreign() {
        for family in Family::ALL {
            let passes = |frame: Vec<u8>| {
                let scene = scene(Program::Egress, frame.clone(), []);
                broken(judge(&scene, &seen(&scene, frame), Verdict::Pass, None))
            };
            let ours = Path::client(family);
            let datagram = ours.outbound().payload(payload(16));
            let leak = Some("no datagram of an owned port leaves undisguised");
            for packet in [
                datagram.clone(),
                datagram.clone().without_checksum().ip_options(1),
                datagram.clone().fragment(0, true),
                datagram.clone().vlan(7),
            ] {
                assert_eq!(passes(packet.bytes()), leak, "{packet:?}");
            }
            let later = datagram.fragment(1, true);
            assert_eq!(passes(later.bytes()), None);
            let foreign = Path::new(family, OTHER, OTHER);
            assert_eq!(passes(foreign.outbound().bytes()), None);
        }
    }
}

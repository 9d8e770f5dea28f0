//! Rules that hold for every packet.
//!
//! Rules, not expected results: a packet with options, say, may be carried or
//! dropped, but never corrupted, leaked or counted twice.

mod accounting;
mod answer;
mod disguised;
mod egress;
#[cfg(test)]
mod example;
pub(super) mod fragment;
mod hidden;
mod icmp;
pub(super) mod ingress;
mod restored;
mod round_trip;
pub(super) mod segment;
mod splitter;

use xdptun_common::tunnel::outcome::{Outcome, Sent};

use super::rig::{Rig, Seen};
use super::scene::Scene;
use crate::case::Verdict;
use crate::program::Program;

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule: what should have been.
    pub rule: &'static str,
    /// What happened instead.
    pub detail: String,
}

pub(super) type Judgement<T = ()> = Result<T, Violation>;

/// An error unless `condition` holds.
pub(super) fn rule(
    rule: &'static str,
    condition: bool,
    detail: impl FnOnce() -> String,
) -> Judgement {
    if condition {
        return Ok(());
    }
    let detail = detail();
    Err(Violation { rule, detail })
}

/// The value, or the broken rule that requires it.
pub(super) fn some<T>(rule: &'static str, value: Option<T>) -> Judgement<T> {
    value.ok_or_else(|| Violation {
        rule,
        detail: "there is none".to_owned(),
    })
}

/// The result of a packet that broke no rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Where it went.
    pub verdict: Verdict,
    /// How it ended; `None` if xdptun does not handle it.
    pub outcome: Option<Outcome>,
    /// The control segment that it caused.
    pub sent: Option<Sent>,
    /// Whether it was disguised, restored by the peer, and then as it was.
    pub returned: bool,
}

/// Runs the program of a scene and holds what comes of it against every rule.
///
/// # Errors
///
/// The first rule that is broken.
pub fn examine(rig: &mut Rig, scene: &Scene) -> Judgement<Ended> {
    rig.forget_proofs(scene.setup);
    let (seen, mut ended) = observe(rig, scene)?;
    hidden::callers_are_answered(scene, &seen, &ended)?;
    ended.returned = ended.outcome == Some(Outcome::TxDisguised);
    if ended.returned {
        round_trip::check(rig, scene, &seen)?;
    }
    Ok(ended)
}

/// Runs the program of a scene and holds what comes of it against the rules that need
/// nothing but that.
///
/// # Errors
///
/// The first rule that is broken.
pub(super) fn observe(rig: &mut Rig, scene: &Scene) -> Judgement<(Seen, Ended)> {
    let seen = rig.run(scene);
    let verdict = some("the verdict is one that the hook knows", seen.verdict)?;
    let (outcome, sent) = judge(scene, &seen, verdict)?;
    let ended = Ended {
        verdict,
        outcome,
        sent,
        returned: false,
    };
    Ok((seen, ended))
}

/// Every rule that one run is enough for.
fn judge(
    scene: &Scene,
    seen: &Seen,
    verdict: Verdict,
) -> Judgement<(Option<Outcome>, Option<Sent>)> {
    let (outcome, sent) = accounting::counted_once(scene, seen)?;
    accounting::flows_are_left_alone(scene, seen)?;
    match (scene.program, outcome) {
        (Program::Splitter, _) => splitter::judge(scene, seen, verdict)?,
        (_, None) => accounting::untouched(scene, seen, verdict)?,
        (_, Some(outcome)) => accounting::fate(scene, seen, verdict, outcome, sent)?,
    }
    match scene.program {
        Program::Egress => egress::judge(scene, seen, verdict, outcome)?,
        Program::Ingress | Program::Xdp | Program::XdpFrags => {
            ingress::judge(scene, seen, verdict, outcome, sent)?;
        }
        Program::Splitter => {}
    }
    hidden::judge(scene, seen, outcome, sent)?;
    Ok((outcome, sent))
}

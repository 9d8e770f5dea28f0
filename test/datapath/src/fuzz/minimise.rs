//! The smallest packet that still breaks the same rule.

use super::judge::{Violation, examine};
use super::rig::Rig;
use super::scene::Scene;

/// Takes damage and bytes away from the scene of a violation as long as it
/// stays one.
pub fn minimise(rig: &mut Rig, scene: &Scene, violation: &Violation) -> (Scene, Violation) {
    let mut best = (scene.clone(), violation.clone());
    undo_damage(rig, &mut best);
    cut_end(rig, &mut best);
    clear_bytes(rig, &mut best);
    best
}

/// Takes the candidate if it breaks the same rule.
fn keep(rig: &mut Rig, best: &mut (Scene, Violation), candidate: Scene) -> bool {
    match examine(rig, &candidate) {
        Err(violation) if violation.rule == best.1.rule => {
            *best = (candidate, violation);
            true
        }
        _ => false,
    }
}

/// Bytes that differ from the packet before it was damaged, one by one.
fn undo_damage(rig: &mut Rig, best: &mut (Scene, Violation)) {
    let mut candidate = best.0.clone();
    candidate.frame.clone_from(&candidate.intact);
    if keep(rig, best, candidate) || best.0.frame.len() != best.0.intact.len() {
        return;
    }
    for at in 0..best.0.frame.len() {
        let mut candidate = best.0.clone();
        candidate.frame[at] = candidate.intact[at];
        if candidate.frame != best.0.frame {
            keep(rig, best, candidate);
        }
    }
}

/// The end of the packet, in ever smaller pieces. The kernel runs nothing on
/// less than an IP header.
fn cut_end(rig: &mut Rig, best: &mut (Scene, Violation)) {
    const SHORTEST: usize = 54;
    let mut piece = best.0.frame.len() / 2;
    while piece > 0 {
        let len = best.0.frame.len().saturating_sub(piece).max(SHORTEST);
        let mut candidate = best.0.clone();
        candidate.frame.truncate(len);
        let shorter = candidate.frame.len() < best.0.frame.len();
        if !shorter || !keep(rig, best, candidate) {
            piece /= 2;
        }
    }
}

/// Bytes behind the headers that need not be what they are.
fn clear_bytes(rig: &mut Rig, best: &mut (Scene, Violation)) {
    for at in 34..best.0.frame.len() {
        if best.0.frame[at] != 0 {
            let mut candidate = best.0.clone();
            candidate.frame[at] = 0;
            keep(rig, best, candidate);
        }
    }
}

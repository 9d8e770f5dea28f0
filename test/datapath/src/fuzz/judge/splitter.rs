//! Pieces at the splitter's far end: home, or nowhere.

use super::{Judgement, accounting, rule};
use crate::case::Verdict;
use crate::fuzz::reading::{Part, read};
use crate::fuzz::rig::Seen;
use crate::fuzz::scene::Scene;

pub fn judge(scene: &Scene, seen: &Seen, verdict: Verdict) -> Judgement {
    rule(
        "nothing passes the splitter",
        verdict != Verdict::Pass,
        String::new,
    )?;
    rule(
        "the splitter leaves no trace",
        seen.moved == Default::default()
            && seen.changed(scene).is_empty()
            && seen.reports.is_empty(),
        || format!("{:?}, {:?}", seen.moved, seen.reports),
    )?;
    accounting::same_packet("the splitter changes no piece", scene, seen)?;
    let Some(piece) = read(&scene.frame) else {
        return Ok(());
    };
    // Pieces have no tags; what a later fragment says of ports is data.
    if !piece.is_untagged() || piece.part == Part::Later || piece.transport().len() < 8 {
        return Ok(());
    }
    rule(
        "what is ours goes home, and nothing else",
        (verdict == Verdict::Redirect) == piece.has_owned_port(),
        || format!("{verdict:?}, {:?}", piece.sockets()),
    )
}

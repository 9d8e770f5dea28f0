//! What is attached: its daemon and its hooks.

use nix::unistd::Pid;

use crate::doctor::Finding;
use crate::doctor::programs::Seen;
use crate::error::Result;
use crate::gateway::{Gateway, Pinned};
use crate::group::Function as _;

pub const DAEMON: &str = "gateway-daemon";

pub fn check(pinned: &Pinned, seen: Option<&Seen>) -> Result<Vec<Finding>> {
    let name = pinned.name();
    let daemon = Pinned::daemon(pinned.ifindex)?;
    let max_sessions = pinned.group.maps.max_sessions();
    let mut findings = vec![judge_daemon(&name, daemon, max_sessions)];
    findings.extend(seen.map(|seen| judge_hooks(&name, &seen.missing(Gateway::PROGRAMS), daemon)));
    Ok(findings)
}

/// The commands that attach the same. Neither can be given in full: rules come from a file or from
/// a command line that nothing remembers.
const AGAIN: &str = "`xdptun run`, or `xdptun forward` or `xdptun nat` with the same options";

fn judge_daemon(name: &str, daemon: Option<Pid>, max_sessions: u32) -> Finding {
    match daemon {
        Some(process) => Finding::ok(DAEMON, format!("{name}: process {process} runs")),
        None => {
            let what = format!(
                "{name}: no daemon of `forward` or `nat` runs, so sessions that are over keep their \
                 room: new ones begin until {max_sessions} have opened; start {AGAIN} to go on"
            );
            Finding::warn(DAEMON, what)
        }
    }
}

fn judge_hooks(name: &str, missing: &[&str], daemon: Option<Pid>) -> Finding {
    const CHECK: &str = "gateway-hooks";
    if missing.is_empty() {
        return Finding::ok(CHECK, format!("{name}: every program is on its hook"));
    }
    let take_over = match daemon {
        Some(_) => " with `--take-over`",
        None => "",
    };
    let what = format!(
        "{name}: no program of `forward` or `nat` on {}: packets there are neither forwarded nor \
         translated, and those of inside hosts may leave with their own addresses; start \
         {AGAIN} again{take_over}",
        missing.join(" and ")
    );
    Finding::fail(CHECK, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;
    use crate::doctor::programs::Hook;

    #[test]
    fn without_a_daemon_there_is_an_end_to_new_sessions() {
        let process = Some(Pid::from_raw(7));
        assert_eq!(judge_daemon("eth0", process, 1000).level, Level::Ok);
        let dead = judge_daemon("eth0", None, 1000);
        assert_eq!(dead.level, Level::Warn);
        assert!(dead.what.contains("until 1000 have"), "{}", dead.what);
    }

    #[test]
    fn each_hook_has_its_program() {
        let (ingress, egress) = ("gateway_ingress", "gateway_egress");
        for (ingress, egress, missing) in [
            (&["xdptun_ingress", ingress][..], &[egress][..], &[][..]),
            (&["xdptun_ingress"], &[egress], &["tc ingress"]),
            (&[ingress], &[ingress], &["tc egress"]),
            (&[], &[], &["tc ingress", "tc egress"]),
        ] {
            let seen = Seen {
                xdp: None,
                ingress: Hook::with(&[], ingress),
                egress: Hook::with(egress, &[]),
            };
            assert_eq!(seen.missing(Gateway::PROGRAMS), missing);
        }
    }

    #[test]
    fn a_running_daemon_is_taken_over_from() {
        assert_eq!(judge_hooks("eth0", &[], None).level, Level::Ok);
        for (daemon, takes_over) in [(None, false), (Some(Pid::from_raw(7)), true)] {
            let lost = judge_hooks("eth0", &["tc egress"], daemon);
            assert_eq!(lost.level, Level::Fail);
            assert_eq!(lost.what.contains("--take-over"), takes_over, "{lost:?}");
        }
    }
}

//! Checks of the policy: its daemon, its hooks, and what its counters tell.

use nix::unistd::Pid;

use super::programs::Seen;
use super::{Finding, found};
use crate::error::Result;
use crate::group::Function as _;
use crate::policy::{Pinned, Policy};

const DAEMON: &str = "policy-daemon";
const HOOKS: &str = "policy-hooks";
const STEPS: &str = "policy-steps";

/// The commands that attach the same; nothing remembers with which options.
const AGAIN: &str = "`xdptun run`, or `xdptun policy` with the same options";

/// Checks what is attached to an interface.
pub fn check(pinned: &Pinned, seen: Option<&Seen>) -> Vec<Finding> {
    let name = pinned.name();
    let daemon = || -> Result<Vec<Finding>> {
        Ok(vec![judge_daemon(&name, Pinned::daemon(pinned.ifindex)?)])
    };
    let steps = || -> Result<Vec<Finding>> {
        let cut = pinned.counters()?.get("searches_cut").unwrap_or_default();
        Ok(vec![judge_steps(&name, cut)])
    };
    let mut findings = found(DAEMON, daemon());
    findings.extend(seen.map(|seen| judge_hooks(&name, &seen.missing(Policy::PROGRAMS))));
    findings.extend(found(STEPS, steps()));
    findings
}

fn judge_daemon(name: &str, daemon: Option<Pid>) -> Finding {
    match daemon {
        Some(process) => Finding::ok(DAEMON, format!("{name}: process {process} runs")),
        None => Finding::warn(
            DAEMON,
            format!(
                "{name}: no daemon of `policy` runs: rules count and drop, but nothing is logged, and \
                 no end is told of a reset; start {AGAIN} to go on"
            ),
        ),
    }
}

fn judge_hooks(name: &str, missing: &[&str]) -> Finding {
    match missing {
        [] => Finding::ok(HOOKS, format!("{name}: every program is on its hook")),
        missing => Finding::fail(
            HOOKS,
            format!(
                "{name}: no program of `policy` on {}: packets pass there unsearched; start {AGAIN} \
                 again with `--take-over`",
                missing.join(" and ")
            ),
        ),
    }
}

fn judge_steps(name: &str, cut: u64) -> Finding {
    match cut {
        0 => Finding::ok(STEPS, format!("{name}: every search came to its end")),
        cut => Finding::warn(
            STEPS,
            format!(
                "{name}: {cut} searches took too many steps and were ended; `xdptun explain \
                 searches_cut` tells what that means"
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;
    use crate::doctor::programs::Hook;

    #[test]
    fn what_is_missing_is_told() {
        let process = Some(Pid::from_raw(7));
        assert_eq!(judge_daemon("eth0", process).level, Level::Ok);
        assert_eq!(judge_daemon("eth0", None).level, Level::Warn);
        assert_eq!(judge_steps("eth0", 0).level, Level::Ok);
        assert_eq!(judge_steps("eth0", 3).level, Level::Warn);
        let seen = Seen {
            xdp: None,
            ingress: Hook::with(&["xdptun_ingress", "policy_ingress"], &[]),
            egress: Hook::with(&["xdptun_egress"], &[]),
        };
        let missing = seen.missing(Policy::PROGRAMS);
        assert_eq!(missing, ["tc egress"]);
        let finding = judge_hooks("eth0", &missing);
        assert_eq!(finding.level, Level::Fail);
        assert!(finding.what.contains("tc egress"), "{finding:?}");
        assert_eq!(judge_hooks("eth0", &[]).level, Level::Ok);
    }
}

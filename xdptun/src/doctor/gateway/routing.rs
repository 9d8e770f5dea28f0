//! Whether the kernel forwards packets.

use super::Forwards;
use crate::doctor::{Finding, routes};
use crate::error::Result;
use crate::gateway::preflight::{Leg, Missing, missing_forwarding};
use crate::host::sysctl;

pub const FORWARDING: &str = "forwarding";
pub const ACCEPT_RA: &str = "accept-ra";

pub fn check_forwarding(forwards: &Forwards) -> Result<Vec<Finding>> {
    if forwards.legs().all(|leg| leg.is_local()) {
        return Ok(Vec::new());
    }
    check_forwarding_of(&forwards.interface, forwards.legs())
}

/// The same for packets between an interface and other hosts.
pub fn check_forwarding_of<'a>(
    name: &str,
    legs: impl Iterator<Item = Leg<'a>>,
) -> Result<Vec<Finding>> {
    let missing = missing_forwarding(legs)?;
    Ok(judge_forwarding(name, &missing))
}

fn judge_forwarding(name: &str, missing: &[Missing]) -> Vec<Finding> {
    if missing.is_empty() {
        let what = format!("{name}: the kernel forwards packets to other hosts, and their answers");
        return vec![Finding::ok(FORWARDING, what)];
    }
    let missing = missing.iter().map(|Missing { family, command }| {
        let what = format!(
            "{name}: the kernel does not forward {family}: it drops packets to other hosts and their \
             answers"
        );
        Finding::fail(FORWARDING, what).mend(command)
    });
    missing.collect()
}

pub fn check_advertisements(forwards: &Forwards) -> Result<Vec<Finding>> {
    let name = &forwards.interface;
    let value = |setting: &str| sysctl::number(&format!("ipv6/conf/{name}/{setting}"));
    let is_used = forwards
        .legs()
        .any(|leg| leg.to.is_ipv6() && !leg.is_local());
    let forwards_v6 = value("forwarding")?.is_some_and(|value| value != 0);
    if !is_used || !forwards_v6 || value("accept_ra")? != Some(1) {
        return Ok(Vec::new());
    }
    let is_default = routes::advertised_interfaces()?.contains(&forwards.index);
    Ok(judge_advertisements(name, is_default))
}

/// Of an interface that takes advertisements of a host that does not forward (`accept_ra=1`).
/// `is_default`: whether an advertised default route leads there.
fn judge_advertisements(name: &str, is_default: bool) -> Vec<Finding> {
    if !is_default {
        return Vec::new();
    }
    let what = format!(
        "{name}: the IPv6 default route comes from router advertisements, which a host that \
         forwards ignores: the route expires"
    );
    let key = sysctl::interface(name);
    let mend = format!("sysctl -w net.ipv6.conf.{key}.accept_ra=2");
    vec![Finding::warn(ACCEPT_RA, what).mend(mend)]
}

#[cfg(test)]
mod tests {
    use xdptun_common::wire::Protocol;

    use super::super::tests::{forwards, local};
    use super::*;
    use crate::doctor::Level;

    /// Level and command of each finding.
    fn told(findings: &[Finding]) -> Vec<(Level, Option<&str>)> {
        let told = findings.iter();
        told.map(|one| (one.level, one.mend.as_deref())).collect()
    }

    #[test]
    fn each_family_that_is_not_forwarded_fails() {
        assert_eq!(told(&judge_forwarding("eth0", &[])), [(Level::Ok, None)]);
        let missing =
            [("IPv4", "sysctl 4"), ("IPv6", "sysctl 6")].map(|(family, command)| Missing {
                family,
                command: command.to_owned(),
            });
        let failed = ["sysctl 4", "sysctl 6"].map(|command| (Level::Fail, Some(command)));
        assert_eq!(told(&judge_forwarding("eth0", &missing)), failed);
    }

    #[test]
    fn to_this_host_nothing_is_forwarded() {
        let own = forwards(&[("10.0.0.1:80", Protocol::TCP, local())]);
        assert_eq!(check_forwarding(&own).unwrap(), []);
    }

    #[test]
    fn an_advertised_default_route_is_ignored_by_a_router() {
        assert!(judge_advertisements("eth0", false).is_empty());
        assert_eq!(
            told(&judge_advertisements("eth0.100", true)),
            [(
                Level::Warn,
                Some("sysctl -w net.ipv6.conf.eth0/100.accept_ra=2")
            )]
        );
    }
}

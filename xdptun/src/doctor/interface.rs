//! The interface itself: state, MTU, offloads, source validation.

use xdptun_common::attachment::IngressMode;

use super::{Finding, Subject, found, routes};
use crate::error::{Context as _, Result};
use crate::host::ethtool;
use crate::host::mtu::WireguardMtu;
use crate::host::sysctl;
use crate::host::words::some_of;

/// The smallest MTU of IPv6, and the 12 bytes by which a TCP header is longer than UDP's.
const SMALLEST_MTU: u32 = 1280 + 12;

pub fn check(subject: &Subject) -> Vec<Finding> {
    let interface = &subject.interface;
    let mut findings = vec![state(&interface.name, interface.is_up)];
    findings.extend(found("rp-filter", rp_filter(subject)));
    findings
}

/// What matters to the tunnel alone.
pub fn check_for_tunnel(subject: &Subject) -> Vec<Finding> {
    let interface = &subject.interface;
    let mut findings = vec![mtu(&interface.name, interface.mtu)];
    findings.extend(found("vlan", vlans(subject)));
    findings.extend(offloads(subject));
    findings
}

fn state(name: &str, is_up: bool) -> Finding {
    if is_up {
        Finding::ok("interface", format!("{name}: it is up"))
    } else {
        Finding::fail("interface", format!("{name}: it is down"))
            .mend(format!("ip link set {name} up"))
    }
}

fn mtu(name: &str, mtu: u32) -> Finding {
    if mtu < SMALLEST_MTU {
        let what = format!(
            "{name}: MTU {mtu}; IPv6 datagrams of 1221 to 1232 bytes, except data of WireGuard, are \
             lost below {SMALLEST_MTU}"
        );
        return Finding::warn("mtu", what)
            .mend(format!("ip link set mtu {SMALLEST_MTU} dev {name}"));
    }
    let WireguardMtu { v4, v6 } = WireguardMtu::on(mtu);
    let what =
        format!("{name}: MTU {mtu}; WireGuard inside can use {v4} over IPv4, {v6} over IPv6");
    Finding::ok("mtu", what)
}

fn vlans(subject: &Subject) -> Result<Vec<Finding>> {
    let vlans = subject.interface.vlans()?;
    if vlans.is_empty() {
        return Ok(Vec::new());
    }
    let what = format!(
        "{}: datagrams of {} are refused here; attach to the VLAN's own device to carry them",
        subject.name(),
        vlans.join(", ")
    );
    Ok(vec![Finding::warn("vlan", what)])
}

fn rp_filter(subject: &Subject) -> Result<Vec<Finding>> {
    // By others the gateway meets answers of back ends, to which a route leads.
    if !subject.is_for_tunnel() && !subject.begins_sessions()? {
        return Ok(Vec::new());
    }
    let name = subject.name();
    let value = |of: &str| sysctl::number(&format!("ipv4/conf/{of}/rp_filter"));
    let (Some(all), Some(own)) = (value("all")?, value(name)?) else {
        return Ok(Vec::new());
    };
    let peers = subject.pinned.as_ref().map(routes::peers_elsewhere);
    let back = match peers.transpose()?.flatten() {
        Some(elsewhere) if elsewhere.is_empty() => Back::PeersHere,
        Some(elsewhere) => Back::Elsewhere(some_of(&elsewhere)),
        None => {
            let defaults = routes::default_interfaces()?;
            let is_here = defaults.is_empty() || defaults.contains(&subject.interface.index);
            if is_here {
                Back::Here
            } else {
                Back::DefaultElsewhere
            }
        }
    };
    Ok(vec![judge_rp_filter(name, all.max(own), &back)])
}

/// Where packets to the hosts leave from which packets come.
enum Back {
    /// No default route leads to another interface than that by which they come.
    Here,
    /// Nor does a route to a known peer.
    PeersHere,
    /// Those to these peers by another.
    Elsewhere(String),
    /// No peer is known, and the default route leads to another.
    DefaultElsewhere,
}

/// The stricter of the two settings counts, where 2 (loose) is more than 1 (strict).
fn judge_rp_filter(name: &str, effective: u64, back: &Back) -> Finding {
    const CHECK: &str = "rp-filter";
    if effective != 1 {
        let what = format!("{name}: reverse path filtering drops nothing");
        return Finding::ok(CHECK, what);
    }
    let what = match back {
        Back::Here => {
            let what = format!(
                "{name}: reverse path filtering is strict; no default route leads elsewhere"
            );
            return Finding::ok(CHECK, what);
        }
        Back::PeersHere => {
            let what = format!(
                "{name}: reverse path filtering is strict; no route to a known peer leads elsewhere"
            );
            return Finding::ok(CHECK, what);
        }
        Back::Elsewhere(peers) => format!(
            "{name}: reverse path filtering is strict, and the route to {peers} leads elsewhere: \
             packets from there are dropped"
        ),
        Back::DefaultElsewhere => format!(
            "{name}: reverse path filtering is strict, and the default route leads elsewhere: \
             IPv4 packets from hosts that are not on this link are dropped"
        ),
    };
    let key = sysctl::interface(name);
    Finding::warn(CHECK, what).mend(format!("sysctl -w net.ipv4.conf.{key}.rp_filter=2"))
}

fn offloads(subject: &Subject) -> Vec<Finding> {
    let name = subject.name();
    let generic = subject
        .pinned
        .as_ref()
        .is_some_and(|pinned| pinned.ingress() == IngressMode::XdpGeneric);
    let value = |command| {
        ethtool::get(name, command).with_context(|| format!("{name}: its driver tells nothing"))
    };
    let lro = value(ethtool::GET_FLAGS)
        .map(|flags| vec![judge_lro(name, flags & ethtool::FLAG_LRO != 0)]);
    let gro = value(ethtool::GET_GRO).map(|gro| vec![judge_gro(name, gro != 0, generic)]);
    [found("lro", lro), found("gro", gro)].concat()
}

fn judge_lro(name: &str, on: bool) -> Finding {
    if !on {
        return Finding::ok(
            "lro",
            format!("{name}: the device merges no segments (LRO)"),
        );
    }
    let what = format!(
        "{name}: the device merges segments (LRO) so that datagrams cannot be told apart again"
    );
    Finding::fail("lro", what).mend(format!("ethtool -K {name} lro off"))
}

fn judge_gro(name: &str, on: bool, generic: bool) -> Finding {
    if on && generic {
        let what = format!(
            "{name}: GRO is on under generic XDP, which cannot see that segments are merged \
             and drops them"
        );
        return Finding::warn("gro", what).mend(format!("ethtool -K {name} gro off"));
    }
    let state = if on { "on, and may be" } else { "off" };
    Finding::ok("gro", format!("{name}: GRO is {state}"))
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn an_interface_must_be_up_and_large_enough() {
        assert_eq!(state("eth0", true).level, Level::Ok);
        assert_eq!(state("eth0", false).mend.unwrap(), "ip link set eth0 up");
        assert_eq!(mtu("eth0", 1292).level, Level::Ok);
        assert_eq!(mtu("eth0", 1291).level, Level::Warn);
    }

    #[test]
    fn merging_is_refused_where_it_cannot_be_undone() {
        let lro = judge_lro("eth0", true);
        assert_eq!(lro.level, Level::Fail);
        assert_eq!(lro.mend.unwrap(), "ethtool -K eth0 lro off");
        assert_eq!(judge_lro("eth0", false).level, Level::Ok);
        for (on, generic, level) in [
            (true, true, Level::Warn),
            (true, false, Level::Ok),
            (false, true, Level::Ok),
        ] {
            assert_eq!(judge_gro("eth0", on, generic).level, level);
        }
    }

    #[test]
    fn strict_filtering_matters_where_the_way_back_leads_elsewhere() {
        let peers = || Back::Elsewhere("192.0.2.1".into());
        for (effective, back, level) in [
            (0, peers(), Level::Ok),
            (1, Back::Here, Level::Ok),
            (1, Back::PeersHere, Level::Ok),
            (1, Back::DefaultElsewhere, Level::Warn),
            (1, peers(), Level::Warn),
            (2, peers(), Level::Ok),
        ] {
            let finding = judge_rp_filter("eth0", effective, &back);
            assert_eq!(finding.level, level, "{finding:?}");
        }
        let vlan = judge_rp_filter("eth0.100", 1, &Back::DefaultElsewhere);
        assert_eq!(
            vlan.mend.unwrap(),
            "sysctl -w net.ipv4.conf.eth0/100.rp_filter=2"
        );
    }
}

//! Checks of NAT64: its daemon and program, the routes to its device, forwarding, what gives its
//! packets an address outside, and DNS64.

mod dns64;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use nix::net::if_::if_nametoindex;
use nix::unistd::Pid;
use rtnetlink::IpVersion;
use xdptun_common::address::mapped;
use xdptun_common::nat64::translator::Translator;

use super::gateway::{FORWARDING, changes_any_source};
use super::nftables::{self, Ruleset};
use super::programs::Seen;
use super::{Finding, found};
use crate::error::{Context as _, Result};
use crate::gateway;
use crate::group::Function as _;
use crate::host::forwarding;
use crate::host::interface::name_of;
use crate::host::route::{Route, routes};
use crate::nat64::preflight::{elsewhere, overlapping};
use crate::nat64::{DEVICE, Nat64, Pinned};

const DAEMON: &str = "nat64-daemon";
const HOOKS: &str = "nat64-hooks";
const ROUTE: &str = "nat64-route";
const POOL: &str = "nat64-pool";
const MASQUERADE: &str = "nat64-masquerade";

/// The commands that attach the same; nothing remembers with which options.
const AGAIN: &str = "`xdptun run`, or `xdptun nat64` with the same options";

/// The networks that the device translates.
struct Networks {
    prefix: Ipv6Net,
    pool: Ipv4Net,
}

impl Networks {
    fn of(translator: &Translator) -> Result<Self> {
        let (prefix, prefix_len) = translator.prefix.parts();
        let (pool, pool_len) = translator.pool.parts();
        let wrong = "the map of NAT64 has no network";
        Ok(Self {
            prefix: Ipv6Net::new(Ipv6Addr::from(prefix), prefix_len as u8).context(wrong)?,
            pool: Ipv4Net::new(Ipv4Addr::from(pool), pool_len as u8).context(wrong)?,
        })
    }
}

/// Checks what is attached to the device.
pub fn check(pinned: &Pinned, seen: Option<&Seen>) -> Vec<Finding> {
    let daemon = || Ok(vec![judge_daemon(Pinned::daemon(pinned.ifindex)?)]);
    let mut findings = found(DAEMON, daemon());
    findings.extend(seen.map(|seen| judge_hooks(&seen.missing(Nat64::PROGRAMS))));
    findings.extend(found(FORWARDING, check_forwarding()));
    let translator = pinned.group.maps.translator();
    match translator
        .map_err(Into::into)
        .and_then(|one| Networks::of(&one))
    {
        Ok(networks) => {
            findings.extend(found(ROUTE, check_routes(&networks)));
            findings.extend(found(MASQUERADE, check_masquerade(networks.pool)));
            findings.extend(found(dns64::DNS64, dns64::check(networks.prefix)));
        }
        Err(error) => findings.extend(found(ROUTE, Err(error))),
    }
    findings
}

fn judge_daemon(daemon: Option<Pid>) -> Finding {
    match daemon {
        Some(process) => Finding::ok(DAEMON, format!("{DEVICE}: process {process} runs")),
        None => Finding::warn(
            DAEMON,
            format!(
                "{DEVICE}: no daemon of `nat64` runs: packets are translated, but addresses of \
                 clients that left are not lent again; start {AGAIN} to go on"
            ),
        ),
    }
}

fn judge_hooks(missing: &[&str]) -> Finding {
    match missing {
        [] => Finding::ok(HOOKS, format!("{DEVICE}: the program is on its hook")),
        missing => Finding::fail(
            HOOKS,
            format!(
                "{DEVICE}: no program of `nat64` on {}: packets to the device are lost; start {AGAIN} \
                 again with `--take-over`",
                missing.join(" and ")
            ),
        ),
    }
}

/// Whether the kernel forwards what the device hands it, and what others send to the device: of
/// IPv4, what comes in by the interfaces of default routes.
fn check_forwarding() -> Result<Vec<Finding>> {
    let mut outside = default_interfaces(&routes()?);
    outside.insert(DEVICE.to_owned());
    let own = BTreeSet::from([DEVICE.to_owned()]);
    let families = [
        (IpVersion::V4, "IPv4", outside),
        (IpVersion::V6, "IPv6", own),
    ];
    let findings = families.map(|(version, family, interfaces)| {
        let command = forwarding::missing(version, &interfaces)?;
        Ok(judge_forwarding(family, command))
    });
    findings.into_iter().collect()
}

/// The names of the interfaces that default routes of IPv4 lead to.
fn default_interfaces(routes: &[Route]) -> BTreeSet<String> {
    let default = IpNet::V4(Ipv4Net::default());
    let leads = routes.iter().filter(|route| route.to == default);
    leads.filter_map(|route| name_of(route.interface)).collect()
}

fn judge_forwarding(family: &str, command: Option<String>) -> Finding {
    match command {
        None => Finding::ok(FORWARDING, format!("{DEVICE}: the kernel forwards {family}")),
        Some(command) => Finding::fail(
            FORWARDING,
            format!(
                "{DEVICE}: the kernel does not forward {family}: it drops what is to be translated, or \
                 was"
            ),
        )
        .mend(command),
    }
}

fn check_routes(networks: &Networks) -> Result<Vec<Finding>> {
    let routes = routes()?;
    let device = if_nametoindex(DEVICE).context(DEVICE)?;
    let mut findings: Vec<Finding> = [networks.prefix.into(), networks.pool.into()]
        .map(|network| judge_route(network, device, &routes))
        .into();
    findings.push(judge_pool(networks.pool, &routes));
    Ok(findings)
}

fn judge_route(network: IpNet, device: u32, routes: &[Route]) -> Finding {
    if let Some((to, other)) = elsewhere(network, routes) {
        let what = format!(
            "{network}: the route to {to} leads to {other}, and not to {DEVICE}: what it takes is not \
             translated"
        );
        return Finding::fail(ROUTE, what).mend(format!("ip route del {to} dev {other}"));
    }
    let leads = |route: &Route| route.to == network && route.interface == device;
    if !routes.iter().any(leads) {
        let what = format!("{network}: no route leads to {DEVICE}, so nothing is translated");
        return Finding::fail(ROUTE, what).mend(format!("ip route add {network} dev {DEVICE}"));
    }
    Finding::ok(ROUTE, format!("{network}: the route leads to {DEVICE}"))
}

/// Whether the pool lies in a network that this host has a route to.
fn judge_pool(pool: Ipv4Net, routes: &[Route]) -> Finding {
    let holds = |(to, _): &(IpNet, String)| to.contains(&IpNet::from(pool));
    match overlapping(pool, routes).into_iter().find(holds) {
        None => Finding::ok(
            POOL,
            format!("{pool}: no other network has these addresses"),
        ),
        Some((to, device)) => Finding::warn(
            POOL,
            format!(
                "{pool}: the pool lies in {to}, which {device} leads to: no host there is reached from \
                 here at an address of the pool; choose another `--pool` if some have one"
            ),
        ),
    }
}

/// Whether something gives packets of the pool an address outside.
fn check_masquerade(pool: Ipv4Net) -> Result<Vec<Finding>> {
    for pinned in gateway::Pinned::all()? {
        let nat = pinned.group.maps.bindings.nat_of(pinned.ifindex)?;
        if nat.is_some_and(|nat| nat.is_inside(mapped(pool.network().octets()))) {
            let name = name_of(pinned.ifindex).unwrap_or_else(|| pinned.name());
            let what = format!("{pool}: xdptun translates it at {name}");
            return Ok(vec![Finding::ok(MASQUERADE, what)]);
        }
    }
    Ok(vec![judge_masquerade(pool, nftables::list()?.as_ref())])
}

/// `rules`: those of nftables; `None` if nft is not installed.
fn judge_masquerade(pool: Ipv4Net, rules: Option<&Ruleset>) -> Finding {
    const ELSE: &str = "unless another router translates it or the network routes it here, no answer \
                        comes back; `--iface` translates it";
    match rules {
        None => Finding::warn(
            MASQUERADE,
            format!(
                "{pool}: nft is not installed, so rules that masquerade were not looked at; {ELSE}"
            ),
        ),
        Some(rules) if changes_any_source(rules) => Finding::ok(
            MASQUERADE,
            format!(
                "{pool}: nftables has rules that change sources; whether one is for it was not looked at"
            ),
        ),
        Some(_) => Finding::warn(
            MASQUERADE,
            format!("{pool}: nothing on this host gives it an address outside; {ELSE}"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    /// The loopback, which is always there.
    const OTHER: u32 = 1;
    const OWN: u32 = 1 << 30;

    fn route(to: &str, interface: u32) -> Route {
        Route {
            to: to.parse().unwrap(),
            interface,
        }
    }

    fn told(finding: &Finding) -> (Level, Option<&str>) {
        (finding.level, finding.mend.as_deref())
    }

    #[test]
    fn what_is_missing_is_told() {
        assert_eq!(judge_daemon(Some(Pid::from_raw(7))).level, Level::Ok);
        assert_eq!(judge_daemon(None).level, Level::Warn);
        assert_eq!(judge_hooks(&[]).level, Level::Ok);
        let finding = judge_hooks(&["tc egress"]);
        assert_eq!(finding.level, Level::Fail);
        assert!(finding.what.contains("tc egress"), "{finding:?}");
        assert_eq!(told(&judge_forwarding("IPv6", None)), (Level::Ok, None));
        let missing = judge_forwarding("IPv6", Some("sysctl 6".to_owned()));
        assert_eq!(told(&missing), (Level::Fail, Some("sysctl 6")));
    }

    #[test]
    fn routes_of_the_device_are_its_own() {
        let prefix = "64:ff9b::/96".parse().unwrap();
        let own = route("64:ff9b::/96", OWN);
        for (routes, expected) in [
            (vec![own], (Level::Ok, None)),
            (
                vec![],
                (Level::Fail, Some("ip route add 64:ff9b::/96 dev xdptun64")),
            ),
            (
                vec![own, route("64:ff9b::c000:200/120", OTHER)],
                (
                    Level::Fail,
                    Some("ip route del 64:ff9b::c000:200/120 dev lo"),
                ),
            ),
        ] {
            let finding = judge_route(prefix, OWN, &routes);
            assert_eq!(told(&finding), expected, "{}", finding.what);
        }
    }

    #[test]
    fn answers_come_in_by_the_interfaces_of_default_routes() {
        let others = [route("10.0.0.0/8", OTHER), route("::/0", OTHER)];
        assert_eq!(default_interfaces(&others), BTreeSet::new());
        let default = [route("0.0.0.0/0", OTHER), route("0.0.0.0/0", OWN)];
        let expected = BTreeSet::from(["lo".to_owned()]);
        assert_eq!(default_interfaces(&default), expected);
    }

    #[test]
    fn a_pool_of_others_is_told() {
        let pool = "100.64.0.0/16".parse().unwrap();
        for (routes, level) in [
            (vec![route("10.0.0.0/8", OTHER)], Level::Ok),
            (vec![route("100.64.0.0/10", OTHER)], Level::Warn),
        ] {
            assert_eq!(judge_pool(pool, &routes).level, level);
        }
    }

    #[test]
    fn nothing_that_masquerades_is_told() {
        let pool = "100.64.0.0/16".parse().unwrap();
        let none = Ruleset::parse("{\"nftables\": []}").unwrap();
        assert_eq!(judge_masquerade(pool, None).level, Level::Warn);
        assert_eq!(judge_masquerade(pool, Some(&none)).level, Level::Warn);
        let rule = "{\"nftables\": [{\"rule\": {\"family\": \"ip\", \"table\": \"t\", \"chain\": \"c\", \
                    \"handle\": 4, \"expr\": [{\"masquerade\": null}]}}]}";
        let some = Ruleset::parse(rule).unwrap();
        assert_eq!(judge_masquerade(pool, Some(&some)).level, Level::Ok);
    }
}

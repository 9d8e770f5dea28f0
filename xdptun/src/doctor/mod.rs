//! Finds problems on this host that keep datagrams from passing, and the commands that fix them.
//!
//! Every file holds the checks of one matter: a thin layer that reads, and pure functions
//! that judge. The doctor changes nothing: it unloads at once the programs that it loads
//! to see whether the kernel takes them, and closes at once the connections that it opens to
//! back ends.

mod attachment;
mod checks;
mod clock;
mod conntrack;
mod counters;
mod driver;
mod ephemeral;
mod filters;
mod firewall;
mod flows;
mod gateway;
mod host;
mod interface;
mod nat64;
mod nftables;
mod policy;
mod programs;
mod routes;
mod wireguard;

use std::net::IpAddr;

use serde::Serialize;

pub use self::checks::{CHECKS, NOT_LOOKED_AT};
use self::counters::Before;
use crate::error::Result;
use crate::gateway::Gateway;
use crate::group::Function;
use crate::group::counter::Counts;
use crate::group::pinned;
use crate::host::interface::{Interface, name_of};
use crate::host::ports::PortRange;
use crate::host::route;
use crate::nat64::Nat64;
use crate::policy::Policy;
use crate::tunnel::{Pinned, Tunnel};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// It works, but not in every case or not as well as it could.
    Warn,
    /// It does not work.
    Fail,
}

impl Level {
    /// Its name in both forms of output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The name of the check, one of [`CHECKS`].
    pub check: &'static str,
    /// How bad it is.
    pub level: Level,
    /// The finding, and why it matters.
    pub what: String,
    /// The command that mends it, if one command does.
    pub mend: Option<String>,
}

impl Finding {
    fn new(check: &'static str, level: Level, what: impl Into<String>) -> Self {
        debug_assert!(checks::is_check(check), "{check}");
        Self {
            check,
            level,
            what: what.into(),
            mend: None,
        }
    }

    fn ok(check: &'static str, what: impl Into<String>) -> Self {
        Self::new(check, Level::Ok, what)
    }

    fn warn(check: &'static str, what: impl Into<String>) -> Self {
        Self::new(check, Level::Warn, what)
    }

    fn fail(check: &'static str, what: impl Into<String>) -> Self {
        Self::new(check, Level::Fail, what)
    }

    fn mend(self, command: impl Into<String>) -> Self {
        Self {
            mend: Some(command.into()),
            ..self
        }
    }
}

/// The findings of a check, or one finding that it failed.
fn found(check: &'static str, result: Result<Vec<Finding>>) -> Vec<Finding> {
    result.unwrap_or_else(|error| {
        vec![Finding::warn(
            check,
            format!("cannot be looked at: {error:#}"),
        )]
    })
}

/// An interface to look at.
struct Subject {
    interface: Interface,
    /// What the tunnel has attached, if anything.
    pinned: Option<Pinned>,
    /// What the gateway has attached, if anything.
    gateway: Option<crate::gateway::Pinned>,
    /// What the policy has attached, if anything.
    policy: Option<crate::policy::Pinned>,
    /// What NAT64 has attached, if anything.
    nat64: Option<crate::nat64::Pinned>,
    /// The owned ports: those of the command line, and those of the attachment.
    ports: Vec<PortRange>,
}

impl Subject {
    fn find(name: &str, ports: &[PortRange]) -> Result<Self> {
        let interface = Interface::find(name)?;
        let pinned = Pinned::open(interface.index)?;
        let mut ports = ports.to_vec();
        if let Some(pinned) = &pinned {
            let others = pinned.group.maps.ports()?.into_iter();
            ports.extend(
                others
                    .filter(|range| !ports.contains(range))
                    .collect::<Vec<_>>(),
            );
        }
        Ok(Self {
            gateway: crate::gateway::Pinned::open(interface.index)?,
            policy: crate::policy::Pinned::open(interface.index)?,
            nat64: crate::nat64::Pinned::open(interface.index)?,
            interface,
            pinned,
            ports,
        })
    }

    /// What each of its functions has counted, in the same order every time.
    fn counts(&self) -> Result<Vec<Counts>> {
        let of_tunnel = self.pinned.as_ref().map(Pinned::counters);
        let of_gateway = self.gateway.as_ref().map(pinned::Pinned::counters);
        let of_policy = self.policy.as_ref().map(pinned::Pinned::counters);
        let of_nat64 = self.nat64.as_ref().map(pinned::Pinned::counters);
        let all = [of_tunnel, of_gateway, of_policy, of_nat64].into_iter();
        all.flatten().collect()
    }

    fn name(&self) -> &str {
        &self.interface.name
    }

    /// Whether callers must know a secret.
    fn has_secret(&self) -> bool {
        self.pinned.as_ref().is_some_and(Pinned::has_secret)
    }

    /// Whether the tunnel is attached, or may be: that an interface has another function alone
    /// says that it is not for the tunnel.
    const fn is_for_tunnel(&self) -> bool {
        let has_others = self.gateway.is_some() || self.policy.is_some() || self.nat64.is_some();
        self.pinned.is_some() || !has_others || !self.ports.is_empty()
    }

    /// Whether the tunnel carries datagrams of other hosts, which this one forwards.
    fn forwards(&self) -> Result<bool> {
        let Some(pinned) = &self.pinned else {
            return Ok(false);
        };
        let ends = route::ends()?;
        let is_own = |address: IpAddr| {
            let own = ends.iter().filter(|end| end.kind == "local");
            own.into_iter().any(|end| end.to.contains(&address))
        };
        let flows = pinned.own_flows(&pinned.group.maps.flows()?);
        Ok(flows.iter().any(|(key, _)| !is_own(key.local().ip())))
    }

    /// Whether sessions of the gateway may begin by it.
    fn begins_sessions(&self) -> Result<bool> {
        let Some(pinned) = &self.gateway else {
            return Ok(false);
        };
        let maps = &pinned.group.maps;
        let has_rules = maps.set_of(pinned.ifindex)?.is_some();
        Ok(has_rules || maps.bindings.nat_of(pinned.ifindex)?.is_some())
    }

    fn examine(&self) -> Vec<Finding> {
        let seen = programs::Seen::at(&self.interface);
        let mut findings = interface::check(self);
        if let Err(error) = &seen {
            findings.push(Finding::warn(
                "tc",
                format!("{}: cannot be looked at: {error:#}", self.name()),
            ));
        }
        let seen = seen.as_ref().ok();
        if self.is_for_tunnel() {
            findings.extend(self.examine_tunnel(seen));
        }
        if let Some(pinned) = &self.gateway {
            findings.extend(gateway::check(pinned, seen));
        }
        if let Some(pinned) = &self.policy {
            findings.extend(policy::check(pinned, seen));
        }
        if let Some(pinned) = &self.nat64 {
            findings.extend(nat64::check(pinned, seen));
        }
        findings
    }

    fn examine_tunnel(&self, seen: Option<&programs::Seen>) -> Vec<Finding> {
        let mut findings = interface::check_for_tunnel(self);
        findings.extend(
            seen.into_iter()
                .flat_map(|seen| programs::check(self, seen)),
        );
        if let Some(pinned) = &self.pinned {
            let check = || attachment::check(pinned, seen);
            findings.extend(found("daemon", check()));
            findings.extend(found("route", routes::check_peers(pinned)));
            let flows = flows::check(pinned).map(|finding| vec![finding]);
            findings.extend(found("flows", flows));
            let fragments = flows::check_fragments(pinned, self.interface.mtu);
            findings.extend(found("fragments", fragments.map(Vec::from_iter)));
        } else if !pinned::is_attached(Tunnel::PROGRAMS, self.name()) {
            findings.push(flows::none(self.name()));
        }
        findings.extend(found("wireguard-mtu", wireguard::check(self)));
        findings.extend(found("tcp-server", attachment::check_servers(self)));
        findings.extend(found("ephemeral-port", ephemeral::check(self)));
        findings.extend(found("firewall", firewall::check(self)));
        findings
    }
}

/// Checks the host, and one interface; without one, every attached interface and those of
/// the default routes. `ports` count as owned, beside those that are attached.
#[must_use]
pub fn examine(interface: Option<&str>, ports: &[PortRange]) -> Vec<Finding> {
    let mut findings = host::check();
    findings.extend(found("conntrack", conntrack::check()));
    findings.extend(found("attachment", check_pins()));
    let names = match interface {
        Some(name) => Ok(vec![name.to_owned()]),
        None => interfaces(),
    };
    match names {
        Ok(names) if names.is_empty() => findings.push(Finding::warn(
            "interface",
            "nothing is attached and there is no default route; name an interface with --iface",
        )),
        Ok(names) => {
            // All are counted before the first is examined, and again after the last.
            let counted = |name| -> Result<_> {
                let subject = Subject::find(name, ports)?;
                let before = Before::new(subject.counts()?);
                Ok((subject, before))
            };
            let subjects: Vec<_> = names.iter().map(|name| counted(name)).collect();
            for subject in &subjects {
                findings.extend(match subject {
                    Ok((subject, _)) => subject.examine(),
                    Err(error) => vec![Finding::fail("interface", format!("{error:#}"))],
                });
            }
            for (subject, before) in subjects.iter().flatten() {
                let grown = before.check(subject.name(), || subject.counts());
                findings.extend(found("drops", grown));
            }
        }
        Err(error) => findings.push(Finding::fail("interface", format!("{error:#}"))),
    }
    findings
}

/// The interfaces to check if none is given.
fn interfaces() -> Result<Vec<String>> {
    let mut indices = Pinned::interfaces()?;
    indices.extend(crate::gateway::Pinned::interfaces()?);
    indices.extend(crate::policy::Pinned::interfaces()?);
    indices.extend(crate::nat64::Pinned::interfaces()?);
    indices.extend(routes::default_interfaces()?);
    Ok(indices.into_iter().filter_map(name_of).collect())
}

/// Pins without an interface in this network namespace, and attachments whose pins are in
/// another mount namespace.
fn check_pins() -> Result<Vec<Finding>> {
    let mut findings = check_pins_of::<Tunnel>()?;
    for others in [
        check_pins_of::<Policy>()?,
        check_pins_of::<Gateway>()?,
        check_pins_of::<Nat64>()?,
    ] {
        // One command removes what all have left of an interface.
        let others = others.into_iter();
        let others: Vec<Finding> = others.filter(|one| !findings.contains(one)).collect();
        findings.extend(others);
    }
    Ok(findings)
}

fn check_pins_of<F: Function>() -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for index in pinned::Pinned::<F>::interfaces()? {
        if name_of(index).is_none()
            && let Some(pinned) = pinned::Pinned::<F>::open(index)?
        {
            let daemon = pinned::Pinned::<F>::daemon(index)?;
            findings.push(attachment::orphan(&pinned.name(), daemon));
        }
    }
    for name in pinned::unseen::<F>()? {
        let what = format!("{name}: attached, but {}", pinned::PINS_ARE_HIDDEN);
        findings.push(Finding::fail("attachment", what));
    }
    Ok(findings)
}

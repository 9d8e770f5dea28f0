//! What can keep a plan from working on this host.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use rtnetlink::IpVersion;
use tracing::warn;
use xdptun_common::wire::Protocol;

use super::plan::Plan;
use super::session::protocol_name;
use crate::config::{Forward, Nat};
use crate::error::{Result, bail};
use crate::host::ephemeral::Exposed;
use crate::host::forwarding;
use crate::host::interface::name_of;
use crate::host::listeners::Servers;
use crate::host::route::{Way, ways_to};

/// Refuses ports at which a server of this host waits, unless the rule takes them, or the plan
/// before had it.
///
/// # Errors
///
/// If there are such ports, of [kind](crate::error::Kind) `Conflict`, or if the kernel's tables
/// cannot be read.
pub fn refuse_served(plan: &Plan, before: Option<&Plan>) -> Result<()> {
    let servers = Servers::read()?;
    let mut served = BTreeSet::new();
    let had = |name: &String, forward: &Forward| {
        let before = before.and_then(|plan| plan.forwards.get(name));
        before.is_some_and(|forwards| forwards.contains(forward))
    };
    let all = plan.forwards.iter();
    let all = all.flat_map(|(name, forwards)| forwards.iter().map(move |one| (name, one)));
    let asked = all.filter(|(name, forward)| !forward.steal && !had(name, forward));
    for (_, forward) in asked {
        let (ports, protocols) = (forward.listen.ports.bounds(), forward.listen.protocols);
        served.extend(served_ports(
            &servers,
            forward.address(),
            ports,
            protocols.list(),
        ));
    }
    if !served.is_empty() {
        bail!(
            Conflict,
            "a server of this host waits for packets to {}, and would get none; stop it (`ss \
             -lntup` lists servers), choose another port, or take the port (`--steal`, in a file \
             `steal = true`)",
            served.into_iter().collect::<Vec<_>>().join(", ")
        );
    }
    Ok(())
}

/// The ports of a listen address, from the first to the last, at which a server waits: `7000/tcp`.
pub fn served_ports(
    servers: &Servers,
    address: IpAddr,
    (first, last): (u16, u16),
    protocols: &[Protocol],
) -> Vec<String> {
    let all = (first..=last).flat_map(|port| protocols.iter().map(move |one| (port, *one)));
    let served = all.filter(|(port, protocol)| servers.has(address, *port, *protocol));
    let named = served.map(|(port, protocol)| format!("{port}/{}", protocol_name(protocol)));
    named.collect()
}

/// Warns of back ends and inside hosts that packets cannot reach now.
pub fn warn_of_routing(plan: &Plan) {
    warn_of_nat(plan);
    for back_end in plan.unreachable() {
        warn!("{back_end}: no route leads to this back end; `ip route get {back_end}` tells more");
    }
    let all = plan.forwards.iter();
    let legs = all.flat_map(|(name, forwards)| {
        let back_ends = forwards.iter().flat_map(|forward| &forward.to);
        back_ends.map(move |to| Leg {
            listener: name,
            to: to.address,
            way: plan.seen().way(to.address),
        })
    });
    let legs = legs.chain(inside_legs(plan));
    match missing_forwarding(legs) {
        Ok(missing) => {
            for Missing { family, command } in missing {
                warn!(
                    "this host forwards no {family} packets to other hosts; `{command}` lets it do so"
                );
            }
        }
        Err(error) => warn!("cannot see whether this host forwards packets: {error:#}"),
    }
    match foreign_sources(plan) {
        Ok(foreign) => {
            for address in foreign {
                warn!(
                    "{address}: not an address of this host, so that answers to it do not come \
                     here; `ip address` lists those of this host"
                );
            }
        }
        Err(error) => warn!("cannot see whether sources are this host's: {error:#}"),
    }
}

/// Warns of what keeps inside hosts from being translated now.
fn warn_of_nat(plan: &Plan) {
    for (name, nat) in &plan.nats {
        match plan.seen().outside.get(name) {
            None => {
                warn!("{name}: no IPv4 address yet; inside hosts are translated when it has one");
            }
            Some(outside) => warn_of_outside(name, nat, *outside),
        }
        for inside in &nat.inside {
            let interfaces = plan.seen().inside.get(&inside.network());
            if interfaces.is_none_or(BTreeSet::is_empty) {
                warn!(
                    "{inside}: no route leads to this inside network, so that its hosts get no \
                     answers; `ip route` lists what there is"
                );
            }
        }
        match Exposed::among(&[nat.ports]) {
            Ok(Some(exposed)) => warn!(
                "{name}: the kernel may give outside ports ({}) to sockets of this host, which then \
                 get no answers; choose other `ports`, or reserve them with `{}`",
                exposed.ports(),
                exposed.command()
            ),
            Ok(None) => {}
            Err(error) => warn!("cannot see which ports the kernel gives to sockets: {error:#}"),
        }
    }
}

fn warn_of_outside(name: &str, nat: &Nat, outside: Ipv4Addr) {
    if let Some(inside) = nat
        .inside
        .iter()
        .find(|one| one.network().contains(&outside))
    {
        warn!(
            "{name}: its address {outside} lies in the inside network {inside}; name a smaller \
             network"
        );
    }
    let own = ways_to([outside.into()]);
    let is_own = own.is_ok_and(|ways| ways.values().flatten().any(|way| way.is_local));
    if !is_own {
        warn!(
            "{name}: {outside} is no address of this host; if a router sends its packets here, those \
             that belong to no session would go back to it, again and again: `ip route add blackhole \
             {outside}/32` ends that"
        );
    }
}

/// How packets go between an interface that translates and the inside hosts.
fn inside_legs(plan: &Plan) -> impl Iterator<Item = Leg<'_>> {
    plan.nats.iter().flat_map(|(name, nat)| {
        let to = nat.inside.first().map(|inside| inside.network().addr());
        let interfaces = plan.seen().inside_of(nat);
        to.into_iter().flat_map(move |to| {
            interfaces
                .clone()
                .map(move |interface| Leg::by(name, to.into(), interface))
        })
    })
}

/// The addresses that rules name as a source, and that this host does not have.
fn foreign_sources(plan: &Plan) -> Result<Vec<IpAddr>> {
    let forwards = plan.forwards.values().flatten();
    let ways = ways_to(forwards.filter_map(|one| one.source.address()))?;
    let foreign = ways.into_iter().filter_map(|(address, way)| {
        let is_own = way.is_some_and(|way| way.is_local);
        (!is_own).then_some(address)
    });
    Ok(foreign.collect())
}

/// How packets go from an interface by which sessions begin to a back end, or to inside hosts.
#[derive(Clone, Copy, Debug)]
pub struct Leg<'a> {
    /// The name of the interface.
    pub listener: &'a str,
    /// The back end.
    pub to: IpAddr,
    /// The way there, if there is one.
    pub way: Option<Way>,
}

/// A family whose packets this host does not forward.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// IPv4 or IPv6.
    pub family: &'static str,
    /// The command that changes it.
    pub command: String,
}

/// The families that this host does not forward, of those that it has to.
///
/// # Errors
///
/// If a setting cannot be read.
pub fn missing_forwarding<'a>(legs: impl Iterator<Item = Leg<'a>>) -> Result<Vec<Missing>> {
    let (mut v4, mut v6) = (BTreeSet::new(), BTreeSet::new());
    for leg in legs.filter(|leg| !leg.is_local()) {
        let interfaces = if leg.to.is_ipv4() { &mut v4 } else { &mut v6 };
        // Answers come in by the interface that leads to the back end.
        let far = leg.way.and_then(|way| name_of(way.interface));
        interfaces.extend(far);
        interfaces.insert(leg.listener.to_owned());
    }
    let mut missing = Vec::new();
    for (family, version, interfaces) in [("IPv4", IpVersion::V4, v4), ("IPv6", IpVersion::V6, v6)]
    {
        let command = forwarding::missing(version, &interfaces)?;
        missing.extend(command.map(|command| Missing { family, command }));
    }
    Ok(missing)
}

impl<'a> Leg<'a> {
    /// How packets go to an inside host that an interface leads to.
    #[must_use]
    pub const fn by(listener: &'a str, to: IpAddr, interface: u32) -> Self {
        Self {
            listener,
            to,
            way: Some(Way {
                interface,
                source: None,
                is_local: false,
            }),
        }
    }
    /// Whether the back end is this host.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.way.is_some_and(|way| way.is_local)
    }
}

//! What can keep NAT64 from working on this host.

use std::collections::BTreeSet;

use ipnet::{IpNet, Ipv4Net};
use rtnetlink::IpVersion;
use tracing::warn;

use super::plan::{DEVICE, Plan};
use crate::error::{Result, bail};
use crate::host::forwarding;
use crate::host::interface::{Interface, name_of};
use crate::host::route::{End, Route, Way, ends, routes, ways_to};

/// Refuses a prefix or a pool of which a part is routed elsewhere. What translates already goes on,
/// and only warns: the more specific route has taken its packets.
///
/// # Errors
///
/// If it is, of [kind](crate::error::Kind) `Conflict`, or if the kernel does not tell.
pub fn refuse_routed(plan: &Plan, translates: bool) -> Result<()> {
    let (routes, ends) = (routes()?, ends()?);
    for network in plan.routed() {
        let wrong = elsewhere(network, &routes)
            .map(|(to, device)| {
                format!(
                    "the route to {to} leads to {device}, and not to {DEVICE}; remove it (`ip route \
                     del {to} dev {device}`), or choose another `--prefix` or `--pool`"
                )
            })
            .or_else(|| ended(network, &ends));
        match wrong {
            Some(wrong) if translates => warn!("{network}: {wrong}"),
            Some(wrong) => bail!(Conflict, "{network}: {wrong}"),
            None => {}
        }
    }
    Ok(())
}

/// What is wrong with a route at which packets to a network, or a part of it, end, if there is one.
fn ended(network: IpNet, ends: &[End]) -> Option<String> {
    let mut inside = ends.iter().filter(|end| network.contains(&end.to));
    inside.find_map(|End { to, kind, interface }| match interface {
        Some(interface) => {
            let device = name_of(*interface)?;
            (device != DEVICE).then(|| {
                format!(
                    "{to} is an address of this host, on {device}; choose another `--prefix` or \
                     `--pool`"
                )
            })
        }
        None => Some(format!(
            "the route to {to} is of type {kind}; remove it (`ip route del {kind} {to}`), or choose \
             another `--prefix` or `--pool`"
        )),
    })
}

/// Whether packets to one of the networks no longer come to the device, though it is up: the kernel
/// removes routes and addresses of a device that is set down.
///
/// # Errors
///
/// If the kernel does not tell.
pub fn has_lost_routes(plan: &Plan) -> Result<bool> {
    let networks = plan.routed().map(|network| network.addr());
    // A device that is gone is made anew.
    let device = match Interface::find(DEVICE) {
        Ok(device) if device.is_up => device,
        _ => return Ok(false),
    };
    let ways = ways_to(networks)?;
    let is_own = |way: &Option<Way>| way.is_some_and(|way| way.interface == device.index);
    Ok(!ways.values().all(is_own))
}

/// A route into a network by another device than NAT64's, if there is one.
pub fn elsewhere(network: IpNet, routes: &[Route]) -> Option<(IpNet, String)> {
    let own = |route: &&Route| network.contains(&route.to);
    let mut all = routes.iter().filter(own);
    all.find_map(|route| {
        let device = name_of(route.interface)?;
        (device != DEVICE).then_some((route.to, device))
    })
}

/// The networks of IPv4 that this host has a route to and that the pool lies in or holds, but for that
/// of the device and the default route.
pub fn overlapping(pool: Ipv4Net, routes: &[Route]) -> Vec<(IpNet, String)> {
    let overlaps = |to: &Ipv4Net| to.prefix_len() > 0 && (to.contains(&pool) || pool.contains(to));
    let found = routes.iter().filter_map(|route| match route.to {
        IpNet::V4(to) if overlaps(&to) => {
            let device = name_of(route.interface)?;
            (device != DEVICE).then_some((route.to, device))
        }
        _ => None,
    });
    found.collect()
}

/// Warns if the kernel does not forward packets of both versions.
pub fn warn_of_forwarding() {
    for (version, family) in [(IpVersion::V4, "IPv4"), (IpVersion::V6, "IPv6")] {
        match forwarding::missing(version, &BTreeSet::from([DEVICE.to_owned()])) {
            Ok(None) => {}
            Ok(Some(command)) => warn!(
                "this host forwards no {family} packets to other hosts; `{command}` lets it do so"
            ),
            Err(error) => warn!("cannot see whether this host forwards packets: {error:#}"),
        }
    }
}

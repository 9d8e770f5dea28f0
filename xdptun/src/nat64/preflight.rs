//! What can keep NAT64 from working on this host.

use std::collections::BTreeSet;

use ipnet::{IpNet, Ipv4Net};
use rtnetlink::IpVersion;
use tracing::warn;

use super::plan::{DEVICE, Plan};
use crate::error::{Result, bail};
use crate::host::forwarding;
use crate::host::interface::name_of;
use crate::host::route::{Route, routes};

/// Refuses a prefix or a pool of which a part is routed elsewhere.
///
/// # Errors
///
/// If it is, of [kind](crate::error::Kind) `Conflict`, or if the kernel does not tell.
pub fn refuse_routed(plan: &Plan) -> Result<()> {
    let routes = routes()?;
    for network in plan.routed() {
        if let Some((to, device)) = elsewhere(network, &routes) {
            bail!(
                Conflict,
                "{network}: the route to {to} leads to {device}, and not to {DEVICE}; remove it \
                 (`ip route del {to} dev {device}`), or choose another `--prefix` or `--pool`"
            );
        }
    }
    Ok(())
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

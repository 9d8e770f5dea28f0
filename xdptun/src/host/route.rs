//! The route of this host to an address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use futures_util::TryStreamExt as _;
use ipnet::{IpNet, Ipv4Net};
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use rtnetlink::{Handle, RouteMessageBuilder};

use crate::error::{Context as _, Error, Result};
use crate::host::netlink;

/// How this host sends packets to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Index of the interface that they leave by; the loopback's if the address is this host's.
    pub interface: u32,
    /// The address that they come from.
    pub source: Option<IpAddr>,
    /// Whether the address is this host's own.
    pub is_local: bool,
}

/// The way to each of some addresses; `None` where there is no route.
pub type Ways = BTreeMap<IpAddr, Option<Way>>;

/// The ways to some addresses, each of which is asked for once.
///
/// # Errors
///
/// If the kernel does not tell.
pub fn ways_to(addresses: impl IntoIterator<Item = IpAddr>) -> Result<Ways> {
    let addresses: BTreeSet<IpAddr> = addresses.into_iter().collect();
    netlink::block_on(async |handle| {
        let mut ways = Ways::new();
        for address in addresses {
            ways.insert(address, way_to(&handle, address).await?);
        }
        Ok(ways)
    })
}

async fn way_to(handle: &Handle, to: IpAddr) -> Result<Option<Way>> {
    let question = RouteMessageBuilder::<IpAddr>::new()
        .destination_prefix(to, IpNet::from(to).prefix_len())
        .map_err(Error::other)?
        .build();
    let mut answers = Box::pin(handle.route().get(question).execute());
    let route = match answers.try_next().await {
        // For routes that are unreachable, prohibited or missing the kernel returns an error.
        Err(rtnetlink::Error::NetlinkError(_)) => return Ok(None),
        answer => answer.context("cannot ask for a route")?,
    };
    let Some(route) = route else {
        return Ok(None);
    };
    let interface = route.attributes.iter().find_map(|one| match one {
        RouteAttribute::Oif(index) => Some(*index),
        _ => None,
    });
    let source = route.attributes.iter().find_map(|one| match one {
        RouteAttribute::PrefSource(RouteAddress::Inet(source)) => Some(IpAddr::V4(*source)),
        RouteAttribute::PrefSource(RouteAddress::Inet6(source)) => Some(IpAddr::V6(*source)),
        _ => None,
    });
    Ok(interface.map(|interface| Way {
        interface,
        source,
        is_local: route.header.kind == RouteType::Local,
    }))
}

/// A route to a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The network.
    pub to: IpNet,
    /// Index of the interface that it leads to.
    pub interface: u32,
}

/// The routes of both versions to other hosts, of the main table and others that are in use; of one by
/// several interfaces each.
///
/// # Errors
///
/// If the kernel does not tell.
pub fn routes() -> Result<Vec<Route>> {
    let mut all = Vec::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        all.extend(messages(family)?.iter().flat_map(leads));
    }
    Ok(all)
}

/// A route to a network that leads to no other host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The network.
    pub to: IpNet,
    /// What the kernel does with its packets, as `ip route` names it.
    pub kind: &'static str,
    /// Index of the interface that has it, if it is an address of this host.
    pub interface: Option<u32>,
}

/// The routes of both versions at which packets end: those of this host's own addresses, and those
/// that refuse.
///
/// # Errors
///
/// If the kernel does not tell.
pub fn ends() -> Result<Vec<End>> {
    let mut all = Vec::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        all.extend(messages(family)?.iter().filter_map(end));
    }
    Ok(all)
}

fn end(route: &RouteMessage) -> Option<End> {
    let kind = match route.header.kind {
        RouteType::Local => "local",
        RouteType::BlackHole => "blackhole",
        RouteType::Unreachable => "unreachable",
        RouteType::Prohibit => "prohibit",
        _ => return None,
    };
    let interface = route.attributes.iter().find_map(|one| match one {
        RouteAttribute::Oif(index) => Some(*index),
        _ => None,
    });
    Some(End {
        to: destination(route)?,
        kind,
        interface: interface.filter(|_| kind == "local"),
    })
}

/// The network that a route is to; `None` of a default route.
fn destination(route: &RouteMessage) -> Option<IpNet> {
    let to = route.attributes.iter().find_map(|one| match one {
        RouteAttribute::Destination(RouteAddress::Inet(to)) => Some(IpAddr::V4(*to)),
        RouteAttribute::Destination(RouteAddress::Inet6(to)) => Some(IpAddr::V6(*to)),
        _ => None,
    });
    let to = IpNet::new(to?, route.header.destination_prefix_length).ok()?;
    (to.prefix_len() > 0).then_some(to)
}

fn messages(family: AddressFamily) -> Result<Vec<RouteMessage>> {
    netlink::block_on(async |handle| {
        let mut request = RouteMessage::default();
        request.header.address_family = family;
        let routes = handle.route().get(request).execute().try_collect();
        routes.await.context("cannot list the routes")
    })
}

/// Indices of the interfaces by which packets leave to a part of each network.
pub type WaysInto = BTreeMap<Ipv4Net, BTreeSet<u32>>;

/// The interfaces that routes to some networks lead to. The default route counts for none.
///
/// # Errors
///
/// If the kernel does not tell.
pub fn interfaces_into(networks: impl IntoIterator<Item = Ipv4Net>) -> Result<WaysInto> {
    let mut all: WaysInto = networks
        .into_iter()
        .map(|network| (network, BTreeSet::new()))
        .collect();
    if all.is_empty() {
        return Ok(all);
    }
    let routes = messages(AddressFamily::Inet)?;
    for Route { to, interface } in routes.iter().flat_map(leads) {
        let IpNet::V4(to) = to else { continue };
        for (network, interfaces) in &mut all {
            if network.contains(&to) || to.contains(network) {
                interfaces.insert(interface);
            }
        }
    }
    Ok(all)
}

/// The network that a route leads to, with each interface by which it does; none if it leads
/// nowhere or everywhere.
fn leads(route: &RouteMessage) -> Vec<Route> {
    let to = destination(route).filter(|_| route.header.kind == RouteType::Unicast);
    let Some(to) = to else {
        return Vec::new();
    };
    let interfaces = route.attributes.iter().flat_map(|one| match one {
        RouteAttribute::Oif(index) => vec![*index],
        RouteAttribute::MultiPath(hops) => hops.iter().map(|hop| hop.interface_index).collect(),
        _ => Vec::new(),
    });
    interfaces
        .map(|interface| Route { to, interface })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_leads_to_a_network_by_an_interface() {
        let route = |kind, to: Option<[u8; 4]>, prefix, interface: Option<u32>| {
            let mut route = RouteMessage::default();
            route.header.kind = kind;
            route.header.destination_prefix_length = prefix;
            let to = to.map(|to| RouteAttribute::Destination(RouteAddress::Inet(to.into())));
            route.attributes.extend(to);
            route.attributes.extend(interface.map(RouteAttribute::Oif));
            route
        };
        let to = Some([10, 0, 0, 0]);
        for (route, expected) in [
            (
                route(RouteType::Unicast, to, 8, Some(3)),
                Some(("10.0.0.0/8", 3)),
            ),
            (route(RouteType::Local, to, 8, Some(1)), None),
            (route(RouteType::BlackHole, to, 8, None), None),
            (route(RouteType::Unicast, None, 0, Some(3)), None),
            (route(RouteType::Unicast, to, 8, None), None),
        ] {
            let expected = expected.map(|(to, interface)| Route {
                to: to.parse().unwrap(),
                interface,
            });
            assert_eq!(leads(&route), Vec::from_iter(expected), "{route:?}");
        }
        for (kind, prefix, expected) in [
            (RouteType::Local, 32, Some(("local", Some(3)))),
            (RouteType::BlackHole, 8, Some(("blackhole", None))),
            (RouteType::Prohibit, 0, None),
            (RouteType::Unicast, 8, None),
            (RouteType::Broadcast, 32, None),
        ] {
            let route = route(kind, to, prefix, Some(3));
            let found = end(&route).map(|end| (end.kind, end.interface));
            assert_eq!(found, expected, "{route:?}");
        }
    }
}

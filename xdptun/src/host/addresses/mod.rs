//! The addresses of this host, and their changes.

mod vrf;
mod watch;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use futures_util::TryStreamExt as _;
use ipnet::IpNet;
use nix::errno::Errno;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use rtnetlink::{Error, Handle};
use xdptun_common::address::Local;

use self::vrf::{Use, Vrfs};
use crate::error::{Context as _, Result};
use crate::host::netlink;

pub use self::watch::AddressWatch;

/// The networks whose packets the kernel takes for itself; of two that overlap, the smaller
/// counts.
pub type Addresses = BTreeMap<IpNet, Local>;

/// The types of routes that lead to this host itself. Neither an anycast nor a broadcast
/// address can be the end of a TCP connection (`tcp_v6_conn_request`).
const KINDS: [RouteType; 3] = [RouteType::Local, RouteType::Broadcast, RouteType::Anycast];

/// The addresses of this host for packets that come in by any of these interfaces. Of an
/// interface that is gone, the addresses of the whole host.
///
/// # Errors
///
/// If the kernel does not tell.
pub fn now(interfaces: &[u32]) -> Result<Addresses> {
    netlink::block_on_strict(async |handle| list(&handle, interfaces).await)
}

/// The routing table of the VRF that an interface is in, if it is in one.
///
/// # Errors
///
/// If the kernel does not tell.
pub fn vrf_of(interface: u32) -> Result<Option<u32>> {
    let vrfs = netlink::block_on(async |handle| Vrfs::list(&handle).await)?;
    Ok(vrfs.table_over(interface))
}

async fn list(handle: &Handle, interfaces: &[u32]) -> Result<Addresses> {
    let vrfs = Vrfs::list(handle).await?;
    let mut addresses = Addresses::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        for kind in KINDS {
            for route in routes(handle, family, kind).await? {
                let table = table(&route);
                let uses = interfaces.iter().filter_map(|one| vrfs.use_of(table, *one));
                // `Always` is the least.
                let Some(use_of) = uses.min() else {
                    continue;
                };
                let Some((network, kind)) = local(&route, use_of) else {
                    continue;
                };
                // Tables that hold for every packet go first.
                if use_of == Use::Always {
                    addresses.insert(network, kind);
                } else {
                    addresses.entry(network).or_insert(kind);
                }
            }
        }
    }
    Ok(addresses)
}

/// The routes of one type in all tables; the kernel chooses them.
async fn routes(
    handle: &Handle,
    family: AddressFamily,
    kind: RouteType,
) -> Result<Vec<RouteMessage>> {
    let mut request = RouteMessage::default();
    request.header.address_family = family;
    request.header.kind = kind;
    match handle.route().get(request).execute().try_collect().await {
        // No table has such a route.
        Err(Error::NetlinkError(error)) if error.raw_code() == -(Errno::ENOENT as i32) => {
            Ok(Vec::new())
        }
        routes => routes.with_context(|| format!("cannot list the routes of type {kind:?}")),
    }
}

/// The table of a route. Large numbers are in an attribute, as the header has 8 bits.
fn table(route: &RouteMessage) -> u32 {
    let mut attributes = route.attributes.iter();
    let named = attributes.find_map(|attribute| match attribute {
        RouteAttribute::Table(table) => Some(*table),
        _ => None,
    });
    named.unwrap_or(route.header.table.into())
}

/// The destination of a route to this host; `None` if the route leads elsewhere.
fn local(route: &RouteMessage, use_of: Use) -> Option<(IpNet, Local)> {
    let kind = match (route.header.kind, use_of) {
        (RouteType::Local, Use::Always) => Local::Host,
        (RouteType::Local, Use::ByRule) => Local::ByRule,
        (RouteType::Broadcast | RouteType::Anycast, Use::Always) => Local::Many,
        _ => return None,
    };
    let destination = route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(address)) => Some((*address).into()),
            RouteAttribute::Destination(RouteAddress::Inet6(address)) => Some((*address).into()),
            _ => None,
        });
    // A route without a destination leads everywhere.
    let destination: IpAddr = match (destination, route.header.address_family) {
        (Some(address), _) => address,
        (None, AddressFamily::Inet6) => Ipv6Addr::UNSPECIFIED.into(),
        (None, _) => Ipv4Addr::UNSPECIFIED.into(),
    };
    let network = IpNet::new(destination, route.header.destination_prefix_length).ok()?;
    Some((network, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(kind: RouteType, destination: Option<IpAddr>, prefix_len: u8) -> RouteMessage {
        let mut route = RouteMessage::default();
        route.header.kind = kind;
        route.header.destination_prefix_length = prefix_len;
        route.attributes.extend(destination.map(|address| {
            RouteAttribute::Destination(match address {
                IpAddr::V4(address) => RouteAddress::Inet(address),
                IpAddr::V6(address) => RouteAddress::Inet6(address),
            })
        }));
        route
    }

    #[test]
    fn what_the_kernel_takes_for_itself_is_told_from_what_leads_elsewhere() {
        let one = Some(IpAddr::from([192, 0, 2, 1]));
        for (route, expected) in [
            (
                route(RouteType::Local, one, 32),
                Some(("192.0.2.1/32", Local::Host)),
            ),
            (
                route(RouteType::Local, None, 0),
                Some(("0.0.0.0/0", Local::Host)),
            ),
            (
                route(RouteType::Broadcast, one, 32),
                Some(("192.0.2.1/32", Local::Many)),
            ),
            (
                route(RouteType::Anycast, one, 32),
                Some(("192.0.2.1/32", Local::Many)),
            ),
            (route(RouteType::Unicast, one, 32), None),
            (route(RouteType::Multicast, one, 32), None),
        ] {
            let expected = expected.map(|(network, kind)| (network.parse().unwrap(), kind));
            assert_eq!(local(&route, Use::Always), expected, "{route:?}");
            // Packets that no rule chooses go elsewhere: no source is wrong, and no
            // destination is known to be.
            let chosen = expected.filter(|(_, kind)| *kind == Local::Host);
            let chosen = chosen.map(|(network, _)| (network, Local::ByRule));
            assert_eq!(local(&route, Use::ByRule), chosen, "{route:?}");
        }
    }

    #[test]
    fn a_large_number_of_a_table_is_read() {
        let mut route = route(RouteType::Local, None, 0);
        route.header.table = 252;
        assert_eq!(table(&route), 252);
        route.attributes.push(RouteAttribute::Table(1000));
        assert_eq!(table(&route), 1000);
    }
}

//! Where routes lead: the default ones, and those to peers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context as _, Result};
use futures_util::TryStreamExt as _;
use ipnet::IpNet;
use rtnetlink::packet_route::route::{RouteAttribute, RouteHeader, RouteMessage};
use rtnetlink::{Error, RouteMessageBuilder};

use super::Finding;
use crate::datapath::Pinned;
use crate::interface::name_of;

use crate::netlink;

/// The indices of the interfaces that the default routes of both families lead to.
pub fn default_interfaces() -> Result<Vec<u32>> {
    let routes = netlink::block_on(async |handle| {
        let mut routes = Vec::new();
        for request in [
            RouteMessageBuilder::<Ipv4Addr>::new().build(),
            RouteMessageBuilder::<Ipv6Addr>::new().build(),
        ] {
            let family: Vec<RouteMessage> = handle
                .route()
                .get(request)
                .execute()
                .try_collect()
                .await
                .context("cannot list the routes")?;
            routes.extend(family);
        }
        Ok(routes)
    })?;
    Ok(routes.iter().flat_map(interfaces_of).collect())
}

/// The interfaces of a route, if it is a default route.
fn interfaces_of(route: &RouteMessage) -> Vec<u32> {
    let header = &route.header;
    if header.destination_prefix_length != 0 || header.table != RouteHeader::RT_TABLE_MAIN {
        return Vec::new();
    }
    let interfaces = route
        .attributes
        .iter()
        .flat_map(|attribute| match attribute {
            RouteAttribute::Oif(index) => vec![*index],
            RouteAttribute::MultiPath(hops) => hops.iter().map(|hop| hop.interface_index).collect(),
            _ => Vec::new(),
        });
    interfaces.collect()
}

/// The firewall mark by which wg-quick leads WireGuard's own packets past the tunnel.
const WG_QUICK_MARK: u32 = 51820;
/// How many peers to ask about.
const AT_MOST: usize = 64;

/// Whether packets to the peers of an attachment leave by its interface.
pub fn check_peers(pinned: &Pinned) -> Result<Vec<Finding>> {
    let peers = pinned.maps.peers()?.into_iter();
    let hosts = peers.filter(|peer| peer.prefix_len() == peer.max_prefix_len());
    let hosts: Vec<IpAddr> = hosts.map(|peer: IpNet| peer.addr()).take(AT_MOST).collect();
    let mut findings = Vec::new();
    for host in hosts {
        let mut ways = Vec::new();
        for mark in [0, WG_QUICK_MARK] {
            ways.extend(way_to(host, mark)?);
        }
        findings.push(judge(&pinned.name(), pinned.ifindex, host, &ways));
    }
    Ok(findings)
}

/// The index of the interface by which packets to an address leave that have a firewall
/// mark; `None` if there is no way.
fn way_to(address: IpAddr, mark: u32) -> Result<Option<u32>> {
    let mut question = match address {
        IpAddr::V4(address) => RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(address, 32)
            .build(),
        IpAddr::V6(address) => RouteMessageBuilder::<Ipv6Addr>::new()
            .destination_prefix(address, 128)
            .build(),
    };
    question.attributes.push(RouteAttribute::Mark(mark));
    let answer = netlink::block_on(async |handle| {
        let mut answers = Box::pin(handle.route().get(question).execute());
        match answers.try_next().await {
            // Unreachable, prohibited or none: the kernel says so by an error.
            Err(Error::NetlinkError(_)) => Ok(None),
            answer => answer.context("cannot ask for a route"),
        }
    })?;
    let attributes = answer.iter().flat_map(|route| &route.attributes);
    let mut out = attributes.filter_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => Some(*index),
        _ => None,
    });
    Ok(out.next())
}

fn judge(interface: &str, index: u32, peer: IpAddr, ways: &[u32]) -> Finding {
    const CHECK: &str = "route";
    if ways.contains(&index) {
        return Finding::ok(CHECK, format!("{interface}: leads to {peer}"));
    }
    let what = match ways.first() {
        None => format!("{interface}: there is no route to {peer}"),
        Some(other) => {
            let other = name_of(*other).unwrap_or_else(|| format!("interface {other}"));
            format!(
                "{interface}: what goes to {peer} leaves by {other}, where this attachment \
                 does not see it; attach to {other}, unless other rules lead it here"
            )
        }
    };
    Finding::warn(CHECK, what)
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn one_way_through_the_interface_is_enough() {
        let peer = IpAddr::from([192, 0, 2, 1]);
        let judged = |ways: &[u32]| judge("eth0", 7, peer, ways);
        assert_eq!(judged(&[7]).level, Level::Ok);
        // All but WireGuard's own packets go through its tunnel.
        assert_eq!(judged(&[9, 7]).level, Level::Ok);
        assert_eq!(judged(&[9, 9]).level, Level::Warn);
        assert!(judged(&[]).what.contains("no route to 192.0.2.1"));
    }

    #[test]
    fn only_default_routes_of_the_main_table_count() {
        let mut route = RouteMessage::default();
        route.attributes = vec![RouteAttribute::Oif(7)];
        route.header.table = RouteHeader::RT_TABLE_MAIN;
        assert_eq!(interfaces_of(&route), [7]);
        route.header.destination_prefix_length = 24;
        assert!(interfaces_of(&route).is_empty());
        route.header.destination_prefix_length = 0;
        route.header.table = 255;
        assert!(interfaces_of(&route).is_empty());
    }
}

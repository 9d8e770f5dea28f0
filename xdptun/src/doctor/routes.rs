//! Where routes lead: the default ones, and those to peers.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context as _, Result};
use futures_util::TryStreamExt as _;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::packet_route::route::{RouteAttribute, RouteHeader, RouteMessage, RouteType};
use rtnetlink::packet_route::rule::{RuleAttribute, RuleMessage};
use rtnetlink::{Error, Handle, IpVersion, RouteMessageBuilder};

use super::{Finding, some_of};
use crate::datapath::Pinned;

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

/// Whether packets to the peers of an attachment leave by its interface.
pub fn check_peers(pinned: &Pinned) -> Result<Vec<Finding>> {
    let peers = pinned.maps.peers()?.into_iter();
    let hosts = peers.filter(|peer| peer.prefix_len() == peer.max_prefix_len());
    // Every interface leads to a link-local address.
    let hosts = hosts.map(|peer| peer.addr()).filter(|host| match host {
        IpAddr::V4(host) => !host.is_link_local(),
        IpAddr::V6(host) => !host.is_unicast_link_local(),
    });
    let hosts: Vec<IpAddr> = hosts.collect();
    let ways = netlink::block_on(async |handle| ways_to(&handle, &hosts, pinned.ifindex).await)?;
    let is_attached = |index: u32| Pinned::exists(index).unwrap_or_default();
    Ok(judge(&pinned.name(), pinned.ifindex, &ways, is_attached))
}

/// A peer, and the interfaces that packets to it leave by, whatever it is that rules
/// choose the way by.
type Ways = (IpAddr, BTreeSet<u32>);

/// The ways to hosts, without those that are this host.
async fn ways_to(handle: &Handle, hosts: &[IpAddr], interface: u32) -> Result<Vec<Ways>> {
    let mut marks = BTreeSet::from([0]);
    for version in [IpVersion::V4, IpVersion::V6] {
        let rules = handle.rule().get(version).execute();
        let rules: Vec<RuleMessage> = rules.try_collect().await.context("cannot list the rules")?;
        let attributes = rules.iter().flat_map(|rule| &rule.attributes);
        marks.extend(attributes.filter_map(|attribute| match attribute {
            RuleAttribute::FwMark(mark) => Some(*mark),
            _ => None,
        }));
    }
    let addresses = handle.address().get().set_link_index_filter(interface);
    let addresses: Vec<AddressMessage> = addresses
        .execute()
        .try_collect()
        .await
        .context("cannot list the addresses")?;
    let attributes = addresses.iter().flat_map(|address| &address.attributes);
    let sources = attributes.filter_map(|attribute| match attribute {
        AddressAttribute::Address(address) => Some(Some(*address)),
        _ => None,
    });
    let sources: BTreeSet<Option<IpAddr>> = sources.chain([None]).collect();
    let mut ways = Vec::new();
    'hosts: for host in hosts {
        let mut found = BTreeSet::new();
        for (mark, source) in pairs(&marks, &sources) {
            let route = route_to(handle, *host, source, mark).await?;
            match route.as_ref().map(|route| route.header.kind) {
                Some(RouteType::Local) => continue 'hosts,
                _ => found.extend(route.and_then(|route| way_out(&route))),
            }
            if found.contains(&interface) {
                break;
            }
        }
        ways.push((*host, found));
    }
    Ok(ways)
}

/// All pairs of a mark and a source of packets.
fn pairs<'a>(
    marks: &'a BTreeSet<u32>,
    sources: &'a BTreeSet<Option<IpAddr>>,
) -> impl Iterator<Item = (u32, Option<IpAddr>)> + 'a {
    marks
        .iter()
        .flat_map(|mark| sources.iter().map(|source| (*mark, *source)))
}

/// The route of packets to an address, from one of this host if that is given, with a
/// firewall mark; `None` if there is none.
async fn route_to(
    handle: &Handle,
    to: IpAddr,
    from: Option<IpAddr>,
    mark: u32,
) -> Result<Option<RouteMessage>> {
    let mut question = match (to, from) {
        (IpAddr::V4(to), None) => RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(to, 32)
            .build(),
        (IpAddr::V4(to), Some(IpAddr::V4(from))) => RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(to, 32)
            .source_prefix(from, 32)
            .build(),
        (IpAddr::V6(to), None) => RouteMessageBuilder::<Ipv6Addr>::new()
            .destination_prefix(to, 128)
            .build(),
        (IpAddr::V6(to), Some(IpAddr::V6(from))) => RouteMessageBuilder::<Ipv6Addr>::new()
            .destination_prefix(to, 128)
            .source_prefix(from, 128)
            .build(),
        _ => return Ok(None),
    };
    question.attributes.push(RouteAttribute::Mark(mark));
    let mut answers = Box::pin(handle.route().get(question).execute());
    match answers.try_next().await {
        // Unreachable, prohibited or none: the kernel says so by an error.
        Err(Error::NetlinkError(_)) => Ok(None),
        answer => answer.context("cannot ask for a route"),
    }
}

/// The interface that a route leads to.
fn way_out(route: &RouteMessage) -> Option<u32> {
    let mut out = route
        .attributes
        .iter()
        .filter_map(|attribute| match attribute {
            RouteAttribute::Oif(index) => Some(*index),
            _ => None,
        });
    out.next()
}

fn judge(
    interface: &str,
    index: u32,
    ways: &[Ways],
    is_attached: impl Fn(u32) -> bool,
) -> Vec<Finding> {
    const CHECK: &str = "route";
    if ways.is_empty() {
        return Vec::new();
    }
    let leads = ways.iter().filter(|(_, ways)| ways.contains(&index));
    let leads = leads.count();
    let elsewhere: Vec<&IpAddr> = ways
        .iter()
        .filter(|(_, ways)| !ways.is_empty() && !ways.contains(&index))
        .filter(|(_, ways)| !ways.iter().any(|way| is_attached(*way)))
        .map(|(host, _)| host)
        .collect();
    let nowhere = ways.iter().all(|(_, ways)| ways.is_empty());
    vec![if let Some(first) = elsewhere.first() {
        let what = format!(
            "{interface}: what goes to {} leaves by another interface, where xdptun is not \
             attached; `ip route get {first}` tells which",
            some_of(&elsewhere)
        );
        Finding::warn(CHECK, what)
    } else if nowhere {
        let hosts: Vec<&IpAddr> = ways.iter().map(|(host, _)| host).collect();
        let what = format!("{interface}: there is no route to {}", some_of(&hosts));
        Finding::warn(CHECK, what)
    } else {
        let what = format!("{interface}: leads to {leads} of {} peers", ways.len());
        Finding::ok(CHECK, what)
    }]
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    const PEER: [IpAddr; 2] = [
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)),
    ];

    /// What is said of the peers that these interfaces lead to, at number 7, while one is
    /// attached to number 8 as well.
    fn said(ways: [&[u32]; 2]) -> (Level, String) {
        let ways = ways.map(|ways| ways.iter().copied().collect());
        let ways: Vec<Ways> = PEER.into_iter().zip(ways).collect();
        let mut findings = judge("eth0", 7, &ways, |index| index == 8);
        let finding = findings.remove(0);
        (finding.level, finding.what)
    }

    #[test]
    fn a_way_that_no_attachment_is_on_is_a_warning() {
        assert_eq!(
            said([&[7], &[7, 9]]),
            (Level::Ok, "eth0: leads to 2 of 2 peers".into())
        );
        let (level, what) = said([&[7], &[9]]);
        assert_eq!(level, Level::Warn);
        assert!(what.contains("what goes to 192.0.2.2 leaves"), "{what}");
        assert_eq!(
            said([&[8], &[7]]),
            (Level::Ok, "eth0: leads to 1 of 2 peers".into())
        );
    }

    /// A name has an IPv6 address also where there is no IPv6.
    #[test]
    fn that_there_is_no_way_counts_if_it_holds_for_all() {
        assert_eq!(said([&[7], &[]]).0, Level::Ok);
        let (level, what) = said([&[], &[]]);
        assert_eq!(level, Level::Warn);
        assert!(what.ends_with("no route to 192.0.2.1, 192.0.2.2"), "{what}");
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

//! Routes: the default ones, and those to peers.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use futures_util::TryStreamExt as _;
use ipnet::IpNet;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteType,
};
use rtnetlink::packet_route::rule::{RuleAttribute, RuleMessage};
use rtnetlink::{Handle, IpVersion, RouteMessageBuilder};

use super::Finding;
use crate::error::{Context as _, Error, Result};
use crate::host::interface::name_of;
use crate::host::netlink;
use crate::host::words::some_of;
use crate::tunnel::Pinned;

/// The most peers with flows whose routes are asked for.
const MOST_ASKED: usize = 64;

/// The indices of the interfaces that the default routes of both families lead to.
pub fn default_interfaces() -> Result<Vec<u32>> {
    Ok(all()?.iter().flat_map(interfaces_of_default).collect())
}

/// The indices of the interfaces that default routes lead to which a router has advertised.
pub fn advertised_interfaces() -> Result<Vec<u32>> {
    let routes = all()?;
    let advertised = routes
        .iter()
        .filter(|route| route.header.protocol == RouteProtocol::Ra);
    Ok(advertised.flat_map(interfaces_of_default).collect())
}

/// The routes of both families.
fn all() -> Result<Vec<RouteMessage>> {
    netlink::block_on(async |handle| {
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
    })
}

/// The interfaces of a route, if it is a default route.
fn interfaces_of_default(route: &RouteMessage) -> Vec<u32> {
    let header = &route.header;
    if header.destination_prefix_length != 0 || header.table != RouteHeader::RT_TABLE_MAIN {
        return Vec::new();
    }
    interfaces_of(route)
}

/// The interfaces that a route leads to.
fn interfaces_of(route: &RouteMessage) -> Vec<u32> {
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
    let hosts = named_peers(pinned)?;
    let is_attached =
        |index: u32| index == pinned.ifindex || Pinned::exists(index).unwrap_or_default();
    let ways = ways_to(pinned.ifindex, hosts, is_attached)?;
    Ok(judge(&pinned.name(), pinned.ifindex, &ways))
}

/// The IPv4 peers of an attachment to which no packet leaves by its interface, of those that it names
/// and those with flows; `None` if there are none at all.
pub fn peers_elsewhere(pinned: &Pinned) -> Result<Option<Vec<IpAddr>>> {
    let flows = pinned.own_flows(&pinned.group.maps.flows()?);
    let mut hosts: BTreeSet<IpAddr> = named_peers(pinned)?.into_iter().collect();
    hosts.extend(flows.iter().map(|(key, _)| key.remote().ip()));
    let hosts = hosts.into_iter().filter(IpAddr::is_ipv4);
    let hosts: Vec<IpAddr> = hosts.take(MOST_ASKED).collect();
    if hosts.is_empty() {
        return Ok(None);
    }
    let ways = ways_to(pinned.ifindex, hosts, |index| index == pinned.ifindex)?;
    let elsewhere = ways
        .iter()
        .filter(|way| way.by.is_some() && !way.is_attached);
    Ok(Some(elsewhere.map(|way| way.to).collect()))
}

/// The addresses of peers that an attachment names.
fn named_peers(pinned: &Pinned) -> Result<Vec<IpAddr>> {
    let peers = pinned.group.maps.peers()?.into_iter();
    let hosts = peers.filter(|peer| peer.prefix_len() == peer.max_prefix_len());
    // Every interface leads to a link-local address.
    let hosts = hosts.map(|peer| peer.addr()).filter(|host| match host {
        IpAddr::V4(host) => !host.is_link_local(),
        IpAddr::V6(host) => !host.is_unicast_link_local(),
    });
    Ok(hosts.collect())
}

/// The ways to hosts; those of `interface` have the addresses that rules may ask for.
fn ways_to(
    interface: u32,
    hosts: Vec<IpAddr>,
    is_attached: impl Fn(u32) -> bool + Sync,
) -> Result<Vec<Way>> {
    netlink::block_on(async |handle| {
        let choices = Choices::of(&handle, interface).await?;
        let mut ways = Vec::new();
        for host in hosts {
            ways.extend(way_to(&handle, host, &choices, &is_attached).await?);
        }
        Ok::<_, Error>(ways)
    })
}

/// The properties of a packet by which rules of this host choose a route.
struct Choices {
    marks: BTreeSet<u32>,
    /// `None` stands for a packet that has no source yet.
    sources: BTreeSet<Option<IpAddr>>,
}

impl Choices {
    async fn of(handle: &Handle, interface: u32) -> Result<Self> {
        let mut rules: Vec<RuleMessage> = Vec::new();
        for version in [IpVersion::V4, IpVersion::V6] {
            let listed = handle.rule().get(version).execute().try_collect();
            let listed: Vec<RuleMessage> = listed.await.context("cannot list the rules")?;
            rules.extend(listed);
        }
        let attributes = || rules.iter().flat_map(|rule| &rule.attributes);
        let marks = attributes().filter_map(|attribute| match attribute {
            RuleAttribute::FwMark(mark) => Some(*mark),
            _ => None,
        });
        let mut sources = BTreeSet::from([None]);
        if attributes().any(|attribute| matches!(attribute, RuleAttribute::Source(_))) {
            let addresses = handle.address().get().set_link_index_filter(interface);
            let addresses: Vec<AddressMessage> = addresses
                .execute()
                .try_collect()
                .await
                .context("cannot list the addresses")?;
            sources.extend(addresses.iter().map(own_address));
        }
        Ok(Self {
            marks: marks.chain([0]).collect(),
            sources,
        })
    }

    fn all(&self) -> impl Iterator<Item = (u32, Option<IpAddr>)> {
        let pairs = self.marks.iter();
        pairs.flat_map(|mark| self.sources.iter().map(|source| (*mark, *source)))
    }
}

/// This host's end of an address. On a point-to-point link the message names the other end
/// too.
fn own_address(address: &AddressMessage) -> Option<IpAddr> {
    let attributes = address.attributes.iter();
    let (mut own, mut either) = (None, None);
    for attribute in attributes {
        match attribute {
            AddressAttribute::Local(address) => own = Some(*address),
            AddressAttribute::Address(address) => either = Some(*address),
            _ => {}
        }
    }
    own.or(either)
}

/// The way of packets to a peer.
struct Way {
    to: IpAddr,
    /// The interface by which they leave. If rules choose between several, the first with an
    /// attachment, else the first; `None` if there is no route.
    by: Option<u32>,
    is_attached: bool,
}

/// The way to a host; `None` if it is this one.
async fn way_to(
    handle: &Handle,
    to: IpAddr,
    choices: &Choices,
    is_attached: impl Fn(u32) -> bool,
) -> Result<Option<Way>> {
    let mut way = Way {
        to,
        by: None,
        is_attached: false,
    };
    for (mark, source) in choices.all() {
        let Some(route) = route_to(handle, to, source, mark).await? else {
            continue;
        };
        if route.header.kind == RouteType::Local {
            return Ok(None);
        }
        let by = interfaces_of(&route).first().copied();
        if by.is_some_and(&is_attached) {
            way.by = by;
            way.is_attached = true;
            break;
        }
        way.by = way.by.or(by);
    }
    Ok(Some(way))
}

/// The route of packets to an address, from an address of this host if that is given, with
/// a firewall mark; `None` if there is no route.
async fn route_to(
    handle: &Handle,
    to: IpAddr,
    from: Option<IpAddr>,
    mark: u32,
) -> Result<Option<RouteMessage>> {
    let whole = IpNet::from(to).prefix_len();
    let mut question = RouteMessageBuilder::<IpAddr>::new()
        .destination_prefix(to, whole)
        .map_err(Error::other)?;
    if let Some(from) = from {
        if from.is_ipv4() != to.is_ipv4() {
            return Ok(None);
        }
        question = question.source_prefix(from, whole).map_err(Error::other)?;
    }
    let mut question = question.build();
    question.attributes.push(RouteAttribute::Mark(mark));
    let mut answers = Box::pin(handle.route().get(question).execute());
    match answers.try_next().await {
        // For routes that are unreachable, prohibited or missing the kernel returns an error.
        Err(rtnetlink::Error::NetlinkError(_)) => Ok(None),
        answer => answer.context("cannot ask for a route"),
    }
}

fn judge(interface: &str, index: u32, ways: &[Way]) -> Vec<Finding> {
    const CHECK: &str = "route";
    let hosts = |chosen: fn(&&Way) -> bool| -> Vec<IpAddr> {
        ways.iter().filter(chosen).map(|way| way.to).collect()
    };
    let elsewhere = hosts(|way| way.by.is_some() && !way.is_attached);
    let away = ways.iter().filter(|way| !way.is_attached);
    let away: BTreeSet<u32> = away.filter_map(|way| way.by).collect();
    let name = |index| name_of(index).unwrap_or_else(|| format!("interface {index}"));
    let names: Vec<String> = away.into_iter().map(name).collect();
    let nowhere = hosts(|way| way.by.is_none());
    if ways.is_empty() {
        return Vec::new();
    }
    vec![if let Some(first) = elsewhere.first() {
        let what = format!(
            "{interface}: datagrams to {} leave by {}, where xdptun is not attached; a rule by port, \
             protocol or user may still lead them here; `ip route get {first}` shows the route",
            some_of(&elsewhere),
            some_of(&names)
        );
        Finding::warn(CHECK, what)
    } else if nowhere.len() == ways.len() {
        let what = format!("{interface}: there is no route to {}", some_of(&nowhere));
        Finding::warn(CHECK, what)
    } else {
        let leads = ways.iter().filter(|way| way.by == Some(index)).count();
        let what = format!("{interface}: leads to {leads} of {} peers", ways.len());
        Finding::ok(CHECK, what)
    }]
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    /// What is said of two peers that are reached by these interfaces, at number 7, while
    /// one is attached to number 8 as well.
    fn said(by: [Option<u32>; 2]) -> (Level, String) {
        let way = |(last, by): (u8, Option<u32>)| Way {
            to: IpAddr::from([192, 0, 2, last]),
            by,
            is_attached: matches!(by, Some(7 | 8)),
        };
        let ways: Vec<Way> = (1..).zip(by).map(way).collect();
        let mut findings = judge("eth0", 7, &ways);
        let finding = findings.remove(0);
        (finding.level, finding.what)
    }

    #[test]
    fn a_way_that_no_attachment_is_on_is_a_warning() {
        let leads = |count| (Level::Ok, format!("eth0: leads to {count} of 2 peers"));
        assert_eq!(said([Some(7), Some(7)]), leads(2));
        assert_eq!(said([Some(8), Some(7)]), leads(1));
        let (level, what) = said([Some(7), Some(900)]);
        assert_eq!(level, Level::Warn);
        let leaves = "datagrams to 192.0.2.2 leave by interface 900,";
        assert!(what.contains(leaves), "{what}");
    }

    /// A name has an IPv6 address also where there is no IPv6.
    #[test]
    fn that_there_is_no_way_counts_if_it_holds_for_all() {
        assert_eq!(said([Some(7), None]).0, Level::Ok);
        let (level, what) = said([None, None]);
        assert_eq!(level, Level::Warn);
        assert!(what.ends_with("no route to 192.0.2.1, 192.0.2.2"), "{what}");
    }

    #[test]
    fn of_a_point_to_point_link_ones_own_address_counts() {
        let [own, peer] = [1, 2].map(|last| IpAddr::from([192, 0, 2, last]));
        let mut message = AddressMessage::default();
        message.attributes = vec![AddressAttribute::Address(peer)];
        assert_eq!(own_address(&message), Some(peer));
        message.attributes.push(AddressAttribute::Local(own));
        assert_eq!(own_address(&message), Some(own));
    }

    #[test]
    fn only_default_routes_of_the_main_table_count() {
        let mut route = RouteMessage::default();
        route.attributes = vec![RouteAttribute::Oif(7)];
        route.header.table = RouteHeader::RT_TABLE_MAIN;
        assert_eq!(interfaces_of_default(&route), [7]);
        route.header.destination_prefix_length = 24;
        assert!(interfaces_of_default(&route).is_empty());
        route.header.destination_prefix_length = 0;
        route.header.table = 255;
        assert!(interfaces_of_default(&route).is_empty());
    }
}

//! The route of this host to an address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use futures_util::TryStreamExt as _;
use ipnet::IpNet;
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteType};
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

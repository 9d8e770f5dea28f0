//! Where the default routes lead.

use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::{Context as _, Result};
use futures_util::TryStreamExt as _;
use rtnetlink::RouteMessageBuilder;
use rtnetlink::packet_route::route::{RouteAttribute, RouteHeader, RouteMessage};

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

#[cfg(test)]
mod tests {
    use super::*;

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

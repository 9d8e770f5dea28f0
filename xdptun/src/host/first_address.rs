//! The address by which an interface is known outside.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use futures_util::TryStreamExt as _;
use nix::net::if_::if_nametoindex;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage, AddressScope};

use crate::error::{Context as _, Result};
use crate::host::netlink;

/// The first IPv4 address of each interface, by its name; left out where there is none. One that
/// counts beyond its link goes before one that does not.
///
/// # Errors
///
/// If the kernel does not tell.
pub fn first_addresses<'a>(
    names: impl IntoIterator<Item = &'a String>,
) -> Result<BTreeMap<String, Ipv4Addr>> {
    let names: Vec<&String> = names.into_iter().collect();
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let all: Vec<AddressMessage> = netlink::block_on(async |handle| {
        let all = handle.address().get().execute().try_collect();
        all.await.context("cannot list the addresses of interfaces")
    })?;
    let first = names.into_iter().filter_map(|name| {
        let index = if_nametoindex(name.as_str()).ok()?;
        Some((name.clone(), first_of(&all, index)?))
    });
    Ok(first.collect())
}

/// The first of the addresses that the interface with this index has.
fn first_of(all: &[AddressMessage], index: u32) -> Option<Ipv4Addr> {
    let own = || all.iter().filter(|one| one.header.index == index);
    let local = |message: &AddressMessage| {
        message.attributes.iter().find_map(|one| match one {
            AddressAttribute::Local(IpAddr::V4(address)) => Some(*address),
            _ => None,
        })
    };
    let mut wide = own().filter(|one| one.header.scope == AddressScope::Universe);
    wide.find_map(local).or_else(|| own().find_map(local))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_counts_everywhere() {
        let address = |index, scope, last| {
            let mut message = AddressMessage::default();
            message.header.index = index;
            message.header.scope = scope;
            let address = IpAddr::from([192, 0, 2, last]);
            message.attributes.push(AddressAttribute::Local(address));
            message
        };
        let all = [
            address(2, AddressScope::Link, 1),
            address(3, AddressScope::Universe, 2),
            address(2, AddressScope::Universe, 3),
            address(2, AddressScope::Universe, 4),
            address(4, AddressScope::Link, 5),
        ];
        let last = |index| first_of(&all, index).map(|address| address.octets()[3]);
        assert_eq!([1, 2, 3, 4].map(last), [None, Some(3), Some(2), Some(5)]);
    }
}

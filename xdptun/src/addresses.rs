//! Which addresses this host has, and that they change.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context as _, Result};
use futures_util::TryStreamExt as _;
use ipnet::IpNet;
use nix::errno::Errno;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::link::{InfoData, InfoVrf, LinkAttribute, LinkInfo, LinkMessage};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use rtnetlink::sys::protocols::NETLINK_ROUTE;
use rtnetlink::sys::{Socket, SocketAddr};
use rtnetlink::{Error, Handle, MulticastGroup};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::JoinHandle;
use xdptun_common::config::Local;

use crate::netlink;

/// What the kernel takes for itself, by network; one within another goes first.
pub type Addresses = BTreeMap<IpNet, Local>;

/// `RT_TABLE_LOCAL` of `linux/rtnetlink.h`: where the kernel keeps them.
const LOCAL_TABLE: u32 = 255;

/// The addresses of this host, for packets that come in by an interface.
///
/// # Errors
///
/// If the kernel does not tell.
pub fn now(interface: u32) -> Result<Addresses> {
    netlink::block_on_strict(async |handle| list(&handle, interface).await)
}

async fn list(handle: &Handle, interface: u32) -> Result<Addresses> {
    let mut addresses = Addresses::new();
    // A VRF has a table of its own, of which the addresses of its interfaces are part.
    let tables = [Some(LOCAL_TABLE), vrf_table(handle, interface).await?];
    for table in tables.into_iter().flatten() {
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            for route in routes(handle, family, table).await? {
                addresses.extend(local(&route));
            }
        }
    }
    Ok(addresses)
}

/// The routes of one table. There is none if it has none.
async fn routes(handle: &Handle, family: AddressFamily, table: u32) -> Result<Vec<RouteMessage>> {
    let mut request = RouteMessage::default();
    request.header.address_family = family;
    request.attributes.push(RouteAttribute::Table(table));
    match handle.route().get(request).execute().try_collect().await {
        Err(Error::NetlinkError(error)) if error.raw_code() == -(Errno::ENOENT as i32) => {
            Ok(Vec::new())
        }
        routes => routes.with_context(|| format!("cannot list the routes of table {table}")),
    }
}

/// What of a route's destination is this host's; `None` if it leads elsewhere.
fn local(route: &RouteMessage) -> Option<(IpNet, Local)> {
    let kind = match route.header.kind {
        RouteType::Local => Local::Host,
        // An anycast address is no end of a TCP connection either (`tcp_v6_conn_request`).
        RouteType::Broadcast | RouteType::Anycast => Local::Many,
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
    // Everything, if none is named.
    let destination: IpAddr = match (destination, route.header.address_family) {
        (Some(address), _) => address,
        (None, AddressFamily::Inet6) => Ipv6Addr::UNSPECIFIED.into(),
        (None, _) => Ipv4Addr::UNSPECIFIED.into(),
    };
    let network = IpNet::new(destination, route.header.destination_prefix_length).ok()?;
    Some((network, kind))
}

/// The table of the VRF that an interface is part of, if it is part of one.
async fn vrf_table(handle: &Handle, interface: u32) -> Result<Option<u32>> {
    let link = link(handle, interface).await?;
    let controller = link
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::Controller(index) => Some(*index),
            _ => None,
        });
    let Some(controller) = controller else {
        return Ok(None);
    };
    Ok(table_of_vrf(&self::link(handle, controller).await?))
}

/// The routing table of a VRF; `None` if the device is something else.
fn table_of_vrf(device: &LinkMessage) -> Option<u32> {
    let infos = device
        .attributes
        .iter()
        .filter_map(|attribute| match attribute {
            LinkAttribute::LinkInfo(infos) => Some(infos),
            _ => None,
        });
    infos.flatten().find_map(|info| match info {
        LinkInfo::Data(InfoData::Vrf(data)) => data.iter().find_map(|data| match data {
            InfoVrf::TableId(table) => Some(*table),
            _ => None,
        }),
        _ => None,
    })
}

async fn link(handle: &Handle, index: u32) -> Result<LinkMessage> {
    let mut links = handle.link().get().match_index(index).execute();
    let link = links.try_next().await;
    let link = link.with_context(|| format!("cannot read interface {index}"))?;
    link.with_context(|| format!("there is no interface {index}"))
}

/// Looks after the addresses of this host while it runs.
pub struct AddressWatch {
    interface: u32,
    changes: AsyncFd<Socket>,
    handle: Handle,
    connection: JoinHandle<()>,
}

impl AddressWatch {
    /// Whatever changes from now on is told. Within a runtime.
    ///
    /// # Errors
    ///
    /// If there is no netlink.
    pub fn begin(interface: u32) -> Result<Self> {
        let changes = subscribe().context("cannot watch the addresses of this host")?;
        // SAFETY: a socket owns its descriptor, keeps it open as long as it lives, and
        // always names the same one.
        let changes = unsafe { AsyncFd::register_with_interest(changes, Interest::READABLE) };
        let changes = changes.map_err(io::Error::from)?;
        let (connection, handle, _) = rtnetlink::new_connection_with_strict_check()
            .context("cannot open a netlink socket")?;
        Ok(Self {
            interface,
            changes,
            handle,
            connection: tokio::spawn(connection),
        })
    }

    /// The addresses.
    ///
    /// # Errors
    ///
    /// If the kernel does not tell, or the interface is gone.
    pub async fn list(&self) -> Result<Addresses> {
        list(&self.handle, self.interface).await
    }

    /// Waits for a change. The kernel may tell of it a moment before it is made.
    pub async fn changed(&mut self) {
        loop {
            let Ok(mut ready) = self.changes.readable().await else {
                // The runtime ends.
                return std::future::pending().await;
            };
            // An error may hide a change.
            if ready.try_io(|socket| drain(socket.get_ref())).is_ok() {
                return;
            }
        }
    }
}

impl Drop for AddressWatch {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// A socket that hears of routes, and of interfaces: when one is deleted, the kernel takes
/// its IPv4 routes away and says nothing of them.
fn subscribe() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.set_non_blocking(true)?;
    socket.bind(&SocketAddr::new(0, 0))?;
    for group in [
        MulticastGroup::Link,
        MulticastGroup::Ipv4Route,
        MulticastGroup::Ipv6Route,
    ] {
        socket.add_membership(group as u32)?;
    }
    Ok(socket)
}

/// Reads all that has been told; an error, "would block", if no address is concerned.
fn drain(socket: &Socket) -> io::Result<()> {
    let mut changed = false;
    loop {
        // The rest of a message is dropped.
        let mut start = [0; START];
        match socket.recv(&mut &mut start[..], 0) {
            Ok(len) => changed |= concerns_addresses(start.get(..len).unwrap_or(&start)),
            // More was told than there was room for.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => changed = true,
            Err(error) if changed && error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// How much of a message is read: `struct nlmsghdr` and `struct rtmsg`.
const START: usize = 16 + 12;

/// Whether a message tells of an interface, or of a route to this host itself. A router
/// hears of many others.
fn concerns_addresses(message: &[u8]) -> bool {
    let Some(kind) = message.get(4..6) else {
        return false;
    };
    match u16::from_ne_bytes([kind[0], kind[1]]) {
        libc::RTM_NEWROUTE | libc::RTM_DELROUTE => {
            // `rtm_type`.
            let own = [RouteType::Local, RouteType::Broadcast, RouteType::Anycast];
            let own = own.map(u8::from);
            message.get(16 + 7).is_some_and(|kind| own.contains(kind))
        }
        _ => true,
    }
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
            assert_eq!(local(&route), expected, "{route:?}");
        }
    }

    #[test]
    fn a_change_of_a_route_elsewhere_is_none_of_an_address() {
        let message = |kind: u16, route: RouteType| {
            let mut message = [0; START];
            message[4..6].copy_from_slice(&kind.to_ne_bytes());
            message[23] = route.into();
            message
        };
        for (kind, route, expected) in [
            (libc::RTM_NEWROUTE, RouteType::Local, true),
            (libc::RTM_DELROUTE, RouteType::Broadcast, true),
            (libc::RTM_NEWROUTE, RouteType::Unicast, false),
            (libc::RTM_DELLINK, RouteType::Unspec, true),
        ] {
            let message = message(kind, route);
            assert_eq!(concerns_addresses(&message), expected, "{kind} {route:?}");
        }
        assert!(!concerns_addresses(&[0; 5]));
    }
}

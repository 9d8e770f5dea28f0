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

/// The types of routes that lead to this host itself. An anycast address is no end of a
/// TCP connection, as little as a broadcast address (`tcp_v6_conn_request`).
const KINDS: [RouteType; 3] = [RouteType::Local, RouteType::Broadcast, RouteType::Anycast];

/// The addresses of this host, for packets that come in by an interface. If that is gone,
/// those of the host at large.
///
/// # Errors
///
/// If the kernel does not tell.
pub fn now(interface: u32) -> Result<Addresses> {
    netlink::block_on_strict(async |handle| list(&handle, interface).await)
}

async fn list(handle: &Handle, interface: u32) -> Result<Addresses> {
    let vrfs = Vrfs::list(handle).await?;
    let mut addresses = Addresses::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        for kind in KINDS {
            for route in routes(handle, family, kind).await? {
                let Some(use_of) = vrfs.use_of(table(&route), interface) else {
                    continue;
                };
                let Some((network, kind)) = local(&route, use_of) else {
                    continue;
                };
                // What every packet is looked up in goes first.
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
        // No table has any.
        Err(Error::NetlinkError(error)) if error.raw_code() == -(Errno::ENOENT as i32) => {
            Ok(Vec::new())
        }
        routes => routes.with_context(|| format!("cannot list the routes of type {kind:?}")),
    }
}

/// The table of a route; its header has no room for large numbers.
fn table(route: &RouteMessage) -> u32 {
    let mut attributes = route.attributes.iter();
    let named = attributes.find_map(|attribute| match attribute {
        RouteAttribute::Table(table) => Some(*table),
        _ => None,
    });
    named.unwrap_or(route.header.table.into())
}

/// Which packets are looked up in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// All that come in by the interface.
    Always,
    /// Those that a rule chooses (`ip rule`), by a mark for instance, as for TPROXY.
    ByRule,
}

/// What of a route's destination is this host's; `None` if it leads elsewhere.
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
    // Everything, if none is named.
    let destination: IpAddr = match (destination, route.header.address_family) {
        (Some(address), _) => address,
        (None, AddressFamily::Inet6) => Ipv6Addr::UNSPECIFIED.into(),
        (None, _) => Ipv4Addr::UNSPECIFIED.into(),
    };
    let network = IpNet::new(destination, route.header.destination_prefix_length).ok()?;
    Some((network, kind))
}

/// The VRFs, each of which has a table of its own, and what belongs to them.
#[derive(Debug, Default)]
struct Vrfs {
    /// By device, the bridge, bond or VRF that it is part of.
    controllers: BTreeMap<u32, u32>,
    /// By device, the table of a VRF.
    tables: BTreeMap<u32, u32>,
}

impl Vrfs {
    async fn list(handle: &Handle) -> Result<Self> {
        let links: Vec<LinkMessage> = handle
            .link()
            .get()
            .execute()
            .try_collect()
            .await
            .context("cannot list the interfaces")?;
        let mut vrfs = Self::default();
        for link in links {
            let index = link.header.index;
            if let Some(table) = table_of_vrf(&link) {
                vrfs.tables.insert(index, table);
            }
            let controller = link
                .attributes
                .iter()
                .find_map(|attribute| match attribute {
                    LinkAttribute::Controller(index) => Some(*index),
                    _ => None,
                });
            vrfs.controllers
                .extend(controller.map(|controller| (index, controller)));
        }
        Ok(vrfs)
    }

    /// Which packets of an interface are looked up in a table; `None` if none are, as it is
    /// that of a VRF which the interface is no part of.
    fn use_of(&self, table: u32, interface: u32) -> Option<Use> {
        if table == LOCAL_TABLE || self.table_over(interface) == Some(table) {
            return Some(Use::Always);
        }
        let is_of_vrf = self.tables.values().any(|of_vrf| *of_vrf == table);
        (!is_of_vrf).then_some(Use::ByRule)
    }

    /// The table of the VRF above an interface, a bridge or bond in between.
    fn table_over(&self, interface: u32) -> Option<u32> {
        // The kernel stacks no more devices (`MAX_NEST_DEV`).
        const DEPTH: usize = 8;
        let above = |device: &u32| self.controllers.get(device).copied();
        std::iter::successors(Some(interface), above)
            .take(DEPTH)
            .find_map(|device| self.tables.get(&device).copied())
    }
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
    /// If the kernel does not tell.
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

/// Reads what has been told; an error, "would block", if that was all and no address is
/// concerned. Stops after some, so that a storm of routes keeps nothing else waiting.
fn drain(socket: &Socket) -> io::Result<()> {
    const AT_ONCE: usize = 1024;
    let mut changed = false;
    for _ in 0..AT_ONCE {
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
    Ok(())
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
            let own = KINDS.map(u8::from);
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
            assert_eq!(local(&route, Use::Always), expected, "{route:?}");
            // Packets that no rule chooses go elsewhere: no source is wrong, and no
            // destination is known to be.
            let chosen = expected.filter(|(_, kind)| *kind == Local::Host);
            let chosen = chosen.map(|(network, _)| (network, Local::ByRule));
            assert_eq!(local(&route, Use::ByRule), chosen, "{route:?}");
        }
    }

    #[test]
    fn a_table_is_asked_for_what_belongs_to_it() {
        // 2 in bond 3 in VRF 4, 5 in bridge 6, 7 alone, 8 in VRF 9.
        let vrfs = Vrfs {
            controllers: [(2, 3), (3, 4), (5, 6), (8, 9)].into(),
            tables: [(4, 10), (9, 20)].into(),
        };
        for (interface, uses) in [
            (2, [Some(Use::Always), None]),
            (3, [Some(Use::Always), None]),
            (5, [None, None]),
            (7, [None, None]),
            (8, [None, Some(Use::Always)]),
        ] {
            assert_eq!([10, 20].map(|table| vrfs.use_of(table, interface)), uses);
            assert_eq!(vrfs.use_of(LOCAL_TABLE, interface), Some(Use::Always));
            assert_eq!(vrfs.use_of(100, interface), Some(Use::ByRule));
        }
    }

    #[test]
    fn a_loop_of_controllers_ends() {
        // Read while they changed.
        let vrfs = Vrfs {
            controllers: [(1, 2), (2, 1)].into(),
            tables: [(4, 10)].into(),
        };
        assert_eq!(vrfs.table_over(1), None);
    }

    #[test]
    fn a_large_number_of_a_table_is_read() {
        let mut route = route(RouteType::Local, None, 0);
        route.header.table = 252;
        assert_eq!(table(&route), 252);
        route.attributes.push(RouteAttribute::Table(1000));
        assert_eq!(table(&route), 1000);
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

//! That addresses change: what the kernel tells of routes and interfaces.

use std::io;

use anyhow::{Context as _, Result};
use rtnetlink::sys::protocols::NETLINK_ROUTE;
use rtnetlink::sys::{Socket, SocketAddr};
use rtnetlink::{Handle, MulticastGroup};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::JoinHandle;

use super::{Addresses, KINDS, list};

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
    use rtnetlink::packet_route::route::RouteType;

    use super::*;

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

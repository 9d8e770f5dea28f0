//! Changes of addresses, from the kernel's notifications of routes and interfaces.

use std::io;

use rtnetlink::sys::protocols::NETLINK_ROUTE;
use rtnetlink::sys::{Socket, SocketAddr};
use rtnetlink::{Handle, MulticastGroup};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::JoinHandle;

use super::{Addresses, KINDS, list};
use crate::error::{Context as _, Result};

/// Watches the addresses of this host.
pub struct AddressWatch {
    interfaces: Vec<u32>,
    changes: AsyncFd<Socket>,
    handle: Handle,
    connection: JoinHandle<()>,
}

impl AddressWatch {
    /// Watches for changes from now on. Needs a runtime.
    ///
    /// # Errors
    ///
    /// If there is no netlink.
    pub fn begin(interfaces: Vec<u32>) -> Result<Self> {
        let changes = subscribe().context("cannot watch the addresses of this host")?;
        // SAFETY: a socket owns its descriptor, keeps it open as long as it lives, and
        // always names the same one.
        let changes = unsafe { AsyncFd::register_with_interest(changes, Interest::READABLE) };
        let changes = changes.map_err(io::Error::from)?;
        let (connection, handle, _) = rtnetlink::new_connection_with_strict_check()
            .context("cannot open a netlink socket")?;
        Ok(Self {
            interfaces,
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
        list(&self.handle, &self.interfaces).await
    }

    /// Waits for a change. The kernel may notify a moment before it makes the change.
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

/// A socket for notifications of routes, and of interfaces: when an interface is deleted,
/// the kernel removes its IPv4 routes without a notification.
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

/// Reads notifications; the error "would block" if there are no more and none concerns an
/// address. Stops after some, so that a storm of routes delays nothing else.
fn drain(socket: &Socket) -> io::Result<()> {
    const AT_ONCE: usize = 1024;
    let mut changed = false;
    for _ in 0..AT_ONCE {
        // The rest of a message is dropped.
        let mut start = [0; START];
        match socket.recv(&mut &mut start[..], 0) {
            Ok(len) => changed |= concerns_addresses(start.get(..len).unwrap_or(&start)),
            // The kernel dropped notifications.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => changed = true,
            Err(error) if changed && error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// How many bytes of a message are read: `struct nlmsghdr` and `struct rtmsg`.
const START: usize = 16 + 12;

/// Whether a message is about an interface, or about a route to this host itself. A router
/// gets many other messages.
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

//! Requests to rtnetlink from code outside a runtime, and the notifications that it
//! sends.

use std::future::Future;
use std::io;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use rtnetlink::packet_core::NetlinkPayload;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::{Handle, MulticastGroup};
use tokio::task::JoinHandle;

use crate::error::{Context as _, Error, Kind, Result};

/// Runs `ask` with a netlink connection of its own, on a thread of its own, so
/// that it works inside and outside a runtime. The thread is in the caller's
/// network namespace.
///
/// # Errors
///
/// If there is no netlink, or what `ask` returns.
pub fn block_on<T, F>(ask: impl FnOnce(Handle) -> F + Send) -> Result<T>
where
    F: Future<Output = Result<T>>,
    T: Send,
{
    block_on_with(rtnetlink::new_connection, ask)
}

/// The same with strict checking (`NETLINK_GET_STRICT_CHK`): the kernel then honours the
/// filters of a request.
///
/// # Errors
///
/// As [`block_on`].
pub fn block_on_strict<T, F>(ask: impl FnOnce(Handle) -> F + Send) -> Result<T>
where
    F: Future<Output = Result<T>>,
    T: Send,
{
    block_on_with(rtnetlink::new_connection_with_strict_check, ask)
}

fn block_on_with<T, F, C, M>(
    connect: fn() -> io::Result<(C, Handle, M)>,
    ask: impl FnOnce(Handle) -> F + Send,
) -> Result<T>
where
    F: Future<Output = Result<T>>,
    T: Send,
    C: Future<Output: Send> + Send + 'static,
{
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async {
                let (connection, handle, _) = connect().context("cannot open a netlink socket")?;
                tokio::spawn(connection);
                ask(handle).await
            })
        });
        asking
            .join()
            .unwrap_or_else(|_| Err(Error::new(Kind::Other, "the netlink thread ended early")))
    })
}

/// Notifications that routes of this network namespace come, go or change, or addresses, with
/// which routes do.
pub struct RouteChanges(Changes);

impl RouteChanges {
    /// Subscribes, from now on. Needs a runtime.
    ///
    /// # Errors
    ///
    /// If there is no netlink.
    pub fn subscribe() -> Result<Self> {
        let groups = [
            MulticastGroup::Link,
            MulticastGroup::Ipv4Ifaddr,
            MulticastGroup::Ipv6Ifaddr,
            MulticastGroup::Ipv4Route,
            MulticastGroup::Ipv6Route,
        ];
        Changes::subscribe(&groups, |_| true)
            .context("cannot watch the routes")
            .map(Self)
    }

    /// Waits for the next change, as [`LinkChanges::next`].
    pub async fn next(&mut self) {
        self.0.next().await;
    }
}

/// Notifications that interfaces of this network namespace come, go or change.
pub struct LinkChanges(Changes);

impl LinkChanges {
    /// Subscribes, from now on. Needs a runtime.
    ///
    /// # Errors
    ///
    /// If there is no netlink.
    pub fn subscribe() -> Result<Self> {
        let is_link = |message: &RouteNetlinkMessage| {
            matches!(
                message,
                RouteNetlinkMessage::NewLink(_) | RouteNetlinkMessage::DelLink(_)
            )
        };
        Changes::subscribe(&[MulticastGroup::Link], is_link)
            .context("cannot watch the interfaces")
            .map(Self)
    }

    /// Waits for the next change. It does not say which one: the kernel drops notifications
    /// if there are many, so the caller has to look.
    pub async fn next(&mut self) {
        self.0.next().await;
    }
}

/// Notifications of some kinds.
struct Changes {
    changes: BoxStream<'static, ()>,
    connection: JoinHandle<()>,
}

impl Changes {
    fn subscribe(
        groups: &[MulticastGroup],
        is_one: fn(&RouteNetlinkMessage) -> bool,
    ) -> io::Result<Self> {
        let (connection, _, messages) = rtnetlink::new_multicast_connection(groups)?;
        let changes = messages.filter_map(move |(message, _)| {
            let found = match message.payload {
                NetlinkPayload::InnerMessage(message) => is_one(&message).then_some(()),
                _ => None,
            };
            std::future::ready(found)
        });
        Ok(Self {
            changes: changes.boxed(),
            connection: tokio::spawn(connection),
        })
    }

    async fn next(&mut self) {
        if self.changes.next().await.is_none() {
            // The callers look from time to time anyway.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

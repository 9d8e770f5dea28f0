//! The daemon of a group of interfaces: it removes sessions that are over, and follows the
//! addresses of this host. Packets of sessions never visit it.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tracing::warn;

use super::Attached;
use super::plan::Plan;
use super::sweep::Sweeper;
use crate::error::Result;
use crate::group::orders::next;
use crate::group::{End, Order, Orders, Reason};
use crate::host::addresses::AddressWatch;
use crate::host::netlink::LinkChanges;

/// How often the daemon looks for sessions that are over, if that takes no time. The programs
/// do not wait for it: to them such a session is absent.
const PAUSE: Duration = Duration::from_secs(1);

/// How long it pauses at most: a sweep keeps bindings of silent connections, which end a little
/// later than they are told ([`BINDING_REST`](xdptun_common::gateway::nat::BINDING_REST)).
const LONGEST: Duration = Duration::from_secs(10);

/// How much longer the pause is than the look before it, so that a large table takes a
/// twentieth of a CPU at most.
const REST: u32 = 20;

/// Runs until an order ends it, or an interface comes or goes.
pub async fn run(
    attached: &mut Attached,
    missing: &[String],
    orders: &mut Orders<Reason<Plan>>,
    ready: impl FnOnce(&mut Attached) -> Result<()>,
) -> Result<End<Reason<Plan>>> {
    let mut links = LinkChanges::subscribe()?;
    let mut addresses = AddressWatch::begin(attached.indices())?;
    attached.set_local(&addresses.list().await?)?;
    ready(attached)?;
    let mut sweeper = Sweeper::default();
    let mut sweep_at = Instant::now();
    loop {
        tokio::select! {
            order = next(orders) => return Ok(match order {
                Order::Stop => End::Stopped,
                Order::Pause(reason) => End::Paused(reason),
            }),
            () = links.next() => if attached.interfaces_changed(missing) {
                return Ok(End::InterfacesChanged);
            },
            () = addresses.changed() => match addresses.list().await {
                Ok(addresses) => attached.set_local(&addresses)?,
                Err(error) => warn!("cannot follow the addresses of this host: {error:#}"),
            },
            () = sleep_until(sweep_at) => {
                let began = Instant::now();
                if let Err(error) = sweeper.sweep(&mut attached.maps).await {
                    warn!("cannot remove sessions that are over: {error:#}");
                }
                if attached.interfaces_changed(missing) {
                    return Ok(End::InterfacesChanged);
                }
                sweep_at = Instant::now() + (began.elapsed() * REST).clamp(PAUSE, LONGEST);
            }
        }
    }
}

//! The daemon of NAT64: it removes leases that are over. Packets never visit it.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tracing::warn;

use super::plan::{DEVICE, Plan};
use super::{Attached, preflight, sweep};
use crate::error::Result;
use crate::group::orders::next;
use crate::group::{End, Order, Orders, Reason};
use crate::host::netlink::LinkChanges;

/// How often the daemon looks for leases that are over, if that takes no time. The program does not
/// wait for it: to others such a client is absent.
const PAUSE: Duration = Duration::from_secs(1);

/// How much longer the pause is than the look before it, so that a large pool takes a twentieth of a
/// CPU at most.
const REST: u32 = 20;

/// Runs until an order ends it, or the device goes. Can be called again after a pause.
pub async fn run(
    attached: &mut Attached,
    plan: &Plan,
    missing: &[String],
    orders: &mut Orders<Reason<Plan>>,
    ready: impl FnOnce(&mut Attached) -> Result<()>,
) -> Result<End<Reason<Plan>>> {
    let mut links = LinkChanges::subscribe()?;
    ready(attached)?;
    let mut sweep_at = Instant::now();
    loop {
        tokio::select! {
            order = next(orders) => return Ok(match order {
                Order::Stop => End::Stopped,
                Order::Pause(reason) => End::Paused(reason),
            }),
            () = links.next() => keep_routes(plan),
            () = sleep_until(sweep_at) => {
                let began = Instant::now();
                if let Err(error) = sweep::sweep(&mut attached.maps).await {
                    warn!("cannot remove leases that are over: {error:#}");
                }
                sweep_at = Instant::now() + (began.elapsed() * REST).max(PAUSE);
            }
        }
        if attached.interfaces_changed(missing) {
            return Ok(End::InterfacesChanged);
        }
    }
}

/// Puts routes and addresses of the device back if they are gone. Nothing else tells the daemon of a
/// device that was down for a moment.
fn keep_routes(plan: &Plan) {
    match preflight::has_lost_routes(plan) {
        Ok(false) => {}
        Ok(true) => match plan.device().ensure() {
            Ok(_) => warn!("{DEVICE} had lost its routes or addresses, and has them again"),
            Err(error) => warn!("cannot put back the routes of {DEVICE}: {error:#}"),
        },
        Err(error) => warn!("cannot see whether {DEVICE} has its routes: {error:#}"),
    }
}

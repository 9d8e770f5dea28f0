//! The routes to the back ends, and what changes with them.

use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::{interval, sleep};
use tracing::{error, info, warn};

use super::plan::Plan;
use crate::error::Result;
use crate::group::Handle;
use crate::host::netlink::RouteChanges;

/// How long changes are taken together.
const TOGETHER: Duration = Duration::from_millis(100);

/// How often to look without a notification: the kernel drops some if there are many.
const LOOK: Duration = Duration::from_secs(10);

/// Follows the routes to the back ends of a plan: tells the group other addresses, and adds
/// interfaces that they lead to. One that no route leads to any more stays, for the sessions that
/// it has. Never returns.
///
/// # Errors
///
/// If there is no netlink.
pub async fn follow(mut plan: Plan, handle: Handle<Plan>) -> Result<()> {
    let mut changes = RouteChanges::subscribe()?;
    let mut attached = plan.interfaces();
    let mut look = interval(LOOK);
    // Whether the group has what the plan asks for.
    let mut is_settled = true;
    loop {
        // At once: routes may have changed before the subscription.
        tokio::select! {
            _ = look.tick() => {}
            () = changes.next() => {
                // A routing daemon changes many at once.
                sleep(TOGETHER).await;
                while changes.next().now_or_never().is_some() {}
            }
        }
        match plan.refresh() {
            Ok(true) => {
                for back_end in plan.unreachable() {
                    warn!("{back_end}: no route leads to this back end");
                }
            }
            Ok(false) if is_settled => continue,
            Ok(false) => {}
            Err(error) => {
                warn!("cannot follow the routes to back ends: {error:#}");
                continue;
            }
        }
        is_settled = settle(&plan, &handle, &mut attached).await;
    }
}

/// Adds the interfaces that a plan needs to the group, and tells it the plan; whether all of that
/// was done.
async fn settle(plan: &Plan, handle: &Handle<Plan>, attached: &mut Vec<String>) -> bool {
    let mut is_settled = true;
    for name in plan.interfaces() {
        if attached.contains(&name) {
            continue;
        }
        match handle.join(name.clone()).await {
            Ok(_) => {
                info!("{name}: attached, as a route to a back end leads there now");
                attached.push(name);
            }
            Err(error) => {
                error!("{name}: cannot attach: {error:#}");
                is_settled = false;
            }
        }
    }
    if let Err(error) = handle.change(plan.clone()).await {
        warn!("the programs do not know the new routes to back ends yet: {error:#}");
        is_settled = false;
    }
    is_settled
}

//! The routes to the back ends, the outside addresses, and what changes with them.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
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

/// Follows the routes to the back ends of a plan, and its outside addresses: tells the group other
/// addresses, and adds interfaces that the routes lead to. One that no route leads to any more
/// stays, for the sessions that it has. Never returns.
///
/// # Errors
///
/// If there is no netlink.
pub async fn follow(mut plan: Plan, handle: Handle<Plan>) -> Result<()> {
    let mut changes = RouteChanges::subscribe()?;
    let mut attached = plan.interfaces();
    let mut outside = OutsideLog::new(&plan);
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
                outside.tell(&plan);
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

/// Logs other outside addresses.
struct OutsideLog {
    /// Those that were told last, by the names of the interfaces.
    told: BTreeMap<String, Ipv4Addr>,
    /// Those that interfaces had last, also of interfaces that have none now.
    last: BTreeMap<String, Ipv4Addr>,
}

impl OutsideLog {
    fn new(plan: &Plan) -> Self {
        Self {
            told: plan.seen().outside.clone(),
            last: plan.seen().outside.clone(),
        }
    }

    fn tell(&mut self, plan: &Plan) {
        let now = &plan.seen().outside;
        for name in plan.nats.keys() {
            if self.told.get(name) != now.get(name) {
                self.tell_one(name, now.get(name).copied());
            }
        }
        self.told.clone_from(now);
    }

    fn tell_one(&mut self, name: &str, now: Option<Ipv4Addr>) {
        let Some(now) = now else {
            warn!(
                "{name}: no IPv4 address any more; packets of inside hosts are dropped until it has \
                 one"
            );
            return;
        };
        match self.last.insert(name.to_owned(), now) {
            Some(last) if last == now => info!("{name}: the outside address is {now} again"),
            Some(last) => info!("{name}: the outside address is {now} now ({last} before)"),
            None => info!("{name}: the outside address is {now} now"),
        }
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

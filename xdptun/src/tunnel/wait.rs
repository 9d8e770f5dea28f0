//! The wait for an interface that does not exist.

use std::time::Duration;

use super::daemon::{self, Order, Orders};
use super::handle::Reason;
use super::plan::Plan;
use crate::error::Result;
use crate::host::interface::Interface;
use crate::host::netlink::LinkChanges;

/// How the wait for an interface ended.
pub enum Waited {
    /// The interface exists.
    Found(Interface),
    /// Another process takes over, and waits for it.
    Left,
    /// An order stopped the wait.
    Stopped,
}

/// How often to look for the interface, in case the kernel's message was lost.
const LOOK: Duration = Duration::from_secs(1);

/// Waits until an interface of that name exists, or an order ends the wait. Meanwhile
/// changes go into `plan`.
///
/// # Errors
///
/// If the interfaces cannot be watched.
pub async fn wait_for(name: &str, orders: &mut Orders<Reason>, plan: &mut Plan) -> Result<Waited> {
    let mut links = LinkChanges::subscribe()?;
    loop {
        if let Ok(interface) = Interface::find(name) {
            return Ok(Waited::Found(interface));
        }
        tokio::select! {
            () = links.next() => {}
            () = tokio::time::sleep(LOOK) => {}
            order = daemon::next(orders) => match order {
                Order::Stop | Order::Pause(Reason::Abandoned) => return Ok(Waited::Stopped),
                Order::Pause(Reason::Succeeded) => return Ok(Waited::Left),
                Order::Pause(Reason::Change { plan: new, done }) => {
                    *plan = *new;
                    let _gone = done.send(Ok(()));
                }
                Order::Pause(Reason::Addresses(addresses)) => plan.addresses = addresses,
                Order::Pause(Reason::Record(recording)) => recording.end("the interface is gone"),
                Order::Pause(Reason::StopRecording) => {}
            }
        }
    }
}

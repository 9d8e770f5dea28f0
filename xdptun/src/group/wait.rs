//! The wait while none of a group's interfaces exists.

use std::time::Duration;

use super::handle::Reason;
use super::orders::{Order, Orders, next};
use crate::error::Result;
use crate::host::interface::Interface;
use crate::host::netlink::LinkChanges;

/// How the wait for an interface ended.
pub enum Waited {
    /// One of the interfaces exists.
    Found,
    /// Another process takes over, and waits for them.
    Left,
    /// An order stopped the wait.
    Stopped,
}

/// How often to look for the interfaces, in case the kernel's message was lost.
const LOOK: Duration = Duration::from_secs(1);

/// Waits until an interface of one of these names exists, or an order ends the wait.
/// Meanwhile changes go into `names` and `plan`.
///
/// # Errors
///
/// If the interfaces cannot be watched.
pub async fn wait_for<P>(
    names: &mut Vec<String>,
    orders: &mut Orders<Reason<P>>,
    plan: &mut P,
) -> Result<Waited> {
    let mut links = LinkChanges::subscribe()?;
    loop {
        if names.iter().any(|name| Interface::find(name).is_ok()) {
            return Ok(Waited::Found);
        }
        tokio::select! {
            () = links.next() => {}
            () = tokio::time::sleep(LOOK) => {}
            order = next(orders) => match order {
                Order::Stop | Order::Pause(Reason::Abandoned) => return Ok(Waited::Stopped),
                Order::Pause(Reason::Succeeded) => return Ok(Waited::Left),
                Order::Pause(Reason::Change { plan: new, done }) => {
                    *plan = *new;
                    let _gone = done.send(Ok(()));
                }
                Order::Pause(Reason::Join { name, done }) => {
                    let is_new = !names.contains(&name);
                    if is_new {
                        names.push(name);
                    }
                    let _gone = done.send(Ok(is_new));
                }
                Order::Pause(Reason::Leave { name, done }) => {
                    names.retain(|one| *one != name);
                    let _gone = done.send(Ok(()));
                }
                Order::Pause(Reason::Amend(amend)) => amend(plan),
                Order::Pause(Reason::Record(recording)) => recording.end("the interface is gone"),
                Order::Pause(Reason::StopRecording) => {}
            }
        }
    }
}

//! One interface of the service, from the wait for it to its end.

use std::rc::Rc;

use nix::net::if_::if_nametoindex;
use tokio::sync::oneshot;
use tracing::warn;

use super::Frontend;
use super::states::{InterfaceState, InterfaceStates};
use crate::error::Result;
use crate::tunnel::daemon::{Observer, Orders};
use crate::tunnel::{Incumbent, Plan, Progress, Reason, Tunnel, Waited, wait_for};

/// The task that carries one interface.
pub struct InterfaceTask {
    pub name: String,
    /// Whether to wait for an interface that does not exist.
    pub patient: bool,
    /// What becomes of a process that keeps it.
    pub incumbent: Incumbent,
    pub frontend: Rc<dyn Frontend>,
    pub states: Rc<InterfaceStates>,
    /// Notified when the interface carries datagrams, or the task waits for it.
    pub begun: Option<oneshot::Sender<()>>,
}

impl InterfaceTask {
    /// Runs until an order ends it.
    ///
    /// # Errors
    ///
    /// If the interface cannot be attached, or not be carried any longer.
    pub async fn run(mut self, mut plan: Plan, mut orders: Orders<Reason>) -> Result<()> {
        let tunnel = loop {
            if self.is_gone() {
                warn!("{}: no such interface yet; waiting for it", self.name);
                self.note(InterfaceState::Waiting);
                match wait_for(&self.name, &mut orders, &mut plan).await? {
                    Waited::Found(_) => {}
                    Waited::Left | Waited::Stopped => return Ok(()),
                }
            }
            match Tunnel::attach(&self.name, plan.clone(), self.incumbent) {
                // The interface went meanwhile: wait for it.
                Err(_) if self.is_gone() => {}
                attached => break attached?,
            }
        };
        let frontend = Rc::clone(&self.frontend);
        let observer: Rc<dyn Observer> = frontend.clone();
        let tell = |progress: Progress<'_>| {
            self.note(match progress {
                Progress::Waiting => InterfaceState::Waiting,
                Progress::Carrying {
                    attached,
                    plan,
                    anew,
                } => {
                    if anew {
                        frontend.ready(attached, plan)?;
                    }
                    InterfaceState::Carrying(attached.maps.ports()?)
                }
            });
            Ok(())
        };
        tunnel.run(&mut orders, &*observer, tell).await
    }

    fn is_gone(&self) -> bool {
        self.patient && if_nametoindex(self.name.as_str()).is_err()
    }

    fn note(&mut self, state: InterfaceState) {
        self.states.set(&self.name, state);
        if let Some(begun) = self.begun.take() {
            let _gone = begun.send(());
        }
    }
}

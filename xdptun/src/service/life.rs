//! One interface of the service, from waiting for it to its end.

use std::rc::Rc;

use anyhow::Result;
use nix::net::if_::if_nametoindex;
use tokio::sync::oneshot;
use tracing::warn;

use super::Front;
use super::states::{State, States};
use crate::daemon::{Observer, Orders};
use crate::tunnel::{Plan, Reason, Stage, Tunnel, Waited, wait_for};

/// What it takes to begin with an interface.
pub struct Life {
    pub name: String,
    /// Whether it may come later.
    pub patient: bool,
    /// Whether to take over from a process that keeps it.
    pub take_over: bool,
    pub front: Rc<dyn Front>,
    pub states: Rc<States>,
    /// Told once it carries datagrams, or is waited for.
    pub begun: Option<oneshot::Sender<()>>,
}

impl Life {
    /// Runs until an order ends it.
    ///
    /// # Errors
    ///
    /// If it cannot begin, or not go on.
    pub async fn run(mut self, mut plan: Plan, mut orders: Orders<Reason>) -> Result<()> {
        let tunnel = loop {
            if self.is_gone() {
                warn!("{}: no such interface yet; waiting for it", self.name);
                self.note(State::Waiting);
                match wait_for(&self.name, &mut orders, &mut plan).await? {
                    Waited::Found(_) => {}
                    Waited::Left | Waited::Stopped => return Ok(()),
                }
            }
            match Tunnel::attach(&self.name, plan.clone(), self.take_over) {
                // It went meanwhile.
                Err(_) if self.is_gone() => {}
                attached => break attached?,
            }
        };
        let front = Rc::clone(&self.front);
        let observer: Rc<dyn Observer> = front.clone();
        let tell = |stage: Stage<'_>| {
            self.note(match stage {
                Stage::Waiting => State::Waiting,
                Stage::Carrying {
                    attached,
                    plan,
                    anew,
                } => {
                    if anew {
                        front.ready(attached, plan)?;
                    }
                    State::Carrying(attached.maps.ports()?)
                }
            });
            Ok(())
        };
        tunnel.run(&mut orders, &*observer, tell).await
    }

    fn is_gone(&self) -> bool {
        self.patient && if_nametoindex(self.name.as_str()).is_err()
    }

    fn note(&mut self, state: State) {
        self.states.set(&self.name, state);
        if let Some(begun) = self.begun.take() {
            let _gone = begun.send(());
        }
    }
}

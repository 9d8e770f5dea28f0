//! What the service does between its start and its end: commands, reloads, and
//! interfaces that end by themselves.

use tokio::signal::unix::Signal;
use tracing::error;

use super::ending::Ending;
use super::states::{InterfaceState, InterfaceStates};
use super::{RunningGroup, Service};
use crate::control::{Asker, Command, Control};
use crate::error::Result;
use crate::gateway::Gateway;
use crate::group::{Function as _, Handle};
use crate::nat64::Nat64;
use crate::observe::capture::serve::{Recorded, serve};
use crate::policy::Policy;
use crate::process::signals::received;

impl Service {
    /// Serves commands and reloads. Returns when no interface is left.
    pub(super) async fn serve(
        &mut self,
        mut control: Option<Control>,
        mut hang_up: Option<Signal>,
    ) -> Result<Ending> {
        loop {
            let asked = async {
                match &mut control {
                    Some(control) => control.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = received(&mut hang_up) => {
                    let _told = self.reload(false).await;
                }
                (command, asker) = asked => self.obey(command, asker).await,
                Some(_) = self.captures.join_next() => {}
                Some(ended) = self.tasks.join_next() => {
                    self.note_end(ended?);
                    let is_idle = self.gateway.is_none() && self.policy.is_none();
                    if self.groups.is_empty() && is_idle && self.nat64.is_none() {
                        return Ok(Ending::Stop);
                    }
                }
            }
        }
    }

    /// Does what a client asks for.
    async fn obey(&mut self, command: Command, asker: Asker) {
        match command {
            Command::Reload { drain } => {
                let _told = asker.answer(&self.reload(drain).await).await;
            }
            Command::Capture {
                function,
                interface,
                snap_len,
                version,
            } => {
                let recorded = Recorded {
                    interface,
                    snap_len,
                    version,
                };
                if function == Gateway::PROGRAMS.function {
                    let handle = self.gateway.as_ref().map(|gateway| gateway.handle.clone());
                    self.capture(handle, recorded, asker).await;
                } else if function == Policy::PROGRAMS.function {
                    let handle = self.policy.as_ref().map(|policy| policy.handle.clone());
                    self.capture(handle, recorded, asker).await;
                } else if function == Nat64::PROGRAMS.function {
                    let handle = self.nat64.as_ref().map(|nat64| nat64.handle.clone());
                    self.capture(handle, recorded, asker).await;
                } else {
                    let group = self.group_of(&recorded.interface);
                    let handle = group.map(|(_, group)| group.handle.clone());
                    self.capture(handle, recorded, asker).await;
                }
            }
        }
    }

    /// Has packets recorded for a client by the group with this handle, if there is one.
    async fn capture<P: 'static>(
        &mut self,
        handle: Option<Handle<P>>,
        recorded: Recorded,
        asker: Asker,
    ) {
        match handle {
            Some(handle) => {
                self.captures.spawn_local(serve(handle, recorded, asker));
            }
            None => {
                let why = "the running xdptun does not keep it any more".to_owned();
                let _told = asker.answer(&Err(why)).await;
            }
        }
    }

    /// The group that an interface is in, and its number.
    pub(super) fn group_of(&self, interface: &str) -> Option<(u32, &RunningGroup)> {
        let has = |group: &RunningGroup| group.interfaces.iter().any(|one| one == interface);
        let mut groups = self.groups.iter().map(|(id, group)| (*id, group));
        groups.find(|(_, group)| has(group))
    }

    /// Notes that a group has ended by itself. The others go on.
    pub(super) fn note_end(&mut self, (id, result): (u32, Result<()>)) {
        let why = result.err().map(|why| format!("{why:#}"));
        if self
            .gateway
            .as_ref()
            .is_some_and(|gateway| gateway.id == id)
        {
            self.gateway = None;
            let states = self.gateway_states.clone();
            self.note_end_of(&states.names(), &states, why.as_deref());
        } else if self.policy.take_if(|policy| policy.id == id).is_some() {
            let states = self.policy_states.clone();
            self.note_end_of(&states.names(), &states, why.as_deref());
        } else if self.nat64.take_if(|nat64| nat64.id == id).is_some() {
            let states = self.nat64_states.clone();
            self.note_end_of(&states.names(), &states, why.as_deref());
        } else if let Some(group) = self.groups.remove(&id) {
            self.note_end_of(&group.interfaces, &self.tunnel_states, why.as_deref());
        }
    }

    fn note_end_of(&self, names: &[String], states: &InterfaceStates, why: Option<&str>) {
        for name in names {
            match why {
                None => states.forget(name),
                // It was given up before the others, for a reason of its own.
                Some(_) if states.is_given_up(name) => {}
                Some(why) => {
                    // Without a file, `end` returns the error.
                    if self.mode.file.is_some() {
                        error!("{name}: given up: {why}");
                    }
                    states.set(name, InterfaceState::GivenUp(why.to_owned()));
                }
            }
        }
    }

    /// Waits until a group has ended; returns its result.
    pub(super) async fn until_ended(&mut self, id: u32) -> Result<()> {
        while let Some(ended) = self.tasks.join_next().await {
            let ended = ended?;
            if ended.0 == id {
                self.groups.remove(&id);
                self.gateway.take_if(|gateway| gateway.id == id);
                self.policy.take_if(|policy| policy.id == id);
                self.nat64.take_if(|nat64| nat64.id == id);
                return ended.1;
            }
            self.note_end(ended);
        }
        Ok(())
    }
}

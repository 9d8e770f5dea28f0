//! The interfaces of a group that come, go and come back.

use nix::net::if_::if_nametoindex;
use tracing::{error, info, warn};

use super::attached::Attached;
use super::function::Function;
use super::handle::Reason;
use super::orders::Orders;
use super::run::{Changed, Group, Next, Progress};
use super::wait::{Waited, wait_for};
use crate::error::{Context as _, Kind, Result};
use crate::host::interface::{Interface, name_of};

impl<F: Function> Attached<F> {
    /// Whether an interface is gone, or one of those that are missing is there. Notes names
    /// that interfaces have by now. For the daemon of a function.
    pub fn interfaces_changed(&mut self, missing: &[String]) -> bool {
        for carried in self.interfaces.iter_mut().filter(|one| one.is_there) {
            let interface = &mut carried.interface;
            let Some(name) = name_of(interface.index) else {
                return true;
            };
            if interface.name != name {
                info!("{}: it is called {name} now", interface.name);
                interface.name = name;
            }
        }
        missing
            .iter()
            .any(|name| if_nametoindex(name.as_str()).is_ok())
    }
}

impl<F: Function> Group<F> {
    /// Attaches to those of its interfaces that the process before did not carry, and forgets
    /// those that are gone and not waited for.
    pub(super) fn complete(&mut self, interfaces: Vec<Interface>) -> Result<()> {
        for interface in interfaces {
            let (name, index) = (interface.name.clone(), interface.index);
            if self.attached.at(index).is_none() {
                self.joined.insert(index);
                self.attach_again(interface, &name)?;
            }
        }
        self.forget_unknown()
    }

    /// Forgets interfaces that are gone and not waited for: no order names them any
    /// more, or another one has the name by now.
    pub(super) fn forget_unknown(&mut self) -> Result<()> {
        let missing = self.missing();
        let all = self.attached.interfaces.iter();
        let unknown = all.filter(|one| !one.is_there && !missing.contains(&one.kept_as));
        for index in unknown.map(|one| one.interface.index).collect::<Vec<_>>() {
            self.attached.leave(index)?;
        }
        Ok(())
    }

    /// The names of its interfaces that are not there.
    pub(super) fn missing(&self) -> Vec<String> {
        let mut missing = self.names.clone();
        missing.retain(|name| !self.attached.present().any(|one| one.kept_as == *name));
        missing
    }

    /// Adds an interface, or waits for it.
    pub(super) fn join(&mut self, name: String) -> Result<Changed> {
        let mut changed = Changed::default();
        match Interface::find(&name) {
            Ok(interface) => {
                let index = interface.index;
                changed.loaded = self.attach_again(interface, &name)?;
                changed.attached.insert(index);
            }
            Err(error) if error.kind() == Kind::NoInterface => {}
            Err(error) => return Err(error),
        }
        self.names.push(name);
        Ok(changed)
    }

    /// Takes an interface out of the group. Flows go on by the others.
    pub(super) fn leave(&mut self, name: &str) -> Result<()> {
        let all = self.attached.interfaces.iter();
        let of_name = all.filter(|one| one.kept_as == name);
        for index in of_name.map(|one| one.interface.index).collect::<Vec<_>>() {
            self.end_recording_of(index, "the interface is detached");
            self.attached.leave(index)?;
        }
        self.names.retain(|one| one != name);
        info!("{name}: detached");
        Ok(())
    }

    /// Follows the interfaces, and waits as long as there is none.
    pub(super) async fn follow_or_wait(
        &mut self,
        orders: &mut Orders<Reason<F::Plan>>,
        tell: &mut impl FnMut(Progress<'_, F>) -> Result<()>,
    ) -> Result<Next> {
        let mut changed = self.follow(tell)?;
        let mut plan = self.plan.clone();
        while self.attached.present().next().is_none() {
            match wait_for(&mut self.names, orders, &mut plan).await? {
                Waited::Found => {}
                Waited::Left => {
                    info!("{}: left to the process that takes over", self.name());
                    return Ok(Next::Leave);
                }
                Waited::Stopped => return Ok(Next::Detach),
            }
            changed = self.follow(tell)?;
        }
        self.forget_unknown()?;
        // By the programs as they are, an interface is disguised at once.
        changed.loaded |= self.change(plan)?;
        Ok(Next::Carry(changed))
    }

    /// Notes interfaces that are gone, and attaches to those that are there again.
    fn follow(&mut self, tell: &mut impl FnMut(Progress<'_, F>) -> Result<()>) -> Result<Changed> {
        let mut changed = Changed::default();
        let gone: Vec<_> = self
            .attached
            .present()
            .map(|one| one.interface.index)
            .collect();
        for index in gone.into_iter().filter(|index| name_of(*index).is_none()) {
            self.end_recording_of(index, "the interface is gone");
            let mut all = self.attached.interfaces.iter_mut();
            if let Some(one) = all.find(|one| one.interface.index == index) {
                one.is_there = false;
                warn!(
                    "{}: the interface is gone; waiting for it to come back",
                    one.kept_as
                );
                tell(Progress::Waiting(&one.kept_as))?;
            }
        }
        if !self.missing().is_empty() {
            F::make_device(&self.plan)?;
        }
        for name in self.missing() {
            let attached = Interface::find(&name).and_then(|interface| {
                let index = interface.index;
                Ok((index, self.attach_again(interface, &name)?))
            });
            match attached {
                Ok((index, loaded)) => {
                    changed.loaded |= loaded;
                    changed.attached.insert(index);
                }
                // It is not there, or went again.
                Err(error)
                    if error.kind() == Kind::NoInterface
                        || if_nametoindex(name.as_str()).is_err() => {}
                Err(error) if self.names.len() == 1 => return Err(error),
                Err(error) => {
                    self.names.retain(|one| *one != name);
                    error!("{name}: given up: {error:#}");
                    tell(Progress::GivenUp(&name, error))?;
                }
            }
        }
        Ok(changed)
    }

    /// Attaches to an interface that came, or came back; returns whether programs were loaded.
    fn attach_again(&mut self, interface: Interface, name: &str) -> Result<bool> {
        let options = self.options();
        let all = &self.attached.interfaces;
        let before = all.iter().find(|one| !one.is_there && one.kept_as == name);
        match before.map(|one| one.interface.index) {
            None => self.attached.join(interface, &options),
            Some(gone) => {
                let followed = self.attached.follow(gone, interface, &options);
                followed.with_context(|| {
                    let stays = stays_attached(name);
                    format!("it came back, but cannot be attached; {stays}")
                })
            }
        }
    }

    /// Takes out of the group what this process added to it.
    pub(super) fn part_with_joined(&mut self) {
        for index in std::mem::take(&mut self.joined) {
            if let Err(error) = self.attached.leave(index) {
                warn!("cannot detach: {error:#}");
            }
        }
    }
}

/// Tells what stays attached to an interface that was given up, and how to remove it.
pub(super) fn stays_attached(name: &str) -> String {
    format!(
        "the programs stay attached, so that nothing leaks; \
         `xdptun detach --iface {name}` removes them"
    )
}

//! A group of interfaces from attach to detach. The tunnel carries their datagrams, changes
//! with the configuration, and follows interfaces that go and come back.

use std::collections::BTreeSet;
use std::path::Path;

use nix::net::if_::if_nametoindex;
use tracing::{error, info, warn};

use super::FUNCTION;
use super::attach::Attached;
use super::daemon::{self, End, Observer, Orders};
use super::handle::Reason;
use super::maps::Maps;
use super::options::{AttachOptions, Recorded};
use super::pinned::recorded;
use super::plan::Plan;
use super::recording::Recording;
use super::take_over::{Incumbent, take_group};
use super::wait::{Waited, wait_for};
use crate::datapath::lock::{self, GroupLock};
use crate::datapath::pins;
use crate::datapath::remove::clear;
use crate::error::{Context as _, Error, Kind, Result};
use crate::host::interface::{Interface, name_of};
use crate::process::memory;

/// A tunnel's report of how it goes on.
pub enum Progress<'a> {
    /// It loaded programs; their log can be read.
    Loaded {
        /// What is attached.
        attached: &'a mut Attached,
        /// Its plan.
        plan: &'a Plan,
    },
    /// It carries the datagrams of an interface.
    Carrying {
        /// What is attached.
        attached: &'a Attached,
        /// Index of the interface.
        interface: u32,
        /// Its plan.
        plan: &'a Plan,
        /// Whether it was just attached.
        anew: bool,
    },
    /// The interface of this name is not there; the tunnel waits for it.
    Waiting(&'a str),
    /// The interface of this name came, and cannot be carried, for this reason. The others of
    /// the group go on.
    GivenUp(&'a str, Error),
}

/// What a tunnel does after its daemon has ended.
enum Next {
    /// It carries datagrams again.
    Carry(Changed),
    /// It leaves everything attached, for another process.
    Leave,
    /// It detaches.
    Detach,
}

/// What was changed between two runs of the daemon.
#[derive(Default)]
pub(super) struct Changed {
    /// Programs were loaded.
    loaded: bool,
    /// The indices of the interfaces that were attached.
    attached: BTreeSet<u32>,
}

/// A group of interfaces, and what is attached to them.
pub struct Tunnel {
    /// The names of its interfaces, whether or not they are there.
    names: Vec<String>,
    plan: Plan,
    pub(super) attached: Attached,
    /// Whether another process attached it.
    taken_over: bool,
    /// The indices of interfaces that this process added to it at the start.
    joined: BTreeSet<u32>,
    /// The recording, if a client captures.
    pub(super) recording: Option<Recording>,
    _lock: GroupLock,
}

impl Tunnel {
    /// Attaches to the interfaces of these names that are there, or goes on with what a
    /// process left attached. On failure interfaces that were free are free again, and what was
    /// attached stays so, perhaps without a daemon.
    ///
    /// # Errors
    ///
    /// The message names the step, the cause and the way out. Of these
    /// [kinds](crate::error::Kind):
    ///
    /// * `NoInterface`: none of them is there; [`wait_for`](super::wait_for) waits for one;
    /// * `AlreadyAttached`: another process keeps one of them;
    /// * `Busy`: another process is just attaching, or did not leave in time;
    /// * `CannotChange`: the plan wants another value of an option that is fixed while it is
    ///   attached, or what is attached has interfaces that are not named; detach first;
    /// * `Conflict`: they are attached already, and not as one group;
    /// * `OtherVersion`: another version attached what is there; detach first;
    /// * `OtherNamespace`: it was attached in another mount namespace, and is seen only
    ///   there;
    /// * `XdpTaken`, `XdpUnsupported`: the plan asks for XDP, and an interface does not take
    ///   it;
    /// * `Unsupported`: the link layer of an interface is one that xdptun does not know;
    /// * `Permission`, `Kernel`: the kernel refused a step.
    pub fn attach(names: &[String], plan: Plan, incumbent: Incumbent) -> Result<Self> {
        let (mut interfaces, mut missing) = (Vec::new(), None);
        for name in names {
            match Interface::find(name) {
                Ok(interface) => interfaces.push(interface),
                Err(error) if error.kind() == Kind::NoInterface => missing = Some(error),
                Err(error) => return Err(error),
            }
        }
        if let (Some(missing), []) = (missing, &interfaces[..]) {
            return Err(missing);
        }
        pins::mount_bpffs()?;
        let options = plan.options();
        let (group, lock) = take_group(&interfaces, incumbent, &options)?;
        let taken_over = keep_names(&group)?;
        if !taken_over {
            if pins::has_maps(&group)? {
                // A process was killed before it attached anything.
                clear(&FUNCTION, &group)?;
                for interface in &interfaces {
                    lock::join(&FUNCTION, &group, interface.index)?;
                }
            }
            let attached = Attached::new(&group, interfaces, &options)?;
            return Ok(Self::of(names, plan, attached, lock));
        }
        let attached = Attached::adopt(&group, &options)?;
        let mut tunnel = Self {
            taken_over: true,
            ..Self::of(names, plan, attached, lock)
        };
        match tunnel.complete(interfaces) {
            Ok(()) => Ok(tunnel),
            Err(error) => Err(tunnel.give_up(error, false)),
        }
    }

    fn of(names: &[String], plan: Plan, attached: Attached, lock: GroupLock) -> Self {
        Self {
            names: names.to_vec(),
            plan,
            attached,
            taken_over: false,
            joined: BTreeSet::new(),
            recording: None,
            _lock: lock,
        }
    }

    /// Attaches to those of its interfaces that the process before did not carry, and forgets
    /// those that are gone and not waited for.
    fn complete(&mut self, interfaces: Vec<Interface>) -> Result<()> {
        for interface in interfaces {
            let (name, index) = (interface.name.clone(), interface.index);
            if self.attached.at(index).is_none() {
                self.joined.insert(index);
                self.attach_again(interface, &name)?;
            }
        }
        self.forget_unknown()
    }

    /// Forgets interfaces that are gone and not waited for: nobody names them any more, or
    /// another one has the name by now.
    fn forget_unknown(&mut self) -> Result<()> {
        let missing = self.missing();
        let all = self.attached.interfaces.iter();
        let unknown = all.filter(|one| !one.is_there && !missing.contains(&one.kept_as));
        for index in unknown.map(|one| one.interface.index).collect::<Vec<_>>() {
            self.attached.leave(index)?;
        }
        Ok(())
    }

    /// Carries datagrams until an order ends that. Calls `tell` each time it begins to carry
    /// them, and when an interface is gone.
    ///
    /// # Errors
    ///
    /// If it cannot go on, or cannot detach. The message tells what stays attached.
    pub async fn run(
        mut self,
        orders: &mut Orders<Reason>,
        observer: &dyn Observer,
        mut tell: impl FnMut(Progress<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut was_ready = false;
        let mut changed = Changed {
            loaded: true,
            attached: self.attached.indices().into_iter().collect(),
        };
        for name in self.missing() {
            warn!("{name}: no such interface yet; waiting for it");
            tell(Progress::Waiting(&name))?;
        }
        loop {
            if changed.loaded {
                memory::give_back();
            }
            let missing = self.missing();
            let plan = &self.plan;
            let (attached, timers) = (&mut self.attached, plan.timers);
            let end = daemon::run(attached, timers, &missing, orders, observer, |attached| {
                if changed.loaded {
                    tell(Progress::Loaded { attached, plan })?;
                }
                for interface in attached.indices() {
                    tell(Progress::Carrying {
                        attached,
                        interface,
                        plan,
                        anew: changed.attached.contains(&interface),
                    })?;
                }
                was_ready = true;
                Ok(())
            })
            .await;
            let next = match end {
                Ok(End::Stopped) => Next::Detach,
                Ok(End::Paused(reason)) => self.obey(reason),
                Ok(End::InterfacesChanged) => self.follow_or_wait(orders, &mut tell).await?,
                Err(error) => return Err(self.give_up(error, was_ready)),
            };
            match next {
                Next::Carry(next) => changed = next,
                Next::Leave => return Ok(()),
                Next::Detach => break,
            }
        }
        self.end_recording("xdptun ends");
        self.attached.detach().context("cannot detach")?;
        for name in self.names {
            info!("{name}: detached");
        }
        Ok(())
    }

    /// The names of its interfaces that are not there.
    fn missing(&self) -> Vec<String> {
        let mut missing = self.names.clone();
        missing.retain(|name| !self.attached.present().any(|one| one.kept_as == *name));
        missing
    }

    /// All names, for messages about the whole group.
    pub(super) fn name(&self) -> String {
        self.names.join(", ")
    }

    /// Does what the daemon paused for.
    fn obey(&mut self, reason: Reason) -> Next {
        let changed = match reason {
            Reason::Change { plan, done } => {
                let result = self.change(*plan);
                let changed = self.all_if(matches!(result, Ok(true)));
                let _gone = done.send(result.map(|_| ()));
                changed
            }
            Reason::Join { name, done } => {
                let joined = self.join(name);
                let (result, changed) = match joined {
                    Ok(changed) => (Ok(()), changed),
                    Err(error) => (Err(error), Changed::default()),
                };
                let _gone = done.send(result);
                changed
            }
            Reason::Leave { name, done } => {
                let _gone = done.send(self.leave(&name));
                Changed::default()
            }
            Reason::Addresses(addresses) => {
                let mut plan = self.plan.clone();
                plan.addresses = addresses;
                let result = self.change(plan);
                let replaced = result.unwrap_or_else(|error| {
                    warn!("{}: cannot change the peers: {error:#}", self.name());
                    false
                });
                self.all_if(replaced)
            }
            Reason::Record(recording) => Changed {
                loaded: self.record(recording),
                ..Changed::default()
            },
            Reason::StopRecording => Changed {
                loaded: self.stop_recording(),
                ..Changed::default()
            },
            Reason::Succeeded => {
                self.end_recording("another xdptun takes over");
                for name in &self.names {
                    info!("{name}: left to the process that takes over");
                }
                return Next::Leave;
            }
            Reason::Abandoned if self.taken_over => {
                self.part_with_joined();
                return Next::Leave;
            }
            Reason::Abandoned => return Next::Detach,
        };
        Next::Carry(changed)
    }

    /// The change that all programs were replaced, if they were.
    fn all_if(&self, replaced: bool) -> Changed {
        match replaced {
            true => Changed {
                loaded: true,
                attached: self.attached.indices().into_iter().collect(),
            },
            false => Changed::default(),
        }
    }

    /// Adds an interface, or waits for it.
    fn join(&mut self, name: String) -> Result<Changed> {
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
    fn leave(&mut self, name: &str) -> Result<()> {
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
    async fn follow_or_wait(
        &mut self,
        orders: &mut Orders<Reason>,
        tell: &mut impl FnMut(Progress<'_>) -> Result<()>,
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
    fn follow(&mut self, tell: &mut impl FnMut(Progress<'_>) -> Result<()>) -> Result<Changed> {
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
                Err(_) if if_nametoindex(name.as_str()).is_err() => {}
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
                    format!("it came back, and cannot be attached; {stays}")
                })
            }
        }
    }

    /// Gives the interfaces up after an error, without a leak. Returns the error with what
    /// stays attached.
    fn give_up(mut self, error: Error, was_ready: bool) -> Error {
        let name = self.names.join(",");
        // Operators rely on the disguise: it ends only when they ask for that.
        if was_ready {
            let first = self.names.first().cloned().unwrap_or_default();
            return error.context(stays_attached(&first));
        }
        if !self.taken_over {
            return match self.attached.detach().context("cannot detach") {
                Ok(()) => error,
                Err(also) => also,
            };
        }
        self.part_with_joined();
        error.context(format!(
            "what was attached stays so, without a daemon; \
             `xdptun attach --iface {name} ...` or `xdptun run` goes on with it"
        ))
    }

    /// Takes out of the group what this process added to it.
    fn part_with_joined(&mut self) {
        for index in std::mem::take(&mut self.joined) {
            if let Err(error) = self.attached.leave(index) {
                warn!("cannot detach: {error:#}");
            }
        }
    }

    /// Applies a plan, with new programs in the place of the old ones if necessary; returns
    /// whether it was. On failure everything is as it was.
    fn change(&mut self, plan: Plan) -> Result<bool> {
        let (before, after) = (self.options(), self.recorded(plan.options()));
        let other_programs = after.takes_other_programs(&before);
        let changed = if other_programs {
            self.replace(&after)
        } else if after != before {
            self.attached.set(&after)
        } else {
            Ok(())
        };
        if let Err(error) = changed {
            // Some of the programs may be new, and have maps of their own.
            let undone = match other_programs {
                true => self.replace(&before),
                false => self.attached.set(&before),
            };
            return Err(match undone {
                Ok(()) => error,
                Err(also) => error.context(format!("and cannot be undone: {also:#}")),
            });
        }
        self.plan = plan;
        Ok(other_programs)
    }

    fn replace(&mut self, options: &AttachOptions) -> Result<()> {
        let group = self.attached.group.clone();
        self.attached = Attached::adopt(&group, options)?;
        if let (Some(recording), Some(recorder)) = (&self.recording, self.attached.take_recorder())
        {
            recording.feed(recorder);
        }
        Ok(())
    }

    /// The options that its programs should have.
    fn options(&self) -> AttachOptions {
        self.recorded(self.plan.options())
    }

    /// The same options, with recording if a client captures.
    fn recorded(&self, options: AttachOptions) -> AttachOptions {
        let record = self.recording.as_ref().and_then(|recording| {
            let mut present = self.attached.present();
            let interface = present.find(|one| one.kept_as == recording.interface)?;
            Some(Recorded {
                link_len: interface.interface.link_len,
                snap_len: recording.snap_len,
            })
        });
        AttachOptions { record, ..options }
    }

    /// Loads the programs anew. Flows go on: the new programs use the same table.
    pub(super) fn renew(&mut self) -> Result<()> {
        self.replace(&self.options())?;
        self.attached.adopted = None;
        Ok(())
    }
}

/// Says that a new daemon knows the interfaces of a group by the names that they have now;
/// returns whether there are any.
fn keep_names(group: &Path) -> Result<bool> {
    if !pins::has_maps(group)? {
        return Ok(false);
    }
    let mut records = Maps::from_pins(group)?.records;
    let attachments = records.attachments()?;
    for (ifindex, mut attachment) in attachments.clone() {
        if let Some(name) = name_of(ifindex) {
            attachment.name = recorded(&name)?;
            records.set_attachment(ifindex, attachment)?;
        }
    }
    Ok(attachments
        .keys()
        .any(|ifindex| name_of(*ifindex).is_some()))
}

/// Tells what stays attached to an interface that was given up, and how to remove it.
fn stays_attached(name: &str) -> String {
    format!(
        "the programs stay attached, so that nothing leaks; \
         `xdptun detach --iface {name}` removes them"
    )
}

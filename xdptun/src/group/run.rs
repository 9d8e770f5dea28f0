//! A group of interfaces from attach to detach. It carries packets, changes with the
//! configuration, and follows interfaces that go and come back.

use std::collections::BTreeSet;
use std::path::Path;
use std::pin::pin;

use tracing::{info, warn};

use super::attached::Attached;
use super::function::Function;
use super::handle::{Handle, Reason};
use super::members::stays_attached;
use super::orders::{End, Order, Orders};
use super::pinned::name_bytes;
use super::recording::Recording;
use super::take_over::{Incumbent, take_group};
use crate::datapath::engine_maps::EngineMaps;
use crate::datapath::lock::{self, GroupLock};
use crate::datapath::pins;
use crate::datapath::remove::clear;
use crate::error::{Context as _, Error, Kind, Result};
use crate::host::interface::{Interface, name_of};
use crate::process::memory;

/// A group's report of how it goes on.
pub enum Progress<'a, F: Function> {
    /// It loaded programs; their log can be read.
    Loaded {
        /// What is attached.
        attached: &'a mut Attached<F>,
        /// Its plan.
        plan: &'a F::Plan,
    },
    /// It carries the packets of an interface.
    Carrying {
        /// What is attached.
        attached: &'a Attached<F>,
        /// Index of the interface.
        interface: u32,
        /// Its plan.
        plan: &'a F::Plan,
        /// Whether it was just attached.
        anew: bool,
    },
    /// The interface of this name is not there; the group waits for it.
    Waiting(&'a str),
    /// The interface of this name came, and cannot be carried, for this reason. The others of
    /// the group go on.
    GivenUp(&'a str, Error),
}

/// What a group does after its daemon has ended.
pub(super) enum Next {
    /// It carries packets again.
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
    pub loaded: bool,
    /// The indices of the interfaces that were attached.
    pub attached: BTreeSet<u32>,
}

impl Changed {
    /// All programs were replaced.
    fn all<F: Function>(attached: &Attached<F>) -> Self {
        Self {
            loaded: true,
            attached: attached.indices().into_iter().collect(),
        }
    }
}

/// A group of interfaces, and what is attached to them.
pub struct Group<F: Function> {
    /// The names of its interfaces, whether or not they are there.
    pub(super) names: Vec<String>,
    pub(super) plan: F::Plan,
    pub(super) attached: Attached<F>,
    /// Whether another process attached it.
    taken_over: bool,
    /// The indices of interfaces that this process added to it at the start.
    pub(super) joined: BTreeSet<u32>,
    /// The recording, if a client captures.
    pub(super) recording: Option<Recording>,
    _lock: GroupLock,
}

impl<F: Function> Group<F> {
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
    pub fn attach(names: &[String], plan: F::Plan, incumbent: Incumbent) -> Result<Self> {
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
        let options = F::options(&plan);
        let (group, lock) = take_group::<F>(&interfaces, incumbent, &options)?;
        let taken_over = keep_names(&group)?;
        if !taken_over {
            if pins::has_maps(&group)? {
                // A process was killed before it attached anything.
                clear(F::PROGRAMS, &group)?;
                for interface in &interfaces {
                    lock::join(F::PROGRAMS, &group, interface.index)?;
                }
            }
            let attached = Attached::new(&group, interfaces, &options)?;
            return Ok(Self::of(names, plan, attached, lock));
        }
        let attached = Attached::adopt(&group, &options)?;
        let mut adopted = Self {
            taken_over: true,
            ..Self::of(names, plan, attached, lock)
        };
        match adopted.complete(interfaces) {
            Ok(()) => Ok(adopted),
            Err(error) => Err(adopted.give_up(error, false)),
        }
    }

    fn of(names: &[String], plan: F::Plan, attached: Attached<F>, lock: GroupLock) -> Self {
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

    /// Carries packets until `stop` completes, and detaches. Dropped before its end, it leaves everything
    /// attached.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub async fn run_until(self, observer: &F::Observer, stop: impl Future) -> Result<()> {
        let (handle, mut orders) = Handle::new();
        let mut running = pin!(self.run(&mut orders, observer, |_| Ok(())));
        tokio::select! {
            ended = &mut running => return ended,
            _ = stop => handle.order(Order::Stop),
        }
        running.await
    }

    /// Carries packets until an order ends that. Calls `tell` each time it begins to carry
    /// them, and when an interface is gone.
    ///
    /// # Errors
    ///
    /// If it cannot go on, or cannot detach. The message tells what stays attached.
    pub async fn run(
        mut self,
        orders: &mut Orders<Reason<F::Plan>>,
        observer: &F::Observer,
        mut tell: impl FnMut(Progress<'_, F>) -> Result<()>,
    ) -> Result<()> {
        let mut was_ready = false;
        let mut changed = Changed::all(&self.attached);
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
            let attached = &mut self.attached;
            let end = F::run(attached, plan, &missing, orders, observer, |attached| {
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

    /// All names, for messages about the whole group.
    pub(super) fn name(&self) -> String {
        self.names.join(", ")
    }

    /// Does what the daemon paused for.
    fn obey(&mut self, reason: Reason<F::Plan>) -> Next {
        let changed = match reason {
            Reason::Change { plan, done } => {
                let result = self.change(*plan);
                let replaced = matches!(result, Ok(true));
                let _gone = done.send(result.map(|_| ()));
                self.changed(replaced)
            }
            Reason::Join { name, done } => {
                let is_new = !self.names.contains(&name);
                let joined = if is_new {
                    self.join(name)
                } else {
                    Ok(Changed::default())
                };
                let (result, changed) = match joined {
                    Ok(changed) => (Ok(is_new), changed),
                    Err(error) => (Err(error), Changed::default()),
                };
                let _gone = done.send(result);
                changed
            }
            Reason::Leave { name, done } => {
                let _gone = done.send(self.leave(&name));
                Changed::default()
            }
            Reason::Amend(amend) => {
                let mut plan = self.plan.clone();
                amend(&mut plan);
                let result = self.change(plan);
                let replaced = result.unwrap_or_else(|error| {
                    warn!("{}: cannot be changed: {error:#}", self.name());
                    false
                });
                self.changed(replaced)
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

    /// What a change of the plan changed, which replaced the programs or did not.
    fn changed(&self, replaced: bool) -> Changed {
        match replaced {
            true => Changed::all(&self.attached),
            false => Changed::default(),
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
            "the programs stay attached, without a daemon; \
             `xdptun attach --iface {name} ...` or `xdptun run` starts one"
        ))
    }
}

/// Says that a new daemon knows the interfaces of a group by the names that they have now;
/// returns whether there are any.
fn keep_names(group: &Path) -> Result<bool> {
    if !pins::has_maps(group)? {
        return Ok(false);
    }
    let mut engine = EngineMaps::from_pins(group)?;
    let attachments = engine.attachments()?;
    for (ifindex, mut attachment) in attachments.clone() {
        if let Some(name) = name_of(ifindex) {
            attachment.name = name_bytes(&name)?;
            engine.set_attachment(ifindex, attachment)?;
        }
    }
    Ok(attachments
        .keys()
        .any(|ifindex| name_of(*ifindex).is_some()))
}

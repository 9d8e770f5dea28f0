//! One interface from attach to detach. The tunnel carries its datagrams, changes with the
//! configuration, and follows the interface when it goes and comes back.

use tracing::{info, warn};

use super::attach::Attached;
use super::daemon::{self, End, Observer, Orders};
use super::handle::Reason;
use super::options::{AttachOptions, Trace};
use super::pinned::Pinned;
use super::plan::Plan;
use super::recording::Recording;
use super::take_over::{Incumbent, take_lock};
use super::wait::{Waited, wait_for};
use crate::datapath::lock::InterfaceLock;
use crate::datapath::pins;
use crate::error::{Context as _, Error, Result};
use crate::host::interface::Interface;

/// A tunnel's report of how it goes on.
pub enum Progress<'a> {
    /// It carries datagrams.
    Carrying {
        /// What is attached.
        attached: &'a mut Attached,
        /// Its plan.
        plan: &'a Plan,
        /// Whether the programs were just loaded.
        anew: bool,
    },
    /// The interface is gone; the tunnel waits for it.
    Waiting,
}

/// What a tunnel does after its daemon has ended.
enum Next {
    /// It carries datagrams again.
    Carry { programs_are_new: bool },
    /// It leaves everything attached, for another process.
    Leave,
    /// It detaches.
    Detach,
}

/// An interface, and what is attached to it.
pub struct Tunnel {
    plan: Plan,
    pub(super) attached: Attached,
    /// Whether another process attached it.
    taken_over: bool,
    /// The recording, if a client captures.
    pub(super) recording: Option<Recording>,
    _lock: InterfaceLock,
}

impl Tunnel {
    /// Attaches, or goes on with what a process left attached. On failure everything is
    /// as it was.
    ///
    /// # Errors
    ///
    /// The message names the step, the cause and the way out. Of these
    /// [kinds](crate::error::Kind):
    ///
    /// * `NoInterface`: [`wait_for`] waits for it;
    /// * `AlreadyAttached`: another process keeps the interface;
    /// * `Busy`: another process is just attaching, or did not leave in time;
    /// * `CannotChange`: the plan wants another value of an option that is fixed while it is
    ///   attached; detach first;
    /// * `OtherVersion`: another version attached what is there; detach first;
    /// * `OtherNamespace`: it was attached in another mount namespace, and is seen only
    ///   there;
    /// * `XdpTaken`, `XdpUnsupported`: the plan asks for XDP, and the interface does not take
    ///   it;
    /// * `Unsupported`: the link layer of the interface is one that xdptun does not know;
    /// * `Permission`, `Kernel`: the kernel refused a step.
    pub fn attach(name: &str, plan: Plan, incumbent: Incumbent) -> Result<Self> {
        let interface = Interface::find(name)?;
        pins::mount_bpffs()?;
        let directory = pins::directory(interface.index)?;
        let options = plan.options();
        let lock = take_lock(&interface, &directory, incumbent, &options)?;
        let attached = match Pinned::open(interface.index)? {
            Some(mut pinned) => {
                pinned.keep_as(name)?;
                Attached::adopt(interface, &options, &pinned)?
            }
            None => Attached::new(interface, &options)?,
        };
        Ok(Self {
            taken_over: attached.adopted.is_some(),
            plan,
            attached,
            recording: None,
            _lock: lock,
        })
    }

    /// Carries datagrams until an order ends that. Calls `tell` each time it begins to carry
    /// them, and when the interface is gone.
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
        let name = self.attached.interface.name.clone();
        let mut was_ready = false;
        let mut anew = true;
        loop {
            let plan = &self.plan;
            let (attached, timers) = (&mut self.attached, plan.timers);
            let end = daemon::run(attached, timers, orders, observer, |attached| {
                tell(Progress::Carrying {
                    attached,
                    plan,
                    anew,
                })?;
                was_ready = true;
                Ok(())
            })
            .await;
            let next = match end {
                Ok(End::Stopped) => Next::Detach,
                Ok(End::Paused(reason)) => self.obey(reason, &name),
                Ok(End::InterfaceGone) => {
                    warn!("{name}: the interface is gone; waiting for it to come back");
                    tell(Progress::Waiting)?;
                    self.end_recording("the interface is gone");
                    match wait_for(&name, orders, &mut self.plan).await? {
                        Waited::Found(interface) => {
                            self = self.follow(interface, &name)?;
                            Next::Carry {
                                programs_are_new: true,
                            }
                        }
                        Waited::Left => {
                            info!("{name}: left to the process that takes over");
                            Next::Leave
                        }
                        Waited::Stopped => Next::Detach,
                    }
                }
                Err(error) => return Err(self.give_up(error, was_ready)),
            };
            match next {
                Next::Carry { programs_are_new } => anew = programs_are_new,
                Next::Leave => return Ok(()),
                Next::Detach => break,
            }
        }
        self.end_recording("xdptun ends");
        self.attached.detach().context("cannot detach")?;
        info!("{name}: detached");
        Ok(())
    }

    /// Does what the daemon paused for. `name` is for the log.
    fn obey(&mut self, reason: Reason, name: &str) -> Next {
        let programs_are_new = match reason {
            Reason::Change { plan, done } => {
                let changed = self.change(*plan);
                let programs_are_new = matches!(changed, Ok(true));
                let _gone = done.send(changed.map(|_| ()));
                programs_are_new
            }
            Reason::Addresses(addresses) => {
                let mut plan = self.plan.clone();
                plan.addresses = addresses;
                let changed = self.change(plan);
                changed.unwrap_or_else(|error| {
                    warn!("{name}: cannot change the peers: {error:#}");
                    false
                })
            }
            Reason::Record(recording) => {
                self.record(recording) && self.plan.options.trace == Trace::On
            }
            Reason::StopRecording => self.stop_recording() && self.plan.options.trace == Trace::On,
            Reason::Succeeded => {
                self.end_recording("another xdptun takes over");
                info!("{name}: left to the process that takes over");
                return Next::Leave;
            }
            Reason::Abandoned if self.taken_over => return Next::Leave,
            Reason::Abandoned => return Next::Detach,
        };
        Next::Carry { programs_are_new }
    }

    /// Attaches to an interface that came back.
    fn follow(mut self, interface: Interface, name: &str) -> Result<Self> {
        let followed = self.attached.follow(interface, &self.plan.options());
        self.attached = followed.with_context(|| {
            format!(
                "it came back, and cannot be attached; {}",
                stays_attached(name)
            )
        })?;
        Ok(self)
    }

    /// Gives the interface up after an error, without a leak. Returns the error with what
    /// stays attached.
    fn give_up(self, error: Error, was_ready: bool) -> Error {
        // Operators rely on the disguise: it ends only when they ask for that.
        if was_ready {
            return error.context(stays_attached(&self.attached.interface.name));
        }
        if !self.taken_over {
            return match self.attached.detach().context("cannot detach") {
                Ok(()) => error,
                Err(also) => also,
            };
        }
        let name = &self.attached.interface.name;
        error.context(format!(
            "what was attached stays so, without a daemon; \
             `xdptun attach --iface {name} ...` or `xdptun run` goes on with it"
        ))
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
            return Err(match self.attached.set(&before) {
                Ok(()) => error,
                Err(also) => error.context(format!("and cannot be undone: {also:#}")),
            });
        }
        self.plan = plan;
        Ok(other_programs)
    }

    fn replace(&mut self, options: &AttachOptions) -> Result<()> {
        // By index: another interface may have the name by now.
        let interface = Interface::at(self.attached.interface.index)?;
        let pinned = Pinned::open(interface.index)?.context("its pins are gone")?;
        self.attached = Attached::adopt(interface, options, &pinned)?;
        if let (Some(recording), Some(recorder)) = (&self.recording, self.attached.recorder.take())
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
        AttachOptions {
            record: self.recording.as_ref().map(|recording| recording.snap_len),
            ..options
        }
    }

    /// Loads the programs anew. Flows go on: the new programs use the same table.
    pub(super) fn renew(&mut self) -> Result<()> {
        self.replace(&self.options())?;
        self.attached.adopted = None;
        Ok(())
    }
}

/// Tells what stays attached to an interface that was given up, and how to remove it.
fn stays_attached(name: &str) -> String {
    format!(
        "the programs stay attached, so that nothing leaks; \
         `xdptun detach --iface {name}` removes them"
    )
}

//! One group of interfaces of the service, from the wait for one of them to its end; and which
//! interfaces form a group.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use nix::net::if_::if_nametoindex;
use tokio::sync::oneshot;
use tracing::warn;
use xdptun_common::member::ROWS;

use super::FunctionFrontend;
use super::function::ServiceFunction;
use super::prepared::Prepared;
use super::states::{InterfaceState, InterfaceStates};
use crate::control::Socket;
use crate::datapath::device;
use crate::error::{Error, Kind, Result};
use crate::group::{
    Function, Group, Incumbent, Orders, Progress, Reason, Waited, detach, wait_for,
};
use crate::host::interface::Interface;
use crate::tunnel::{Plan, Tunnel};

/// Puts interfaces with equal plans into one group, unless they are in different VRFs. Those
/// that a process left attached stay in the groups that they have.
///
/// # Errors
///
/// If interfaces of one group have different plans.
pub fn form_groups(all: Vec<Prepared>) -> Result<Vec<Prepared>> {
    let mut groups: Vec<(Option<PathBuf>, Prepared)> = Vec::new();
    let mut free = Vec::new();
    for prepared in all {
        let Some(pins) = prepared.pins()? else {
            free.push(prepared);
            continue;
        };
        match groups
            .iter_mut()
            .find(|(one, _)| one.as_ref() == Some(&pins))
        {
            Some((_, group)) if group.plan == prepared.plan => group.add(prepared),
            Some((_, group)) => {
                let first = group.interfaces.first().map_or("", String::as_str);
                let why = format!(
                    "{} and {} were left attached as one group, so they must have the same \
                     settings; give them equal tables, or run `xdptun detach --iface {first}` \
                     before the start",
                    group.name(),
                    prepared.name()
                );
                return Err(Error::new(Kind::CannotChange, why));
            }
            None => {
                if let Some((_, other)) = groups.iter().find(|(_, one)| one.plan == prepared.plan) {
                    warn!(
                        "{} and {} were attached apart and do not share flows; to share them, \
                         detach both and attach them together",
                        other.name(),
                        prepared.name()
                    );
                }
                groups.push((Some(pins), prepared));
            }
        }
    }
    let with_vrf = |group: Prepared| (group.vrf(), group);
    let mut groups: Vec<_> = groups
        .into_iter()
        .map(|(_, group)| with_vrf(group))
        .collect();
    for (own, prepared) in free.into_iter().map(with_vrf) {
        let takes = |(vrf, group): &&mut (Option<u32>, Prepared)| {
            *vrf == own && group.plan == prepared.plan && group.interfaces.len() < ROWS as usize
        };
        match groups.iter_mut().find(takes) {
            Some((_, group)) => group.add(prepared),
            None => groups.push((own, prepared)),
        }
    }
    Ok(groups.into_iter().map(|(_, group)| group).collect())
}

/// Takes interfaces out of the groups that they were left in, if no process keeps these, and the
/// configuration does not have them there any more.
///
/// # Errors
///
/// If one cannot be removed.
pub fn part(all: &[Prepared]) -> Result<()> {
    let mut groups: BTreeMap<PathBuf, (&Plan, Vec<u32>)> = BTreeMap::new();
    for prepared in all {
        if let (Some(pins), Some(ifindex)) = (prepared.pins()?, prepared.ifindex()) {
            let (plan, stay) = groups.entry(pins).or_insert((&prepared.plan, Vec::new()));
            if **plan == prepared.plan {
                stay.push(ifindex);
            }
        }
    }
    for (pins, (_, stay)) in groups {
        detach::keep_only::<Tunnel>(&pins, &stay)?;
    }
    Ok(())
}

/// Why two interfaces cannot have different tables.
pub fn must_be_equal(one: &Prepared, other: &Prepared) -> Error {
    let (one, other) = (one.name(), other.name());
    let why = format!(
        "{one} and {other} share their flows, so they must have the same settings; to separate \
         them, take one out of the file, reload, put it back, and reload again"
    );
    Error::new(Kind::CannotChange, why)
}

/// The task that carries a group of a function.
pub struct GroupTask<F: Function> {
    /// The names that the configuration has for its interfaces.
    pub names: Vec<String>,
    /// Whether to wait for interfaces that do not exist.
    pub patient: bool,
    /// What becomes of a process that keeps them.
    pub incumbent: Incumbent,
    pub frontend: Rc<dyn FunctionFrontend<F>>,
    pub states: InterfaceStates,
    /// Where the service listens. It appears before `ready:` is printed, whose reader may send a
    /// command at once.
    pub socket: Option<Rc<Socket>>,
    /// Notified when the function works, or the task waits for all interfaces.
    pub begun: Option<oneshot::Sender<()>>,
}

impl<F: ServiceFunction> GroupTask<F> {
    /// Runs until an order ends it.
    ///
    /// # Errors
    ///
    /// If the interfaces cannot be attached, or not be carried any longer.
    pub async fn run(self, plan: F::Plan, orders: Orders<Reason<F::Plan>>) -> Result<()> {
        let made = F::make_device(&plan)?;
        let result = self.carry(plan, orders).await;
        if made
            && result.is_err()
            && let Some(device) = F::PROGRAMS.device
        {
            device::remove_unused(F::PROGRAMS, device)?;
        }
        result
    }

    async fn carry(mut self, mut plan: F::Plan, mut orders: Orders<Reason<F::Plan>>) -> Result<()> {
        if !self.patient {
            for name in &self.names {
                Interface::find(name)?;
            }
        }
        let group = loop {
            if self.is_gone() {
                for name in &self.names {
                    warn!("{name}: no such interface yet; waiting for it");
                    self.states.set(name, InterfaceState::Waiting);
                }
                self.begin();
                match wait_for(&mut self.names, &mut orders, &mut plan).await? {
                    Waited::Found => {}
                    Waited::Left | Waited::Stopped => return Ok(()),
                }
            }
            let names = F::interfaces(&mut plan, &self.names)?;
            match Group::attach(&names, plan.clone(), self.incumbent) {
                // The interfaces went meanwhile: wait for them.
                Err(_) if self.is_gone() => {}
                attached => break attached?,
            }
        };
        let frontend = Rc::clone(&self.frontend);
        let tell = |progress: Progress<'_, F>| {
            match progress {
                Progress::Loaded { attached, plan } => frontend.loaded(attached, plan)?,
                Progress::Waiting(name) => self.states.set(name, InterfaceState::Waiting),
                Progress::GivenUp(name, why) => {
                    let why = InterfaceState::GivenUp(format!("{why:#}"));
                    self.states.set(name, why);
                }
                Progress::Carrying {
                    attached,
                    interface,
                    plan,
                    anew,
                } => {
                    if let Some(carried) = attached.at(interface) {
                        if anew {
                            if let Some(socket) = &self.socket {
                                let appeared = socket.appear_if_free();
                                appeared.unwrap_or_else(|error| warn!("{error:#}"));
                            }
                            frontend.ready(attached, carried, plan)?;
                        }
                        match F::describe(attached, carried, plan)? {
                            Some(words) => {
                                let state = InterfaceState::Carrying(words);
                                self.states.set(&carried.kept_as, state);
                            }
                            // It may have been waited for.
                            None => self.states.forget(&carried.kept_as),
                        }
                    }
                    self.begin();
                }
            }
            Ok(())
        };
        group.run(&mut orders, frontend.observer(), tell).await
    }

    fn is_gone(&self) -> bool {
        let is_there = |name: &String| if_nametoindex(name.as_str()).is_ok();
        self.patient && !self.names.iter().any(is_there)
    }

    fn begin(&mut self) {
        if let Some(begun) = self.begun.take() {
            let _gone = begun.send(());
        }
    }
}

//! The policy of the service: one group of all interfaces with rules, which share its maps.

use std::collections::BTreeSet;
use std::rc::Rc;

use nix::net::if_::if_nametoindex;

use super::change::change;
use super::conflicts::keeper;
use super::states::{InterfaceState, InterfaceStates, waited_for};
use super::{FunctionFrontend, Service};
use crate::error::Result;
use crate::group::check::check;
use crate::group::{Handle, Incumbent, Order, detach};
use crate::host::interface::Interface;
use crate::policy::{Plan, Policy};

/// The group of the policy.
pub struct RunningPolicy {
    pub id: u32,
    pub handle: Handle<Plan>,
    plan: Plan,
    /// Interfaces that have no rules any more, and have not left.
    owes_leave: BTreeSet<String>,
}

impl Service {
    /// Checks that the interfaces of a plan that are there can have it.
    ///
    /// # Errors
    ///
    /// Names what cannot change.
    pub(super) fn check_policy(plan: &Plan) -> Result<()> {
        let options = plan.options();
        let mut present = plan
            .interfaces()
            .filter(|name| if_nametoindex(name.as_str()).is_ok());
        present.try_for_each(|name| check::<Policy>(&options, name))
    }

    /// Checks the policy before the start.
    ///
    /// # Errors
    ///
    /// As [`Service::check_policy`]; without a file also if an interface is missing.
    pub(super) fn check_policy_at_start(&self, plan: &Plan) -> Result<()> {
        if self.mode.file.is_none() {
            plan.interfaces()
                .try_for_each(|name| Interface::find(name).map(drop))?;
        }
        if self.mode.incumbent == Incumbent::Respect {
            for name in plan.interfaces() {
                // A process that keeps an interface fails the start anyway.
                if keeper::<Policy>(name)?.is_some() {
                    return Ok(());
                }
            }
        }
        Self::check_policy(plan)
    }

    /// Starts the policy; returns when it searches, or the service waits for its interfaces.
    ///
    /// # Errors
    ///
    /// If it cannot be attached.
    pub(super) async fn start_policy(&mut self, plan: Plan) -> Result<()> {
        let names: Vec<String> = plan.interfaces().cloned().collect();
        let states = self.policy_states.clone();
        let frontend: Rc<dyn FunctionFrontend<Policy>> = Rc::clone(&self.frontend) as _;
        let (id, handle, begun) = self.spawn(&names, plan.clone(), states, frontend);
        self.policy = Some(RunningPolicy {
            id,
            handle,
            plan,
            owes_leave: BTreeSet::new(),
        });
        self.until_begun(id, begun, &names.join(", ")).await
    }

    /// The plan that the policy has.
    pub(super) fn policy_plan(&self) -> Option<Plan> {
        self.policy.as_ref().map(|policy| policy.plan.clone())
    }

    /// The first half of a reload, which can be undone: starts the policy, or gives it another plan
    /// and the interfaces of that. Adds a line to `done` for each interface with other rules;
    /// returns the interfaces that it added. On failure everything is as it was.
    ///
    /// # Errors
    ///
    /// If it cannot be started or changed.
    pub(super) async fn begin_policy(
        &mut self,
        plan: Option<&Plan>,
        done: &mut Vec<String>,
    ) -> Result<Vec<String>> {
        let Some(plan) = plan else {
            return Ok(Vec::new());
        };
        let states = self.policy_states.clone();
        let Some(before) = self.policy_plan() else {
            let started = self.start_policy(plan.clone()).await;
            if started.is_err() {
                states.names().iter().for_each(|name| states.forget(name));
            }
            started?;
            done.extend(
                plan.interfaces()
                    .map(|name| begun_line(plan, name, &states)),
            );
            return Ok(Vec::new());
        };
        let was_given_up = plan.interfaces().any(|name| states.is_given_up(name));
        if before == *plan && !was_given_up {
            return Ok(Vec::new());
        }
        let joined = self.replace_policy(plan).await?;
        for (name, rules) in &plan.rules {
            match before.rules.get(name) {
                None => done.push(begun_line(plan, name, &states)),
                Some(old) if old != rules => done.push(format!("{name}: new policy rules apply")),
                Some(_) => {}
            }
        }
        Ok(joined)
    }

    /// Undoes the first half, which added these interfaces.
    ///
    /// # Errors
    ///
    /// If that fails.
    pub(super) async fn undo_policy(
        &mut self,
        before: Option<Plan>,
        joined: Vec<String>,
    ) -> Result<()> {
        let Some(before) = before else {
            return self.stop_policy().await;
        };
        self.replace_policy(&before).await?;
        if let Some(policy) = &mut self.policy {
            policy.owes_leave.extend(joined);
        }
        self.leave_policy().await.map(drop)
    }

    /// The second half: takes the interfaces out that have no rules any more, and ends the policy
    /// with the last one. Adds a line to `done` for each.
    ///
    /// # Errors
    ///
    /// If one cannot be detached.
    pub(super) async fn end_policy(
        &mut self,
        plan: Option<&Plan>,
        done: &mut Vec<String>,
    ) -> Result<()> {
        let gone = match plan {
            Some(_) => self.leave_policy().await?,
            None => {
                let mut gone = self.policy_states.names();
                gone.extend(
                    self.policy_plan()
                        .into_iter()
                        .flat_map(|plan| plan.rules.into_keys()),
                );
                gone.sort_unstable();
                gone.dedup();
                self.stop_policy().await?;
                for name in &gone {
                    // It may have been given up, and its programs be there.
                    detach::remove_remains::<Policy>(name)?;
                    self.policy_states.forget(name);
                }
                gone
            }
        };
        done.extend(
            gone.iter()
                .map(|name| format!("{name}: no longer searched")),
        );
        Ok(())
    }

    /// Gives the running policy another plan, and the interfaces of that; returns those that it did
    /// not have. On failure it has the old ones.
    async fn replace_policy(&mut self, plan: &Plan) -> Result<Vec<String>> {
        let Some(policy) = &mut self.policy else {
            return Ok(Vec::new());
        };
        let names = plan.interfaces().cloned().collect();
        let joined = change(&policy.handle, &policy.plan, plan, names).await?;
        let before = std::mem::replace(&mut policy.plan, plan.clone());
        policy.owes_leave.extend(before.rules.into_keys());
        policy
            .owes_leave
            .retain(|name| !plan.rules.contains_key(name));
        for name in &joined {
            if if_nametoindex(name.as_str()).is_err() {
                self.policy_states.set(name, InterfaceState::Waiting);
            }
        }
        Ok(joined)
    }

    /// Takes the interfaces out of the group that have no rules any more; their names.
    async fn leave_policy(&mut self) -> Result<Vec<String>> {
        let mut gone = Vec::new();
        while let Some(policy) = &mut self.policy
            && let Some(name) = policy.owes_leave.first().cloned()
        {
            policy.handle.leave(name.clone()).await?;
            policy.owes_leave.remove(&name);
            self.policy_states.forget(&name);
            gone.push(name);
        }
        Ok(gone)
    }

    async fn stop_policy(&mut self) -> Result<()> {
        let Some(policy) = &self.policy else {
            return Ok(());
        };
        policy.handle.order(Order::Stop);
        let id = policy.id;
        let ended = self.until_ended(id).await;
        for name in self.policy_states.names() {
            match &ended {
                Ok(()) => self.policy_states.forget(&name),
                Err(error) => {
                    let why = InterfaceState::GivenUp(format!("{error:#}"));
                    self.policy_states.set(&name, why);
                }
            }
        }
        ended
    }
}

fn begun_line(plan: &Plan, name: &str, states: &InterfaceStates) -> String {
    match states.is_waiting(name) {
        true => waited_for(name),
        false => format!("{name}: {}", plan.does_on(name).unwrap_or_default()),
    }
}

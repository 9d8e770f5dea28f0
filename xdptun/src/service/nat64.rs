//! NAT64 of the service: a group of the one device that it makes.

use std::rc::Rc;

use nix::net::if_::if_nametoindex;

use super::states::{InterfaceState, waited_for};
use super::{FunctionFrontend, Service};
use crate::config::Config;
use crate::error::{Result, bail};
use crate::group::check::check;
use crate::group::{self, Handle, Incumbent, already, detach};
use crate::nat64::{DEVICE, Nat64, Pinned, Plan, preflight};

/// The group of NAT64.
pub struct RunningNat64 {
    pub id: u32,
    pub handle: Handle<Plan>,
    plan: Plan,
}

impl Service {
    /// The plan of NAT64, if the configuration has something for it. Changes nothing.
    ///
    /// # Errors
    ///
    /// If a part of its networks is routed elsewhere.
    pub(super) fn plan_nat64(&self, config: &Config) -> Result<Option<Plan>> {
        let plan = Plan::of(config);
        if let Some(plan) = &plan {
            let translates = match if_nametoindex(DEVICE) {
                Ok(ifindex) => Pinned::exists(ifindex)?,
                Err(_) => false,
            };
            preflight::refuse_routed(plan, translates)?;
        }
        Ok(plan)
    }

    /// Checks that what is attached can change to a plan.
    ///
    /// # Errors
    ///
    /// Names the option that cannot change.
    pub(super) fn check_nat64(&self, plan: &Plan) -> Result<()> {
        let is_kept = super::conflicts::keeper::<Nat64>(DEVICE)?.is_some();
        match self.mode.incumbent {
            // Before anything of the device changes.
            Incumbent::Respect if self.nat64.is_none() && is_kept => {
                bail!(AlreadyAttached, "{}", already(DEVICE))
            }
            // Without a device there is nothing to contradict.
            _ if if_nametoindex(DEVICE).is_err() => Ok(()),
            _ => check::<Nat64>(&plan.options(), DEVICE),
        }
    }

    /// Starts NAT64; returns when it translates.
    ///
    /// # Errors
    ///
    /// If it cannot be attached.
    pub(super) async fn start_nat64(&mut self, plan: Plan) -> Result<()> {
        preflight::warn_of_forwarding();
        let states = self.nat64_states.clone();
        let frontend: Rc<dyn FunctionFrontend<Nat64>> = Rc::clone(&self.frontend) as _;
        let names = [DEVICE.to_owned()];
        let (id, handle, begun) = self.spawn(&names, plan.clone(), states, frontend);
        self.nat64 = Some(RunningNat64 { id, handle, plan });
        self.until_begun(id, begun, DEVICE).await
    }

    /// The first half of a reload, which can be undone: starts NAT64, or gives it another plan. Adds a
    /// line to `done` if it did; returns the plan that it had. On failure everything is as it was.
    ///
    /// # Errors
    ///
    /// If it cannot be started or changed.
    pub(super) async fn begin_nat64(
        &mut self,
        plan: Option<&Plan>,
        done: &mut Vec<String>,
    ) -> Result<()> {
        let Some(plan) = plan else {
            return Ok(());
        };
        match &mut self.nat64 {
            None => {
                self.start_nat64(plan.clone()).await?;
                done.push(match self.nat64_states.is_waiting(DEVICE) {
                    true => waited_for(DEVICE),
                    false => format!("{DEVICE}: {}", plan.does()),
                });
            }
            Some(running) if running.plan == *plan => {}
            Some(running) => {
                running.handle.change(plan.clone()).await?;
                running.plan = plan.clone();
                done.push(format!("{DEVICE}: changed"));
            }
        }
        Ok(())
    }

    /// Undoes the first half.
    ///
    /// # Errors
    ///
    /// If that fails.
    pub(super) async fn undo_nat64(&mut self, before: Option<Plan>) -> Result<()> {
        match (&mut self.nat64, before) {
            (Some(running), Some(before)) => {
                running.handle.change(before.clone()).await?;
                running.plan = before;
                Ok(())
            }
            _ => self.stop_nat64().await,
        }
    }

    /// The second half: ends NAT64 if the file does not name it any more. Adds a line to `done` then.
    ///
    /// # Errors
    ///
    /// If it cannot be detached.
    pub(super) async fn end_nat64(
        &mut self,
        plan: Option<&Plan>,
        done: &mut Vec<String>,
    ) -> Result<()> {
        if plan.is_some() || self.nat64_states.names().is_empty() {
            return Ok(());
        }
        self.stop_nat64().await?;
        // It may have been given up, and its program be there.
        detach::remove_remains::<Nat64>(DEVICE)?;
        self.nat64_states.forget(DEVICE);
        done.push(format!("{DEVICE}: removed"));
        Ok(())
    }

    /// The plan that NAT64 has.
    pub(super) fn nat64_plan(&self) -> Option<Plan> {
        self.nat64.as_ref().map(|nat64| nat64.plan.clone())
    }

    async fn stop_nat64(&mut self) -> Result<()> {
        let Some(nat64) = &self.nat64 else {
            return Ok(());
        };
        nat64.handle.order(group::Order::Stop);
        let id = nat64.id;
        let ended = self.until_ended(id).await;
        match &ended {
            Ok(()) => self.nat64_states.forget(DEVICE),
            Err(error) => {
                let why = InterfaceState::GivenUp(format!("{error:#}"));
                self.nat64_states.set(DEVICE, why);
            }
        }
        ended
    }
}

//! The gateway in a reload: first what can be undone, and what it takes away at the end.

use nix::net::if_::if_nametoindex;

use super::follow_routes;
use crate::config::Nat;
use crate::error::Result;
use crate::gateway::cut::CutOrder;
use crate::gateway::{Gateway, Plan, preflight};
use crate::group::{self, detach};
use crate::service::Service;
use crate::service::change::change;
use crate::service::states::{InterfaceState, InterfaceStates, waited_for};

impl Service {
    /// The first half of a reload, which can be undone: starts the gateway, or gives it another
    /// plan and the interfaces of that. Takes nothing away. Adds a line to `done` for each
    /// interface with other rules; returns the interfaces that a change added. On failure
    /// everything is as it was.
    ///
    /// # Errors
    ///
    /// If it cannot be started or changed.
    pub(in crate::service) async fn begin_gateway(
        &mut self,
        plan: Option<&Plan>,
        drains: bool,
        done: &mut Vec<String>,
    ) -> Result<Vec<String>> {
        let Some(plan) = plan else {
            return Ok(Vec::new());
        };
        let mut plan = plan.clone();
        plan.cut = self
            .gateway
            .as_ref()
            .map_or(CutOrder::default(), |gateway| gateway.plan.cut);
        let plan = &plan;
        match self.gateway_plan() {
            None => {
                self.restart_gateway(plan, drains, done).await?;
                Ok(Vec::new())
            }
            Some(before) if self.has_all_of(&before, plan) => Ok(Vec::new()),
            Some(before) => {
                let joined = self.replace_plan(plan).await?;
                done.extend(self.changes_of(&before, plan));
                Ok(joined)
            }
        }
    }

    /// Whether the gateway has a plan already, and no interface of it was given up.
    fn has_all_of(&self, before: &Plan, plan: &Plan) -> bool {
        let mut listeners = plan.listeners();
        before.is_same_configuration(plan)
            && !listeners.any(|name| self.gateway_states.is_given_up(name))
    }

    /// Undoes the first half, which added these interfaces.
    ///
    /// # Errors
    ///
    /// If that fails.
    pub(in crate::service) async fn undo_gateway(
        &mut self,
        before: Option<Plan>,
        joined: Vec<String>,
    ) -> Result<()> {
        let Some(mut before) = before else {
            return self.stop_gateway().await;
        };
        before.refresh()?;
        self.replace_plan(&before).await?;
        let Some(gateway) = &mut self.gateway else {
            return Ok(());
        };
        for name in joined {
            gateway.handle.leave(name.clone()).await?;
            gateway.owes_leave.remove(&name);
            self.gateway_states.forget(&name);
        }
        Ok(())
    }

    /// The second half: takes the interfaces out that the file no longer names, and ends the
    /// gateway with the last one. Adds a line to `done` for each. Unless the gateway `drains`, it
    /// ends the sessions that no rule has any more.
    ///
    /// # Errors
    ///
    /// If one cannot be detached.
    pub(in crate::service) async fn end_gateway(
        &mut self,
        before: Option<&Plan>,
        plan: Option<&Plan>,
        drains: bool,
        done: &mut Vec<String>,
    ) -> Result<()> {
        let states = self.gateway_states.clone();
        let Some(plan) = plan else {
            let names = states.names();
            let listeners =
                before.map_or(names.clone(), |plan| plan.listeners().cloned().collect());
            self.stop_gateway().await?;
            for name in names {
                // It may have been given up, and its programs be there.
                detach::remove_remains::<Gateway>(&name)?;
                states.forget(&name);
            }
            done.extend(listeners.iter().map(|name| ended_line(name)));
            return Ok(());
        };
        let needed = plan.interfaces();
        if let Some(gateway) = &mut self.gateway {
            while let Some(name) = gateway.owes_leave.first().cloned() {
                // Interfaces that only older sessions leave by stay, for those sessions.
                if !needed.contains(&name) {
                    gateway.handle.leave(name.clone()).await?;
                }
                gateway.owes_leave.remove(&name);
                states.forget(&name);
                done.push(ended_line(&name));
            }
        }
        self.cut_sessions(drains).await
    }

    /// Ends the sessions that no rule has any more, if the rules have changed; unless it `drains`.
    ///
    /// # Errors
    ///
    /// If the tables cannot be changed.
    async fn cut_sessions(&mut self, drains: bool) -> Result<()> {
        let Some(gateway) = self.gateway.as_mut().filter(|gateway| gateway.owes_cut) else {
            return Ok(());
        };
        if drains {
            gateway.owes_cut = false;
            return Ok(());
        }
        let mut plan = gateway.plan.clone();
        plan.cut = CutOrder::now();
        // No news of routes may arrive with the order before.
        gateway.end_following();
        let changed = gateway.handle.change(plan.clone()).await;
        if changed.is_ok() {
            gateway.plan = plan;
            gateway.owes_cut = false;
        }
        gateway.routes = follow_routes(&gateway.plan, &gateway.handle);
        changed
    }

    /// Starts the gateway, also after it was given up.
    async fn restart_gateway(
        &mut self,
        plan: &Plan,
        drains: bool,
        done: &mut Vec<String>,
    ) -> Result<()> {
        let states = self.gateway_states.clone();
        let given_up = states.names();
        let started = self.start_gateway(plan.clone(), drains).await;
        for name in states.names() {
            match &started {
                Ok(()) if plan.forwards.contains_key(&name) => {}
                Err(error) if given_up.contains(&name) => {
                    states.set(&name, InterfaceState::GivenUp(format!("{error:#}")));
                }
                Ok(()) | Err(_) => states.forget(&name),
            }
        }
        started?;
        done.extend(plan.listeners().map(|name| begun_line(plan, name, &states)));
        Ok(())
    }

    /// Gives the running gateway another plan, and the interfaces of that; returns those that it
    /// did not have. On failure it has the old ones.
    async fn replace_plan(&mut self, plan: &Plan) -> Result<Vec<String>> {
        let Some(gateway) = &mut self.gateway else {
            return Ok(Vec::new());
        };
        preflight::warn_of_routing(plan);
        // No news of the old routes may arrive after the new plan.
        gateway.end_following();
        let changed = change(&gateway.handle, &gateway.plan, plan, plan.interfaces()).await;
        // Also if it was put back: sessions may have begun meanwhile.
        gateway.owes_cut = true;
        if changed.is_ok() {
            let before = std::mem::replace(&mut gateway.plan, plan.clone());
            gateway.owes_leave.extend(before.listeners().cloned());
            let rules = &plan.forwards;
            gateway.owes_leave.retain(|name| !rules.contains_key(name));
        }
        gateway.routes = follow_routes(&gateway.plan, &gateway.handle);
        let joined = changed?;
        for name in &joined {
            if plan.forwards.contains_key(name) && if_nametoindex(name.as_str()).is_err() {
                self.gateway_states.set(name, InterfaceState::Waiting);
            }
        }
        Ok(joined)
    }

    /// What a change of plans changes on each interface that the new one names.
    fn changes_of(&self, before: &Plan, plan: &Plan) -> Vec<String> {
        let changes =
            plan.forwards
                .iter()
                .filter_map(|(name, forwards)| match before.forwards.get(name) {
                    None => Some(begun_line(plan, name, &self.gateway_states)),
                    Some(old) if old != forwards || nat_of(before, name) != nat_of(plan, name) => {
                        Some(format!("{name}: new rules apply"))
                    }
                    Some(_) if plan.timers != before.timers => {
                        Some(format!("{name}: new session timeouts apply"))
                    }
                    Some(_) => None,
                });
        changes.collect()
    }

    async fn stop_gateway(&mut self) -> Result<()> {
        let Some(gateway) = &mut self.gateway else {
            return Ok(());
        };
        gateway.end_following();
        gateway.handle.order(group::Order::Stop);
        let id = gateway.id;
        let ended = self.until_ended(id).await;
        for name in self.gateway_states.names() {
            match &ended {
                Ok(()) => self.gateway_states.forget(&name),
                Err(error) => {
                    let why = InterfaceState::GivenUp(format!("{error:#}"));
                    self.gateway_states.set(&name, why);
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

fn ended_line(name: &str) -> String {
    format!("{name}: no longer forwards or translates")
}

fn nat_of<'a>(plan: &'a Plan, name: &str) -> Option<&'a Nat> {
    plan.nats.get(name)
}

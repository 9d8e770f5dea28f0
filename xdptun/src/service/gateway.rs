//! The gateway of the service: one group of all interfaces that forward, as a session may come
//! in by one and leave by another.

use std::collections::BTreeSet;
use std::rc::Rc;

use nix::net::if_::if_nametoindex;
use tokio::task::spawn_local;
use tracing::warn;

use super::states::{InterfaceState, InterfaceStates};
use super::{Service, Shows};
use crate::config::Config;
use crate::error::{Context as _, Result};
use crate::gateway::{Gateway, Plan, follow, preflight};
use crate::group::check::check;
use crate::group::{Handle, Incumbent, Order};
use crate::process::task::Task;

/// The group of the gateway.
pub struct RunningGateway {
    pub id: u32,
    pub handle: Handle<Plan>,
    plan: Plan,
    /// Follows the routes to its back ends.
    routes: Task,
}

impl RunningGateway {
    /// Tells it nothing of routes any more.
    pub fn end_following(&mut self) {
        self.routes.end();
    }
}

impl Service {
    /// The plan of the gateway, if the configuration has something for it. Changes nothing.
    ///
    /// # Errors
    ///
    /// If the configuration cannot be put into practice on this host.
    pub(super) fn plan_gateway(&self, config: &Config) -> Result<Option<Plan>> {
        let Some(plan) = Plan::of(config)? else {
            return Ok(None);
        };
        let before = self.gateway.as_ref().map(|gateway| &gateway.plan);
        preflight::refuse_served(&plan, before)?;
        Ok(Some(plan))
    }

    /// Checks that what is attached can change to a plan.
    ///
    /// # Errors
    ///
    /// Names the option that cannot change.
    pub(super) fn check_gateway(&self, plan: &Plan) -> Result<()> {
        let options = plan.options();
        let mut present = plan.listeners().filter(|name| {
            let is_there = if_nametoindex(name.as_str()).is_ok();
            is_there || self.gateway.is_some()
        });
        present.try_for_each(|name| check::<Gateway>(&options, name))
    }

    /// Starts the gateway; returns when it forwards, or the service waits for its interfaces.
    ///
    /// # Errors
    ///
    /// If it cannot be attached.
    pub(super) async fn start_gateway(&mut self, plan: Plan) -> Result<()> {
        preflight::warn_of_routing(&plan);
        let names: Vec<String> = plan.listeners().cloned().collect();
        let states = self.gateway_states.clone();
        let frontend: Rc<dyn Shows<Gateway>> = Rc::clone(&self.frontend) as _;
        let (id, handle, begun) = self.spawn(&names, plan.clone(), states, frontend);
        self.gateway = Some(RunningGateway {
            id,
            routes: follow_routes(&plan, &handle),
            handle,
            plan,
        });
        self.until_begun(id, begun, &names.join(", ")).await
    }

    /// Gives the gateway another plan, starts or ends it; adds a line to `done` for each
    /// interface with other rules. On failure it is as it was.
    ///
    /// # Errors
    ///
    /// If it cannot be changed.
    pub(super) async fn change_gateway(
        &mut self,
        plan: Option<Plan>,
        done: &mut Vec<String>,
    ) -> Result<()> {
        match (&self.gateway, plan) {
            (None, None) => self.forget_gateway(),
            (None, Some(plan)) => {
                self.forget_gateway();
                let states = self.gateway_states.clone();
                self.start_gateway(plan.clone()).await?;
                done.extend(plan.listeners().map(|name| begun(&plan, name, &states)));
            }
            (Some(_), None) => {
                let names = self.gateway_states.names();
                self.stop_gateway().await?;
                done.extend(names.iter().map(|name| ended(name)));
            }
            (Some(gateway), Some(plan)) if gateway.plan.is_same_configuration(&plan) => {}
            (Some(_), Some(plan)) => self.replace_gateway(plan, done).await?,
        }
        Ok(())
    }

    /// The plan that the gateway has.
    pub(super) fn gateway_plan(&self) -> Option<Plan> {
        self.gateway.as_ref().map(|gateway| gateway.plan.clone())
    }

    async fn replace_gateway(&mut self, plan: Plan, done: &mut Vec<String>) -> Result<()> {
        let Some(gateway) = &mut self.gateway else {
            return Ok(());
        };
        preflight::warn_of_routing(&plan);
        // No news of the old routes may arrive after the new plan.
        gateway.end_following();
        let before = gateway.plan.clone();
        let changed = change(&gateway.handle, &before, &plan).await;
        let present = if changed.is_ok() { &plan } else { &before };
        gateway.routes = follow_routes(present, &gateway.handle);
        gateway.plan = present.clone();
        changed?;
        let states = &self.gateway_states;
        for name in before.listeners() {
            match plan.forwards.get(name) {
                None => {
                    states.forget(name);
                    done.push(ended(name));
                }
                Some(forwards) if *forwards != before.forwards[name] => {
                    done.push(format!("{name}: forwards by other rules"));
                }
                Some(_) if plan.timers != before.timers => {
                    done.push(format!("{name}: sessions have other timeouts"));
                }
                Some(_) => {}
            }
        }
        for name in plan.listeners() {
            if !before.forwards.contains_key(name) {
                if if_nametoindex(name.as_str()).is_err() {
                    states.set(name, InterfaceState::Waiting);
                }
                done.push(begun(&plan, name, states));
            }
        }
        Ok(())
    }

    async fn stop_gateway(&mut self) -> Result<()> {
        let Some(gateway) = &mut self.gateway else {
            return Ok(());
        };
        gateway.end_following();
        gateway.handle.order(Order::Stop);
        let id = gateway.id;
        let ended = self.until_ended(id).await;
        if ended.is_ok() {
            self.forget_gateway();
        }
        ended
    }

    /// Forgets what was given up.
    fn forget_gateway(&self) {
        for name in self.gateway_states.names() {
            self.gateway_states.forget(&name);
        }
    }

    /// Checks the gateway before the start.
    ///
    /// # Errors
    ///
    /// As [`Service::check_gateway`].
    pub(super) fn check_gateway_at_start(&self, plan: &Plan) -> Result<()> {
        match self.mode.incumbent {
            // A process that keeps an interface fails the start anyway.
            Incumbent::Respect if super::conflicts::keeps_gateway(plan)? => Ok(()),
            Incumbent::Respect | Incumbent::TakeOver => self.check_gateway(plan),
        }
    }
}

/// Gives a group another plan, and the interfaces of that; takes those out that the
/// configuration had before. On failure it has the old plan and interfaces.
async fn change(handle: &Handle<Plan>, before: &Plan, after: &Plan) -> Result<()> {
    let interfaces = |plan: &Plan| plan.interfaces().into_iter().collect::<BTreeSet<String>>();
    let (old, new) = (interfaces(before), interfaces(after));
    let mut joined = Vec::new();
    let changed = async {
        for name in new.difference(&old) {
            let join = handle.join(name.clone()).await;
            join.with_context(|| name.clone())?;
            joined.push(name);
        }
        handle.change(after.clone()).await
    };
    if let Err(error) = changed.await {
        for name in joined {
            handle.leave(name.clone()).await?;
        }
        return Err(error);
    }
    // Those by which only sessions of before leave stay for these.
    for name in before.listeners().filter(|name| !new.contains(*name)) {
        handle.leave(name.clone()).await?;
    }
    Ok(())
}

fn begun(plan: &Plan, name: &str, states: &InterfaceStates) -> String {
    match states.is_waiting(name) {
        true => format!("{name}: waited for, as there is no such interface"),
        false => plan.forwards_by(name).unwrap_or_else(|| name.to_owned()),
    }
}

fn ended(name: &str) -> String {
    format!("{name}: forwards nothing any more")
}

/// Follows the routes to the back ends of a plan.
fn follow_routes(plan: &Plan, handle: &Handle<Plan>) -> Task {
    let following = follow::follow(plan.clone(), handle.clone());
    spawn_local(async move {
        if let Err(error) = following.await {
            warn!("routes to back ends are not followed: {error:#}");
        }
    })
    .into()
}

//! The gateway of the service: one group of all interfaces that forward, as a session may come
//! in by one and leave by another.

mod reload;

use std::collections::BTreeSet;
use std::rc::Rc;

use nix::net::if_::if_nametoindex;
use tokio::task::spawn_local;
use tracing::warn;

use super::{FunctionFrontend, Service};
use crate::config::Config;
use crate::error::{Result, bail};
use crate::gateway::cut::CutOrder;
use crate::gateway::{Gateway, Plan, follow, preflight};
use crate::group::check::check;
use crate::group::{Handle, Incumbent};
use crate::host::interface::Interface;
use crate::host::ports::PortRange;
use crate::process::task::Task;
use crate::tunnel;

/// The group of the gateway.
pub struct RunningGateway {
    pub id: u32,
    pub handle: Handle<Plan>,
    plan: Plan,
    /// Whether the rules have changed since sessions without a rule were cut, or were left to end.
    owes_cut: bool,
    /// Interfaces that have no rules any more, and have not left.
    owes_leave: BTreeSet<String>,
    /// Follows the routes to its back ends.
    routes: Task,
}

impl RunningGateway {
    /// Stops following routes.
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
        let Some(mut plan) = Plan::of(config)? else {
            return Ok(None);
        };
        for name in plan.nats.keys().cloned().collect::<Vec<_>>() {
            plan.reserve(&name, tunnelled(&name))?;
        }
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
        if let Some(RunningGateway { plan: before, .. }) = &self.gateway {
            let sessions = [before, plan].map(|plan| plan.max_sessions.get());
            let bindings = [before, plan].map(|plan| plan.max_bindings.get());
            for (key, [has, wanted]) in [("max-sessions", sessions), ("max-bindings", bindings)] {
                if has != wanted {
                    bail!(
                        CannotChange,
                        "what is attached has `{key}` {has}, which cannot become {wanted} while it \
                         is attached; leave it as it was, or take all rules and `nat` out of the \
                         file, reload, and put them back"
                    );
                }
            }
        }
        let options = plan.options();
        let mut present = plan.listeners().filter(|name| {
            let is_there = if_nametoindex(name.as_str()).is_ok();
            is_there || self.gateway.is_some()
        });
        present.try_for_each(|name| check::<Gateway>(&options, name))
    }

    /// Starts the gateway; returns when it forwards, or the service waits for its interfaces. What
    /// is attached may have sessions of other rules, which go on if it `drains`.
    ///
    /// # Errors
    ///
    /// If it cannot be attached.
    pub(super) async fn start_gateway(&mut self, mut plan: Plan, drains: bool) -> Result<()> {
        if !drains {
            plan.cut = CutOrder::now();
        }
        preflight::warn_of_routing(&plan);
        let names: Vec<String> = plan.listeners().cloned().collect();
        let states = self.gateway_states.clone();
        let frontend: Rc<dyn FunctionFrontend<Gateway>> = Rc::clone(&self.frontend) as _;
        let (id, handle, begun) = self.spawn(&names, plan.clone(), states, frontend);
        self.gateway = Some(RunningGateway {
            id,
            routes: follow_routes(&plan, &handle),
            handle,
            plan,
            owes_cut: false,
            owes_leave: BTreeSet::new(),
        });
        self.until_begun(id, begun, &names.join(", ")).await
    }

    /// The plan that the gateway has.
    pub(super) fn gateway_plan(&self) -> Option<Plan> {
        self.gateway.as_ref().map(|gateway| gateway.plan.clone())
    }

    /// Checks the gateway before the start.
    ///
    /// # Errors
    ///
    /// As [`Service::check_gateway`]; without a file also if an interface is missing.
    pub(super) fn check_gateway_at_start(&self, plan: &Plan) -> Result<()> {
        if self.mode.file.is_none() {
            // Its group would say so after the warnings about routes and addresses.
            plan.listeners()
                .try_for_each(|name| Interface::find(name).map(drop))?;
        }
        match self.mode.incumbent {
            // A process that keeps an interface fails the start anyway.
            Incumbent::Respect if super::conflicts::keeps_gateway(plan)? => Ok(()),
            Incumbent::Respect | Incumbent::TakeOver => self.check_gateway(plan),
        }
    }
}

/// The ports that the tunnel has on an interface now, also those of another process.
fn tunnelled(name: &str) -> Vec<PortRange> {
    let read = || -> Result<Vec<PortRange>> {
        let Ok(index) = if_nametoindex(name) else {
            return Ok(Vec::new());
        };
        match tunnel::Pinned::open(index)? {
            Some(pinned) => Ok(pinned.group.maps.ports()?),
            None => Ok(Vec::new()),
        }
    };
    read().unwrap_or_else(|error| {
        warn!("{name}: the tunnel's ports are not known, and may be lent: {error:#}");
        Vec::new()
    })
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

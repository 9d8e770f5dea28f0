//! The start of the service, and of each of its interfaces.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::join_all;
use nix::net::if_::if_nametoindex;
use tokio::sync::oneshot;
use tokio::task::spawn_local;
use tracing::warn;

use super::function::ServiceFunction;
use super::group::{GroupTask, form_groups, part};
use super::prepared::Prepared;
use super::states::InterfaceStates;
use super::{FunctionFrontend, Metrics, RunningGroup, Service, conflicts};
use crate::config::{Config, InterfaceConfig};
use crate::control::{Control, Place};
use crate::error::{Context as _, Error, Result, bail};
use crate::gateway::Gateway;
use crate::group::check::check;
use crate::group::{Function as _, Handle, Incumbent, Order, Reason, Trace};
use crate::nat64::{DEVICE, Nat64};
use crate::observe::metrics;
use crate::policy::{self, Policy};
use crate::process::privileges;
use crate::process::task::Task;
use crate::tunnel::resolve::{Addresses, Names};
use crate::tunnel::{Plan, Tunnel};

impl Service {
    /// Serves metrics at an address, if one is given.
    pub(super) fn serve_metrics(&self, address: Option<SocketAddr>) -> Result<Option<Metrics>> {
        let Some(address) = address else {
            return Ok(None);
        };
        let listener = metrics::bind(address, self.mode.incumbent)?;
        self.frontend.metrics(listener.local_addr()?)?;
        let server = spawn_local(async {
            if let Err(error) = metrics::serve(listener).await {
                warn!("metrics are no longer served: {error:#}");
            }
        });
        Ok(Some(Metrics {
            address,
            _server: server.into(),
        }))
    }

    /// Starts everything; returns the end that listens for commands, if there is one.
    pub(super) async fn start_all(&mut self, config: &Config) -> Result<Option<Control>> {
        self.metrics = self.serve_metrics(config.metrics)?;
        if config.interfaces.is_empty() && config.nat64.is_none() {
            warn!("no interface is configured; nothing is carried");
        }
        // First all steps whose failure leaves no trace.
        let all = self.prepare_all(config).await?;
        let gateway = self.plan_gateway(config)?;
        let policy = policy::Plan::of(config)?;
        let nat64 = self.plan_nat64(config)?;
        for prepared in &all {
            let name = &prepared.name();
            // A process that keeps the interface fails the start anyway.
            let is_free = || Ok::<_, Error>(conflicts::keeper::<Tunnel>(name)?.is_none());
            if if_nametoindex(name.as_str()).is_ok()
                && (self.mode.incumbent == Incumbent::TakeOver || is_free()?)
            {
                check::<Tunnel>(&prepared.plan.options(), name)?;
            }
        }
        if let Some(plan) = &gateway {
            self.check_gateway_at_start(plan)?;
        }
        if let Some(plan) = &policy {
            self.check_policy_at_start(plan)?;
        }
        if let Some(plan) = &nat64 {
            self.check_nat64(plan)?;
        }
        if self.mode.file.is_some() {
            part(&all)?;
        }
        let control = self.listen(config)?;
        self.socket = control.as_ref().map(Control::socket);
        // With `--take-over` the running process keeps its socket until this one has an interface.
        if let (Some(_), Incumbent::Respect) = (&self.mode.file, self.mode.incumbent) {
            self.appear()?;
        }
        // Warned of after the start: one that fails tells its error alone.
        let without_file = self.mode.file.is_none();
        let unshared = without_file.then(|| conflicts::unshared(config));
        for prepared in form_groups(all)? {
            self.start(prepared).await?;
        }
        // Before what translates the sources of its pool, and follows the routes to it.
        if let Some(plan) = nat64 {
            self.start_nat64(plan).await?;
        }
        if let Some(mut plan) = gateway {
            // The routes to the pool are new.
            plan.refresh()?;
            self.start_gateway(plan, self.mode.drains).await?;
        }
        if let Some(plan) = policy {
            self.start_policy(plan).await?;
        }
        match unshared {
            None => {}
            Some(Ok(kept)) => kept.iter().for_each(|one| one.warn(config)),
            // Pins of another version, for example: no reason not to start.
            Some(Err(error)) => {
                warn!("cannot tell whether another process carries these ports: {error:#}");
            }
        }
        // Only the start takes over; a later reload must not.
        self.mode.incumbent = Incumbent::Respect;
        privileges::give_up()?;
        // No interface may be ready yet, and clients must reach it all the same.
        self.appear()?;
        Ok(control)
    }

    /// Lets clients find the socket.
    fn appear(&self) -> Result<()> {
        self.socket
            .as_ref()
            .map_or(Ok(()), |socket| socket.appear())
    }

    /// Listens for commands. `xdptun attach`, without a file, goes on if it cannot listen.
    fn listen(&self, config: &Config) -> Result<Option<Control>> {
        let states = Rc::clone(&self.all_states);
        let status = move || states.report();
        if self.mode.file.is_some() {
            return Control::listen(Place::Service, status).map(Some);
        }
        // Without a file there is one function, or NAT64 and what translates its pool.
        let (name, programs) = match config.interfaces.first_key_value() {
            _ if config.nat64.is_some() => (DEVICE, Nat64::PROGRAMS),
            Some((name, first)) if first.has_tunnel() => (name.as_str(), Tunnel::PROGRAMS),
            Some((name, first)) if first.has_gateway() => (name.as_str(), Gateway::PROGRAMS),
            Some((name, _)) => (name.as_str(), Policy::PROGRAMS),
            None => return Ok(None),
        };
        let place = Place::Interface {
            function: programs.function,
            name,
        };
        let control = Control::listen(place, status);
        Ok(control
            .inspect_err(|error| warn!("`xdptun capture` cannot reach this process: {error:#}"))
            .ok())
    }

    /// Looks names up and reads secrets for all interfaces at once. Changes nothing.
    pub(super) async fn prepare_all(&self, config: &Config) -> Result<Vec<Prepared>> {
        let trace = Trace::from(config.log_level);
        let all = config.interfaces.iter();
        let all = all.filter(|(_, interface)| interface.has_tunnel());
        let all = all.map(async |(name, interface)| {
            let prepared = self.prepare(name, interface, trace).await;
            prepared.with_context(|| format!("interface {name}"))
        });
        join_all(all).await.into_iter().collect()
    }

    async fn prepare(
        &self,
        name: &str,
        config: &InterfaceConfig,
        trace: Trace,
    ) -> Result<Prepared> {
        config.warn(name);
        let mut names = self.known.names_among(config.peers());
        match names.look_up().await {
            Err(error) if self.mode.file.is_none() => return Err(error),
            Err(error) => warn!("{name}: {error:#}; {}", names.meanwhile()),
            Ok(()) => {}
        }
        Ok(Prepared {
            interfaces: vec![name.to_owned()],
            plan: Plan::new(config, &names, trace)?,
            names,
        })
    }

    /// Starts a group of the tunnel; returns when it carries datagrams, or the service waits for
    /// all of it.
    pub(super) async fn start(&mut self, prepared: Prepared) -> Result<()> {
        let name = prepared.name();
        let Prepared {
            interfaces,
            plan,
            names,
        } = prepared;
        let states = self.tunnel_states.clone();
        let frontend: Rc<dyn FunctionFrontend<Tunnel>> = Rc::clone(&self.frontend) as _;
        let (id, handle, begun) = self.spawn(&interfaces, plan.clone(), states, frontend);
        let group = RunningGroup {
            interfaces,
            names: keep(names, self.resolve_interval, handle.clone()),
            handle,
            plan,
        };
        self.groups.insert(id, group);
        self.until_begun(id, begun, &name).await
    }

    /// Spawns the task of a group; its number, its handle, and the news that it has begun.
    pub(super) fn spawn<F: ServiceFunction>(
        &mut self,
        names: &[String],
        plan: F::Plan,
        states: InterfaceStates,
        frontend: Rc<dyn FunctionFrontend<F>>,
    ) -> (u32, Handle<F::Plan>, Begun) {
        let id = self.next;
        self.next += 1;
        let (handle, orders) = Handle::new();
        let (begun, has_begun) = oneshot::channel();
        let task = GroupTask::<F> {
            names: names.to_vec(),
            patient: self.mode.file.is_some(),
            incumbent: self.mode.incumbent,
            frontend,
            states,
            socket: self.socket.clone(),
            begun: Some(begun),
        };
        let task = task.run(plan, orders);
        self.tasks.spawn_local(async move { (id, task.await) });
        (id, handle, has_begun)
    }

    /// Waits until a group works, or the service waits for all its interfaces.
    pub(super) async fn until_begun(&mut self, id: u32, begun: Begun, name: &str) -> Result<()> {
        if begun.await.is_ok() {
            return Ok(());
        }
        self.until_ended(id).await?;
        bail!(Other, "{name}: it ended early")
    }
}

/// Tells that a group works, or that the service waits for all its interfaces.
pub type Begun = oneshot::Receiver<()>;

/// Looks the names of an interface's peers up from time to time, and tells the tunnel of
/// changes.
pub fn keep(names: Names, interval: Duration, handle: Handle<Plan>) -> Task {
    let changed = move |addresses| handle.order(new_addresses(addresses));
    spawn_local(names.keep(interval, changed)).into()
}

/// The order to use these addresses of peers from now on.
pub fn new_addresses(addresses: Addresses) -> Order<Reason<Plan>> {
    Order::Pause(Reason::Amend(Box::new(|plan: &mut Plan| {
        plan.set_addresses(addresses);
    })))
}

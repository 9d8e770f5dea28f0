//! Many interfaces in one process: start, signals, reload, end.
//!
//! Interfaces of the tunnel with equal settings form a group, which shares its flows. All
//! interfaces of the gateway are one group, and so are all of the policy. So is the device of NAT64.

mod change;
mod conflicts;
mod ending;
mod function;
mod gateway;
mod group;
mod nat64;
mod policy;
mod prepared;
mod reload;
mod serve;
mod start;
mod states;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use tokio::signal::unix::SignalKind;
use tokio::task::{JoinSet, spawn_local};

use self::nat64::RunningNat64;
use crate::config::{Config, LogLevel};
use crate::control::Socket;
use crate::error::Result;
use crate::gateway::Gateway;
use crate::group::{Attached, Carried, Function, Handle, Incumbent};
use crate::host::preflight;
use crate::nat64::Nat64;
use crate::policy::Policy;
use crate::process::notify::{self, Watchdog};
use crate::process::signals::catch;
use crate::process::task::Task;
use crate::tunnel::resolve::Known;
use crate::tunnel::{Plan, Tunnel};
use ending::Endings;
use gateway::RunningGateway;
use policy::RunningPolicy;
use states::{InterfaceStates, States};

/// The part of the program that shows an operator what the service does.
pub trait Frontend:
    FunctionFrontend<Tunnel>
    + FunctionFrontend<Gateway>
    + FunctionFrontend<Policy>
    + FunctionFrontend<Nat64>
{
    /// The service serves metrics at this address now.
    ///
    /// # Errors
    ///
    /// If that cannot be shown.
    fn metrics(&self, address: SocketAddr) -> Result<()>;

    /// The configuration asks for this log level from now on.
    ///
    /// # Errors
    ///
    /// If it cannot be set.
    fn log(&self, level: LogLevel) -> Result<()>;
}

/// The part of the program that shows an operator what a function does.
pub trait FunctionFrontend<F: Function> {
    /// Programs were loaded for a group.
    ///
    /// # Errors
    ///
    /// If their log cannot be read; the service then gives the group up.
    fn loaded(&self, attached: &mut Attached<F>, plan: &F::Plan) -> Result<()>;

    /// An interface of a group is worked on now, by programs that were just attached.
    ///
    /// # Errors
    ///
    /// If that cannot be shown; the service then gives the group up.
    fn ready(&self, attached: &Attached<F>, carried: &Carried, plan: &F::Plan) -> Result<()>;

    /// The receiver of news of the daemon.
    fn observer(&self) -> &F::Observer;
}

/// How to run.
#[derive(Clone, Debug)]
pub struct Mode {
    /// The file to read at each reload. Without a file there are no reloads, and an
    /// interface or name that is missing at the start is an error; with one, the service
    /// waits for it.
    pub file: Option<PathBuf>,
    /// What becomes of a process that runs, of all that it keeps.
    pub incumbent: Incumbent,
    /// Whether sessions of its rules that this one does not have go on until they end.
    pub drains: bool,
}

/// Runs until a signal ends it. Needs a `LocalSet`.
///
/// # Errors
///
/// If something cannot be attached at the start: then everything is as it was, and the
/// kind is that of [`Plan::new`] or of [`Group::attach`](crate::group::Group::attach),
/// [`AlreadyAttached`](crate::error::Kind::AlreadyAttached) if a service runs in this network namespace, or
/// [`Conflict`](crate::error::Kind::Conflict) if the process that leaves keeps more than `config`. If the
/// service had to give an interface up later: the others go on until the end.
pub async fn run(config: Config, mode: Mode, frontend: Rc<dyn Frontend>) -> Result<()> {
    preflight::check()?;
    // From here on a signal must not leave half an attachment behind.
    let reads_again = mode.file.is_some();
    let mut endings = Endings::catch(reads_again)?;
    let hang_up = reads_again
        .then(|| catch(SignalKind::hangup()))
        .transpose()?;
    conflicts::check(&config, &mode)?;
    // On the same thread as everything else: if that thread hangs, so does the watchdog.
    let _watchdog = Task::from(spawn_local(Watchdog::from_env().run()));
    let all_states = Rc::<States>::default();
    let mut service = Service {
        resolve_interval: config.resolve_interval.into(),
        mode,
        frontend,
        groups: BTreeMap::new(),
        gateway: None,
        policy: None,
        nat64: None,
        next: 0,
        known: Known::default(),
        tasks: JoinSet::new(),
        captures: JoinSet::new(),
        metrics: None,
        socket: None,
        tunnel_states: InterfaceStates::of::<Tunnel>(&all_states),
        gateway_states: InterfaceStates::of::<Gateway>(&all_states),
        policy_states: InterfaceStates::of::<Policy>(&all_states),
        nat64_states: InterfaceStates::of::<Nat64>(&all_states),
        all_states,
    };
    let control = tokio::select! {
        ending = endings.next() => return service.end(ending).await,
        started = service.start_all(&config) => match started {
            Ok(control) => control,
            Err(error) => return service.abandon(error).await,
        },
    };
    notify::ready();
    // A signal ends the service even while a reload looks names up.
    let ending = tokio::select! {
        ending = endings.next() => ending,
        ending = service.serve(control, hang_up) => ending?,
    };
    service.end(ending).await
}

/// A group of interfaces on which the tunnel works, or shall work.
struct RunningGroup {
    /// The names of the interfaces.
    interfaces: Vec<String>,
    handle: Handle<Plan>,
    plan: Plan,
    /// Keeps the addresses of its peers up to date.
    names: Task,
}

struct Service {
    mode: Mode,
    frontend: Rc<dyn Frontend>,
    resolve_interval: Duration,
    /// Those of the tunnel, by numbers that mean nothing else.
    groups: BTreeMap<u32, RunningGroup>,
    /// The one of the gateway, if anything is forwarded.
    gateway: Option<RunningGateway>,
    /// The one of the policy, if there are rules.
    policy: Option<RunningPolicy>,
    /// NAT64, if anything is translated.
    nat64: Option<RunningNat64>,
    /// The next such number.
    next: u32,
    /// The addresses that names of peers last resolved to.
    known: Known,
    tasks: JoinSet<(u32, Result<()>)>,
    /// Running captures.
    captures: JoinSet<()>,
    metrics: Option<Metrics>,
    /// Where it listens for commands; it appears before the first line that says `ready:`.
    socket: Option<Rc<Socket>>,
    /// The states of the tunnel's interfaces, also of those that were given up.
    tunnel_states: InterfaceStates,
    /// Those of the gateway.
    gateway_states: InterfaceStates,
    /// Those of the policy.
    policy_states: InterfaceStates,
    /// That of NAT64's device.
    nat64_states: InterfaceStates,
    /// The states of all functions.
    all_states: Rc<States>,
}

/// The server of metrics, and the address that the configuration asked for.
struct Metrics {
    address: SocketAddr,
    _server: Task,
}

//! Many interfaces in one process: start, signals, reload, end.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::net::if_::if_nametoindex;
use nix::unistd::Pid;
use tokio::signal::unix::{Signal, SignalKind};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinSet, spawn_local};
use tokio::time::timeout;
use tracing::{error, info, warn};

use crate::capture::serve::serve;
use crate::config::{Config, InterfaceConfig, LogLevel};
use crate::control::{self, Answer, Asker, Command, Control, Place};
use crate::daemon::{Observer, Order, Orders};
use crate::datapath::{Attached, Pinned};
use crate::metrics;
use crate::notify::{self, Watchdog};
use crate::ports::carries;
use crate::resolve::Names;
use crate::signals::{Termination, catch};
use crate::tunnel::{Handle, Plan, Reason, TAKE_OVER, Tunnel, Waited, wait_for};

/// What the service tells whoever started it.
pub trait Front: Observer {
    /// An interface carries datagrams now.
    ///
    /// # Errors
    ///
    /// If it cannot be told; the interface is then given up.
    fn ready(&self, attached: &mut Attached, plan: &Plan) -> Result<()>;

    /// Metrics are at this address now.
    ///
    /// # Errors
    ///
    /// If it cannot be told.
    fn metrics(&self, address: SocketAddr) -> Result<()>;

    /// From now on so much is to be logged.
    ///
    /// # Errors
    ///
    /// If that cannot be set.
    fn log(&self, level: LogLevel) -> Result<()>;
}

/// How to run.
#[derive(Clone, Debug)]
pub struct Mode {
    /// The file to read again. Without one nothing is read again, and what is
    /// missing at first (an interface, a name) is an error and not waited for.
    pub file: Option<PathBuf>,
    /// Whether to take over from a process that runs.
    pub take_over: bool,
}

/// Runs until a signal ends it. Within a `LocalSet`.
///
/// # Errors
///
/// If something cannot be attached at the start: then everything is as it was. If
/// an interface had to be given up later: the others go on until the end.
pub async fn run(config: Config, mode: Mode, front: Rc<dyn Front>) -> Result<()> {
    // From here on a signal must not leave half an attachment behind.
    let mut signals = Signals::catch(mode.file.is_some())?;
    check_others(&config, &mode)?;
    let mut service = Service {
        trace: config.log_level == LogLevel::Trace,
        resolve_interval: config.resolve_interval.into(),
        mode,
        front,
        interfaces: BTreeMap::new(),
        tasks: JoinSet::new(),
        captures: JoinSet::new(),
        metrics: None,
        failed: None,
    };
    // On the thread of everything else: if that hangs, so does this.
    let _watchdog = Running(spawn_local(Watchdog::from_env().run()).abort_handle());
    service.metrics = service.serve_metrics(config.metrics)?;
    let mut reload = false;
    let started = {
        let mut starting = pin!(service.start_all(&config));
        loop {
            tokio::select! {
                started = &mut starting => break started.map(|()| None),
                asked = signals.next() => match asked {
                    Asked::Reload => reload = true,
                    Asked::Stop => break Ok(Some(Order::Stop)),
                    Asked::Succeed => break Ok(Some(Order::Pause(Reason::Succeeded))),
                },
            }
        }
    };
    // Only now: whoever ran before listened there.
    let control = match &started {
        Ok(None) => service.listen(&config),
        _ => Ok(None),
    };
    let control = match started.and_then(|asked| Ok((asked, control?))) {
        Ok((None, control)) => control,
        Ok((Some(Order::Stop), _)) => return service.end(|| Order::Stop).await,
        Ok((Some(_), _)) => return service.end(|| Order::Pause(Reason::Succeeded)).await,
        Err(error) => {
            let ended = service.end(|| Order::Pause(Reason::Abandoned)).await;
            return Err(match ended {
                Ok(()) => error,
                Err(also) => error.context(format!("and in the end: {also:#}")),
            });
        }
    };
    // Whoever is asked to leave from now on is not whom this one came after.
    service.mode.take_over = false;
    notify::ready();
    if reload {
        let _told = service.reload().await;
    }
    loop {
        let command = async {
            match &control {
                Some(control) => control.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            asked = signals.next() => match asked {
                Asked::Stop => return service.end(|| Order::Stop).await,
                Asked::Succeed => {
                    drop(control);
                    return service.end(|| Order::Pause(Reason::Succeeded)).await;
                }
                Asked::Reload => {
                    let _told = service.reload().await;
                }
            },
            (command, asker) = command => match command {
                Command::Reload => {
                    let _told = asker.answer(&service.reload().await).await;
                }
                Command::Capture { interface, snap_len, version } => {
                    service.capture(&interface, snap_len, version, asker).await;
                }
            },
            Some(_) = service.captures.join_next() => {}
            Some(ended) = service.tasks.join_next() => {
                service.give_up(ended?);
                if service.interfaces.is_empty() {
                    return service.end(|| Order::Stop).await;
                }
            }
        }
    }
}

/// The process that keeps the interface of that name, if there is one.
fn keeper(name: &str) -> Result<Option<Pid>> {
    match if_nametoindex(name) {
        Ok(ifindex) if Pinned::exists(ifindex)? => Pinned::daemon(ifindex),
        _ => Ok(None),
    }
}

/// Checks that no other process stands in the way. Whoever is asked to leave one
/// interface leaves all that it keeps, and all that it waits for.
fn check_others(config: &Config, mode: &Mode) -> Result<()> {
    let service = control::service()?;
    if let (Some(process), Some(_), false) = (service, &mode.file, mode.take_over) {
        bail!(
            "`xdptun run` runs already in this network namespace (process {process}); \
             `xdptun reload` makes it read its file again"
        );
    }
    if !mode.take_over {
        return Ok(());
    }
    let mut leaves = BTreeSet::new();
    for name in config.interfaces.keys() {
        leaves.extend(keeper(name)?);
    }
    match service {
        Some(process) if mode.file.is_none() && leaves.contains(&process) => bail!(
            "process {process} is `xdptun run`, with a file for all its interfaces; change that \
             and run `xdptun reload`"
        ),
        Some(process) if mode.file.is_some() && !leaves.contains(&process) => bail!(
            "`xdptun run` (process {process}) has none of these interfaces attached, so it would \
             not leave; stop it first"
        ),
        _ => {}
    }
    for process in leaves {
        let mut others = Pinned::kept_by(process)?;
        others.retain(|other| !config.interfaces.contains_key(other));
        if !others.is_empty() {
            bail!(
                "process {process} keeps {} as well, which would be without a daemon; \
                 put it into the file, or change the file of that process and run `xdptun reload`",
                others.join(", ")
            );
        }
    }
    Ok(())
}

/// What a signal asks for.
enum Asked {
    Stop,
    Succeed,
    Reload,
}

/// Signals, caught from the moment it is made.
struct Signals {
    termination: Termination,
    take_over: Signal,
    hang_up: Option<Signal>,
}

impl Signals {
    fn catch(reloads: bool) -> Result<Self> {
        Ok(Self {
            termination: Termination::catch()?,
            take_over: catch(SignalKind::from_raw(TAKE_OVER as i32))?,
            hang_up: reloads.then(|| catch(SignalKind::hangup())).transpose()?,
        })
    }

    async fn next(&mut self) -> Asked {
        let hang_up = async {
            match &mut self.hang_up {
                Some(signal) => signal.recv().await,
                None => std::future::pending().await,
            }
        };
        let asked = tokio::select! {
            () = self.termination.requested() => Asked::Stop,
            _ = self.take_over.recv() => Asked::Succeed,
            _ = hang_up => return Asked::Reload,
        };
        notify::stopping();
        asked
    }
}

/// How long whoever captures may take to hear that it ends.
const FAREWELL: Duration = Duration::from_secs(1);

/// A task that ends when this is dropped.
struct Running(AbortHandle);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An interface that is attached or waited for.
struct Link {
    handle: Handle,
    plan: Plan,
    /// Keeps the addresses of its peers up to date.
    names: Running,
}

struct Service {
    mode: Mode,
    front: Rc<dyn Front>,
    trace: bool,
    resolve_interval: Duration,
    interfaces: BTreeMap<String, Link>,
    tasks: JoinSet<(String, Result<()>)>,
    /// Those who are told of packets.
    captures: JoinSet<()>,
    metrics: Option<Metrics>,
    /// What an interface had to be given up for.
    failed: Option<anyhow::Error>,
}

/// Who serves metrics, and where it was asked to.
struct Metrics {
    address: SocketAddr,
    _server: Running,
}

/// What becomes of an interface.
struct Prepared {
    plan: Plan,
    names: Names,
}

impl Service {
    /// Serves metrics at an address, if one is given.
    fn serve_metrics(&self, address: Option<SocketAddr>) -> Result<Option<Metrics>> {
        let Some(address) = address else {
            return Ok(None);
        };
        let listener = metrics::bind(address, self.mode.take_over)?;
        self.front.metrics(listener.local_addr()?)?;
        let server = spawn_local(async {
            if let Err(error) = metrics::serve(listener).await {
                warn!("there are no metrics any more: {error:#}");
            }
        });
        Ok(Some(Metrics {
            address,
            _server: Running(server.abort_handle()),
        }))
    }

    async fn start_all(&mut self, config: &Config) -> Result<()> {
        if config.interfaces.is_empty() {
            warn!("no interface is configured; nothing is carried");
        }
        // First everything that can fail without a trace.
        let mut all = Vec::new();
        for (name, interface) in &config.interfaces {
            let prepared = self.prepare(interface, self.trace).await;
            let prepared = prepared.with_context(|| format!("interface {name}"))?;
            // Else what runs there is in the way, whatever it is.
            if self.mode.take_over || keeper(name)?.is_none() {
                prepared.plan.check(name)?;
            }
            all.push((name, prepared));
        }
        for (name, prepared) in all {
            self.start(name, prepared).await?;
        }
        Ok(())
    }

    /// Looks up and reads all that it takes, and changes nothing.
    async fn prepare(&self, config: &InterfaceConfig, trace: bool) -> Result<Prepared> {
        let mut names = Names::among(&config.peers);
        match names.look_up().await {
            Err(error) if self.mode.file.is_none() => return Err(error),
            Err(error) => warn!("{error:#}; tried again and again"),
            Ok(()) => {}
        }
        let plan = Plan::new(config, &names, trace)?;
        Ok(Prepared { plan, names })
    }

    /// Starts an interface; returns when it carries datagrams, or is waited for.
    async fn start(&mut self, name: &str, prepared: Prepared) -> Result<()> {
        let Prepared { plan, names } = prepared;
        let (handle, orders) = Handle::new();
        let (ready, is_ready) = oneshot::channel();
        let life = Life {
            name: name.to_owned(),
            patient: self.mode.file.is_some(),
            take_over: self.mode.take_over,
            front: Rc::clone(&self.front),
            ready: Some(ready),
        };
        let life = life.run(plan.clone(), orders);
        let owned = name.to_owned();
        self.tasks.spawn_local(async move { (owned, life.await) });
        let link = Link {
            names: keep(names, self.resolve_interval, handle.clone()),
            handle,
            plan,
        };
        self.interfaces.insert(name.to_owned(), link);
        if is_ready.await.is_ok() {
            return Ok(());
        }
        self.until_ended(name).await?;
        bail!("{name}: it ended early")
    }

    /// Notes that an interface has ended without being told to. The others go on.
    fn give_up(&mut self, (name, result): (String, Result<()>)) {
        self.interfaces.remove(&name);
        if let Err(why) = result {
            if !self.interfaces.is_empty() {
                error!("{name}: given up: {why:#}");
            }
            self.failed.get_or_insert(why);
        }
    }

    /// Waits until an interface has ended; how it did.
    async fn until_ended(&mut self, name: &str) -> Result<()> {
        while let Some(ended) = self.tasks.join_next().await {
            let ended = ended?;
            if ended.0 == name {
                self.interfaces.remove(name);
                return ended.1;
            }
            self.give_up(ended);
        }
        Ok(())
    }

    /// Ends all interfaces.
    async fn end(mut self, order: impl Fn() -> Order<Reason>) -> Result<()> {
        for link in self.interfaces.values() {
            link.names.0.abort();
            link.handle.order(order());
        }
        while let Some(ended) = self.tasks.join_next().await {
            self.give_up(ended?);
        }
        // Who captures is told why it ends, if he listens.
        let told = async { while self.captures.join_next().await.is_some() {} };
        let _in_time = timeout(FAREWELL, told).await;
        self.failed.map_or(Ok(()), Err)
    }

    /// Listens for commands. What is attached without a file can do without.
    fn listen(&self, config: &Config) -> Result<Option<Control>> {
        if self.mode.file.is_some() {
            return Control::listen(Place::Service).map(Some);
        }
        let Some(name) = config.interfaces.keys().next() else {
            return Ok(None);
        };
        let control = Control::listen(Place::Interface(name));
        Ok(control
            .inspect_err(|error| warn!("{name}: cannot be captured: {error:#}"))
            .ok())
    }

    /// Has the packets of an interface recorded for whoever asks.
    async fn capture(
        &mut self,
        interface: &str,
        snap_len: NonZeroU32,
        version: String,
        asker: Asker,
    ) {
        match self.interfaces.get(interface) {
            Some(link) => {
                let serve = serve(link.handle.clone(), snap_len, version, asker);
                self.captures.spawn_local(serve);
            }
            None => {
                let why = "the running xdptun does not keep it any more".to_owned();
                let _told = asker.answer(&Err(why)).await;
            }
        }
    }

    /// Reads the file again and applies what changed, or nothing.
    async fn reload(&mut self) -> Answer {
        let mut done = Vec::new();
        let result = self.apply(&mut done).await;
        if let Err(error) = result {
            let text = match &done[..] {
                [] => format!("nothing was changed: {error:#}"),
                done => format!("only in part ({}): {error:#}", done.join("; ")),
            };
            error!("not reloaded: {text}");
            return Err(text);
        }
        if done.is_empty() {
            done.push("no interface changed".to_owned());
        }
        info!("reloaded: {}", done.join("; "));
        Ok(done)
    }

    /// Applies the file; what was changed goes into `done`, a line each.
    async fn apply(&mut self, done: &mut Vec<String>) -> Result<()> {
        let file = self.mode.file.clone().context("there is no file")?;
        let config = Config::read(&file)?;
        let trace = config.log_level == LogLevel::Trace;
        // First everything that can fail without a trace.
        let mut new = Vec::new();
        let mut kept = Vec::new();
        for (name, interface) in &config.interfaces {
            let prepared = self.prepare(interface, trace).await;
            let prepared = prepared.with_context(|| format!("interface {name}"))?;
            match self.interfaces.get(name) {
                Some(link) => {
                    let changes = prepared.plan != link.plan;
                    if changes {
                        prepared.plan.check(name)?;
                    }
                    kept.push((name.clone(), prepared, changes));
                }
                None => new.push((name.clone(), prepared)),
            }
        }
        let serves = self.metrics.as_ref().map(|metrics| metrics.address);
        let metrics = match config.metrics {
            wanted if wanted == serves => None,
            wanted => Some(self.serve_metrics(wanted)?),
        };
        let gone = |name: &&String| !config.interfaces.contains_key(*name);
        let gone: Vec<String> = self.interfaces.keys().filter(gone).cloned().collect();

        // New ones first: if one cannot be attached, nothing has changed yet.
        let mut begun: Vec<String> = Vec::new();
        for (name, prepared) in new {
            if let Err(error) = self.start(&name, prepared).await {
                for name in &begun {
                    self.stop(name).await?;
                }
                return Err(error);
            }
            begun.push(name);
        }
        done.extend(begun.iter().map(|name| format!("{name}: attached")));
        self.resolve_interval = config.resolve_interval.into();
        for (name, Prepared { plan, names }, changes) in kept {
            let Some(link) = self.interfaces.get_mut(&name) else {
                continue;
            };
            // What it tells of the old names must not come after.
            link.names.0.abort();
            if changes {
                let changed = link.handle.change(plan.clone()).await;
                changed.with_context(|| format!("{name}: cannot be changed"))?;
                link.plan = plan;
                done.push(format!("{name}: changed"));
            } else if !names.is_empty() {
                let addresses = Reason::Addresses(names.addresses());
                link.handle.order(Order::Pause(addresses));
            }
            link.names = keep(names, self.resolve_interval, link.handle.clone());
        }
        for name in gone {
            self.stop(&name).await?;
            done.push(format!("{name}: detached"));
        }
        if let Some(metrics) = metrics {
            self.metrics = metrics;
        }
        self.trace = trace;
        self.front.log(config.log_level)
    }

    async fn stop(&mut self, name: &str) -> Result<()> {
        let Some(link) = self.interfaces.get(name) else {
            return Ok(());
        };
        link.handle.order(Order::Stop);
        self.until_ended(name).await
    }
}

/// Keeps the addresses of an interface's peers what their names say.
fn keep(names: Names, interval: Duration, handle: Handle) -> Running {
    let changed = move |addresses| handle.order(Order::Pause(Reason::Addresses(addresses)));
    Running(spawn_local(names.keep(interval, changed)).abort_handle())
}

/// What it takes to begin with an interface.
struct Life {
    name: String,
    patient: bool,
    take_over: bool,
    front: Rc<dyn Front>,
    ready: Option<oneshot::Sender<()>>,
}

impl Life {
    async fn run(mut self, mut plan: Plan, mut orders: Orders<Reason>) -> Result<()> {
        let name = &self.name;
        let is_gone = || self.patient && if_nametoindex(name.as_str()).is_err();
        let tunnel = loop {
            if is_gone() {
                warn!("{name}: no such interface yet; waiting for it");
                if let Some(ready) = self.ready.take() {
                    let _gone = ready.send(());
                }
                match wait_for(name, &mut orders, &mut plan).await? {
                    Waited::Found(_) => {}
                    Waited::Left | Waited::Stopped => return Ok(()),
                }
            }
            match Tunnel::attach(name, plan.clone(), self.take_over) {
                // It went meanwhile.
                Err(_) if is_gone() => {}
                attached => break attached?,
            }
        };
        let front = self.front;
        let observer: Rc<dyn Observer> = front.clone();
        let mut ready = self.ready;
        tunnel
            .run(&mut orders, &*observer, |attached, plan| {
                front.ready(attached, plan)?;
                let name = &attached.interface.name;
                notify::status(&carries(name, &attached.maps.ports()?));
                if let Some(ready) = ready.take() {
                    let _gone = ready.send(());
                }
                Ok(())
            })
            .await
    }
}

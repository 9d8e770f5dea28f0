//! Many interfaces in one process: start, signals, reload, end.

mod life;
mod others;
mod reload;
mod states;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Error, Result, bail};
use futures_util::future::join_all;
use nix::net::if_::if_nametoindex;
use tokio::signal::unix::{Signal, SignalKind};
use tokio::sync::oneshot;
use tokio::task::{JoinSet, spawn_local};
use tokio::time::timeout;
use tracing::{error, warn};

use crate::capture::serve::serve;
use crate::config::{Config, InterfaceConfig, LogLevel};
use crate::control::{Asker, Command, Control, Place};
use crate::daemon::{Observer, Order};
use crate::datapath::Attached;
use crate::notify::{self, Watchdog};
use crate::resolve::{Known, Names};
use crate::running::Running;
use crate::signals::{Termination, catch};
use crate::tunnel::{Handle, Plan, Reason, TAKE_OVER};
use crate::{metrics, preflight, privileges};
use life::Life;
pub use states::{Report, Stage};
use states::{State, States};

/// What the service tells whoever started it.
pub trait Front: Observer {
    /// An interface carries datagrams now, by programs that were just attached.
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
    preflight::check()?;
    // From here on a signal must not leave half an attachment behind.
    let mut endings = Endings::catch()?;
    let reads_again = mode.file.is_some();
    let hang_up = reads_again
        .then(|| catch(SignalKind::hangup()))
        .transpose()?;
    others::check(&config, &mode)?;
    // On the thread of everything else: if that hangs, so does this.
    let _watchdog = Running::from(spawn_local(Watchdog::from_env().run()));
    let mut service = Service {
        trace: config.log_level == LogLevel::Trace,
        resolve_interval: config.resolve_interval.into(),
        mode,
        front,
        links: BTreeMap::new(),
        known: Known::default(),
        tasks: JoinSet::new(),
        captures: JoinSet::new(),
        metrics: None,
        states: Rc::default(),
    };
    let control = tokio::select! {
        ending = endings.next() => return service.end(ending).await,
        started = service.start_all(&config) => match started {
            Ok(control) => control,
            Err(error) => return service.abandon(error).await,
        },
    };
    notify::ready();
    // Nothing waits for a reload, however long names are looked up for it.
    let ending = tokio::select! {
        ending = endings.next() => ending,
        ending = service.serve(control, hang_up) => ending?,
    };
    service.end(ending).await
}

/// How the service ends.
#[derive(Clone, Copy, Debug)]
enum Ending {
    /// Everything is detached.
    Stop,
    /// Everything is left to another process.
    Succeed,
    /// What this process attached is detached, what it took over stays.
    Abandon,
}

impl Ending {
    fn order(self) -> Order<Reason> {
        match self {
            Self::Stop => Order::Stop,
            Self::Succeed => Order::Pause(Reason::Succeeded),
            Self::Abandon => Order::Pause(Reason::Abandoned),
        }
    }
}

/// Signals that end the service, caught from the moment it is made.
struct Endings {
    termination: Termination,
    take_over: Signal,
}

impl Endings {
    fn catch() -> Result<Self> {
        Ok(Self {
            termination: Termination::catch()?,
            take_over: catch(SignalKind::from_raw(TAKE_OVER as i32))?,
        })
    }

    async fn next(&mut self) -> Ending {
        let ending = tokio::select! {
            () = self.termination.requested() => Ending::Stop,
            _ = self.take_over.recv() => Ending::Succeed,
        };
        notify::stopping();
        ending
    }
}

/// How long whoever captures may take to hear that it ends.
const FAREWELL: Duration = Duration::from_secs(1);

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
    links: BTreeMap<String, Link>,
    /// What the names of peers were last found to be.
    known: Known,
    tasks: JoinSet<(String, Result<()>)>,
    /// Those who are told of packets.
    captures: JoinSet<()>,
    metrics: Option<Metrics>,
    /// What has become of the links, and of those that there are no more.
    states: Rc<States>,
}

/// Who serves metrics, and where it was asked to.
struct Metrics {
    address: SocketAddr,
    _server: Running,
}

/// What becomes of an interface.
struct Prepared {
    name: String,
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
            _server: server.into(),
        }))
    }

    /// Starts everything; where it is to be asked from then on, if at all.
    async fn start_all(&mut self, config: &Config) -> Result<Option<Control>> {
        self.metrics = self.serve_metrics(config.metrics)?;
        if config.interfaces.is_empty() {
            warn!("no interface is configured; nothing is carried");
        }
        // First everything that can fail without a trace.
        let all = self.prepare_all(config).await?;
        for Prepared { name, plan, .. } in &all {
            // Else what runs there is in the way, whatever it is.
            let is_free = || Ok::<_, Error>(others::keeper(name)?.is_none());
            if if_nametoindex(name.as_str()).is_ok() && (self.mode.take_over || is_free()?) {
                plan.check(name)?;
            }
        }
        for prepared in all {
            self.start(prepared).await?;
        }
        // Whoever is asked to leave from now on is not whom this one came after.
        self.mode.take_over = false;
        privileges::give_up()?;
        // Only now: whoever ran before listened there.
        self.listen(config)
    }

    /// Listens for commands. What is attached without a file can do without.
    fn listen(&self, config: &Config) -> Result<Option<Control>> {
        let states = Rc::clone(&self.states);
        let status = move || states.report();
        if self.mode.file.is_some() {
            return Control::listen(Place::Service, status).map(Some);
        }
        let Some(name) = config.interfaces.keys().next() else {
            return Ok(None);
        };
        let control = Control::listen(Place::Interface(name), status);
        Ok(control
            .inspect_err(|error| warn!("{name}: cannot be captured: {error:#}"))
            .ok())
    }

    /// Looks up and reads all that it takes for all interfaces, at once, and changes
    /// nothing.
    async fn prepare_all(&self, config: &Config) -> Result<Vec<Prepared>> {
        let trace = config.log_level == LogLevel::Trace;
        let all = config.interfaces.iter();
        let all = all.map(async |(name, interface)| {
            let prepared = self.prepare(name, interface, trace).await;
            prepared.with_context(|| format!("interface {name}"))
        });
        join_all(all).await.into_iter().collect()
    }

    async fn prepare(&self, name: &str, config: &InterfaceConfig, trace: bool) -> Result<Prepared> {
        config.warn(name);
        let mut names = self.known.names_among(config.peers());
        match names.look_up().await {
            Err(error) if self.mode.file.is_none() => return Err(error),
            Err(error) => warn!("{name}: {error:#}; {}", names.meanwhile()),
            Ok(()) => {}
        }
        Ok(Prepared {
            name: name.to_owned(),
            plan: Plan::new(config, &names, trace)?,
            names,
        })
    }

    /// Starts an interface; returns when it carries datagrams, or is waited for.
    async fn start(&mut self, prepared: Prepared) -> Result<()> {
        let Prepared { name, plan, names } = prepared;
        let (handle, orders) = Handle::new();
        let (begun, has_begun) = oneshot::channel();
        let life = Life {
            name: name.clone(),
            patient: self.mode.file.is_some(),
            take_over: self.mode.take_over,
            front: Rc::clone(&self.front),
            states: Rc::clone(&self.states),
            begun: Some(begun),
        };
        let life = life.run(plan.clone(), orders);
        let owned = name.clone();
        self.tasks.spawn_local(async move { (owned, life.await) });
        let link = Link {
            names: keep(names, self.resolve_interval, handle.clone()),
            handle,
            plan,
        };
        self.links.insert(name.clone(), link);
        if has_begun.await.is_ok() {
            return Ok(());
        }
        self.until_ended(&name).await?;
        bail!("{name}: it ended early")
    }

    /// Serves until a signal ends it, or until nothing is left to be served.
    async fn serve(
        &mut self,
        mut control: Option<Control>,
        mut hang_up: Option<Signal>,
    ) -> Result<Ending> {
        loop {
            let asked = async {
                match &mut control {
                    Some(control) => control.next().await,
                    None => std::future::pending().await,
                }
            };
            let hung_up = async {
                match &mut hang_up {
                    Some(signal) => signal.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = hung_up => {
                    let _told = self.reload().await;
                }
                (command, asker) = asked => self.obey(command, asker).await,
                Some(_) = self.captures.join_next() => {}
                Some(ended) = self.tasks.join_next() => {
                    self.note_end(ended?);
                    if self.links.is_empty() {
                        return Ok(Ending::Stop);
                    }
                }
            }
        }
    }

    /// Does what somebody asks for.
    async fn obey(&mut self, command: Command, asker: Asker) {
        match command {
            Command::Reload => {
                let _told = asker.answer(&self.reload().await).await;
            }
            Command::Capture {
                interface,
                snap_len,
                version,
            } => self.capture(&interface, snap_len, version, asker).await,
        }
    }

    /// Has the packets of an interface recorded for whoever asks.
    async fn capture(
        &mut self,
        interface: &str,
        snap_len: NonZeroU32,
        version: String,
        asker: Asker,
    ) {
        match self.links.get(interface) {
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

    /// Notes that an interface has ended without being told to. The others go on.
    fn note_end(&mut self, (name, result): (String, Result<()>)) {
        self.links.remove(&name);
        match result {
            Ok(()) => self.states.forget(&name),
            Err(why) => {
                let why = format!("{why:#}");
                // Of the only one `end` tells.
                if self.mode.file.is_some() {
                    error!("{name}: given up: {why}");
                }
                self.states.set(&name, State::GivenUp(why));
            }
        }
    }

    /// Waits until an interface has ended; how it did.
    async fn until_ended(&mut self, name: &str) -> Result<()> {
        while let Some(ended) = self.tasks.join_next().await {
            let ended = ended?;
            if ended.0 == name {
                self.links.remove(name);
                return ended.1;
            }
            self.note_end(ended);
        }
        Ok(())
    }

    /// Ends all interfaces.
    ///
    /// # Errors
    ///
    /// If one of them could not end, or had to be given up before.
    async fn end(mut self, how: Ending) -> Result<()> {
        for link in self.links.values() {
            link.names.end();
            link.handle.order(how.order());
        }
        while let Some(ended) = self.tasks.join_next().await {
            let ended = ended?;
            if ended.1.is_err() {
                self.note_end(ended);
            }
        }
        // Who captures is told why it ends, if he listens.
        let told = async { while self.captures.join_next().await.is_some() {} };
        let _in_time = timeout(FAREWELL, told).await;
        match &self.states.given_up()[..] {
            [] => Ok(()),
            [(_, why)] if self.mode.file.is_none() => Err(Error::msg(why.clone())),
            given_up => {
                let names: Vec<_> = given_up.iter().map(|(name, _)| name.as_str()).collect();
                bail!("given up: {}; the log tells why", names.join(", "));
            }
        }
    }

    /// Ends all interfaces because of this error, which it returns.
    async fn abandon(self, error: Error) -> Result<()> {
        match self.end(Ending::Abandon).await {
            Ok(()) => Err(error),
            Err(also) => Err(error.context(format!("and in the end: {also:#}"))),
        }
    }
}

/// Keeps the addresses of an interface's peers what their names say.
fn keep(names: Names, interval: Duration, handle: Handle) -> Running {
    let changed = move |addresses| handle.order(Order::Pause(Reason::Addresses(addresses)));
    spawn_local(names.keep(interval, changed)).into()
}

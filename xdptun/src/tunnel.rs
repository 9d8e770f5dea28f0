//! The life of one interface: attach, carry, follow it when it goes and comes
//! back, change, detach.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Error, Result, bail};
use ipnet::IpNet;
use nix::sys::signal::{Signal, kill};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tracing::{info, warn};
use xdptun_common::tunnel::proof::KeySet;

use crate::config::{InterfaceConfig, Peer, peers_fit};
use crate::daemon::{self, End, Observer, Order, Orders, Timers};
use crate::datapath::{self, AttachOptions, Attached, Keys, Pinned, Recorder, TcChoice, pins};
use crate::interface::Interface;
use crate::lock::InterfaceLock;
use crate::netlink::LinkChanges;
use crate::resolve::{Addresses, Names};
use crate::secret::InterfaceKeys;
use crate::{preflight, resolve, secret};

/// The signal that asks a process to leave all its interfaces to another. One of
/// a version that does not know it dies of it, which comes to the same.
pub const TAKE_OVER: Signal = Signal::SIGUSR2;

/// What one interface shall be. Two are equal if they come from the same
/// configuration, whatever the names in it stand for.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What to attach, but for the peers that are known by name.
    options: AttachOptions,
    /// Their addresses.
    addresses: Addresses,
    /// Their keys, if one of the peers has a secret of its own.
    name_keys: BTreeMap<String, KeySet>,
    /// Timers of its flows.
    timers: Timers,
}

impl PartialEq for Plan {
    fn eq(&self, other: &Self) -> bool {
        self.options == other.options
            && self.addresses.keys().eq(other.addresses.keys())
            && self.name_keys == other.name_keys
            && self.timers == other.timers
    }
}

impl Plan {
    /// What `config` asks for; `names` are those among its peers.
    ///
    /// # Errors
    ///
    /// If there are too many peers, a secret cannot be read, or the kernel lacks
    /// something.
    pub fn new(config: &InterfaceConfig, names: &Names, trace: bool) -> Result<Self> {
        preflight::check()?;
        if config.tc == TcChoice::Tcx {
            preflight::check_tcx()?;
        }
        if config.secret.is_some() {
            preflight::check_tai()?;
        }
        let networks = config.peers().filter_map(|peer| match peer {
            Peer::Net(network) => Some(*network),
            Peer::Host(_) => None,
        });
        let networks: Vec<IpNet> = networks.collect();
        let addresses = names.addresses();
        let found = addresses.values().flatten().count();
        peers_fit(networks.len() + found).map_err(Error::msg)?;
        let (mut keys, mut name_keys) = (None, BTreeMap::new());
        if let Some(InterfaceKeys { everyone, peers }) = secret::read_all(config)? {
            let of = keys.insert(Keys::from(everyone));
            for (peer, set) in peers {
                match peer {
                    Peer::Net(network) => drop(of.of.insert(network, set)),
                    Peer::Host(name) => drop(name_keys.insert(name, set)),
                }
            }
        }
        Ok(Self {
            options: AttachOptions {
                ports: config.ports.clone(),
                peers: networks,
                only_peers: !config.peers.is_empty(),
                ingress: config.ingress,
                tc: config.tc,
                max_flows: config.max_flows.get(),
                keys,
                trace,
                record: None,
            },
            addresses,
            name_keys,
            timers: Timers {
                keepalive: config.keepalive.into(),
                idle: config.idle_timeout.into(),
            },
        })
    }

    /// What to attach. As long as a name is not known everyone counts as a peer, or
    /// datagrams to that one would leave undisguised. Only addresses that are known have
    /// keys of their own.
    #[must_use]
    pub fn options(&self) -> AttachOptions {
        let mut options = self.options.clone();
        if let Some(keys) = &mut options.keys {
            for (name, set) in &self.name_keys {
                for address in self.addresses.get(name).into_iter().flatten() {
                    // A name server must not change the keys of an address that the
                    // file names.
                    keys.of.entry(*address).or_insert(*set);
                }
            }
        }
        match resolve::all(&self.addresses) {
            Some(addresses) => options.peers.extend(addresses),
            None => {
                options.peers.clear();
                options.only_peers = false;
            }
        }
        options
    }

    /// Checks that what is attached to the interface of that name, or was when there
    /// was one, can become this while it is attached.
    ///
    /// # Errors
    ///
    /// Names the option that cannot change, and the way out.
    pub fn check(&self, name: &str) -> Result<()> {
        let pinned = match Interface::find(name) {
            Ok(interface) => Pinned::open(interface.index)?,
            // It is gone, or renamed.
            Err(_) => {
                let mut all = Pinned::all()?.into_iter();
                all.find(|pinned| pinned.kept_as() == name)
            }
        };
        pinned.map_or(Ok(()), |pinned| Attached::check(&self.options, &pinned))
    }
}

/// Why a daemon makes room.
#[derive(Debug)]
pub enum Reason {
    /// Another process takes over.
    Succeeded,
    /// What was begun shall not be: what this process attached is taken away,
    /// what it took over stays.
    Abandoned,
    /// The names of its peers stand for other addresses now.
    Addresses(Addresses),
    /// It shall be as this plan says.
    Change {
        /// The plan.
        plan: Box<Plan>,
        /// Where to tell whether it is.
        done: oneshot::Sender<Result<()>>,
    },
    /// Its packets shall be recorded.
    Record(Recording),
    /// Nobody reads the recording any more.
    StopRecording,
}

/// Who wants packets recorded.
#[derive(Debug)]
pub struct Recording {
    /// How many bytes of each packet to copy.
    pub snap_len: NonZeroU32,
    /// Where to tell of the copies: again with each set of programs, and why they
    /// end if they do.
    pub feed: UnboundedSender<Result<Recorder, String>>,
}

impl Recording {
    /// Begins it, or goes on with the copies of other programs.
    fn feed(&self, recorder: Recorder) {
        let _left = self.feed.send(Ok(recorder));
    }

    /// Ends it.
    fn end(self, why: impl Into<String>) {
        let _left = self.feed.send(Err(why.into()));
    }
}

/// Gives a tunnel its orders. Without it the tunnel stops.
#[derive(Clone, Debug)]
pub struct Handle(UnboundedSender<Order<Reason>>);

impl Handle {
    /// A handle, and what it controls.
    #[must_use]
    pub fn new() -> (Self, Orders<Reason>) {
        let (sender, orders) = unbounded_channel();
        (Self(sender), orders)
    }

    /// Gives an order. One that has ended needs none.
    pub fn order(&self, order: Order<Reason>) {
        let _ended = self.0.send(order);
    }

    /// Makes the tunnel what `plan` says.
    ///
    /// # Errors
    ///
    /// If that cannot be; then it is as it was.
    pub async fn change(&self, plan: Plan) -> Result<()> {
        let (done, outcome) = oneshot::channel();
        let plan = Box::new(plan);
        self.order(Order::Pause(Reason::Change { plan, done }));
        outcome.await.context("it has ended")?
    }
}

/// What a tunnel tells of itself.
pub enum Stage<'a> {
    /// It carries datagrams.
    Carrying {
        /// What is attached.
        attached: &'a mut Attached,
        /// What it is to be.
        plan: &'a Plan,
        /// Whether the programs are others than before.
        anew: bool,
    },
    /// The interface is gone; it is waited for.
    Waiting,
}

/// An interface, and what is attached to it.
pub struct Tunnel {
    plan: Plan,
    attached: Attached,
    /// Whether another process attached it.
    taken_over: bool,
    /// Who has packets recorded, if somebody has.
    recording: Option<Recording>,
    _lock: InterfaceLock,
}

impl Tunnel {
    /// Attaches, or goes on with what a process left attached; takes over from a
    /// running one if `take_over` says so. On failure everything is as it was.
    ///
    /// # Errors
    ///
    /// Names the step, the cause and the way out.
    pub fn attach(name: &str, plan: Plan, take_over: bool) -> Result<Self> {
        let interface = Interface::find(name)?;
        pins::mount_bpffs()?;
        let directory = pins::directory(interface.index)?;
        let options = plan.options();
        let lock = take_lock(&interface, &directory, take_over.then_some(&options))?;
        let attached = match Pinned::open(interface.index)? {
            Some(mut pinned) => {
                pinned.keep_as(name)?;
                Attached::adopt(interface, &options, &pinned)?
            }
            None => Attached::new(interface, &options)?,
        };
        Ok(Self {
            taken_over: attached.adopted.is_some(),
            plan,
            attached,
            recording: None,
            _lock: lock,
        })
    }

    /// Carries datagrams until an order ends that. Tells each time it can, and when it
    /// cannot.
    ///
    /// # Errors
    ///
    /// If it cannot go on, or cannot detach. The message tells what is attached
    /// then.
    pub async fn run(
        mut self,
        orders: &mut Orders<Reason>,
        observer: &dyn Observer,
        mut tell: impl FnMut(Stage<'_>) -> Result<()>,
    ) -> Result<()> {
        let name = self.attached.interface.name.clone();
        let mut was_ready = false;
        let mut anew = true;
        loop {
            let plan = &self.plan;
            let (attached, timers) = (&mut self.attached, plan.timers);
            let end = daemon::run(attached, timers, orders, observer, |attached| {
                tell(Stage::Carrying {
                    attached,
                    plan,
                    anew,
                })?;
                (anew, was_ready) = (false, true);
                Ok(())
            })
            .await;
            match end {
                Ok(End::Paused(Reason::Change { plan, done })) => {
                    let changed = self.change(*plan);
                    anew = matches!(changed, Ok(true));
                    let _gone = done.send(changed.map(|_| ()));
                }
                Ok(End::Paused(Reason::Addresses(addresses))) => {
                    let plan = Plan {
                        addresses,
                        ..self.plan.clone()
                    };
                    match self.change(plan) {
                        Ok(programs) => anew = programs,
                        Err(error) => warn!("{name}: cannot change the peers: {error:#}"),
                    }
                }
                Ok(End::Paused(Reason::Record(recording))) => {
                    anew = self.record(recording) && self.plan.options.trace;
                }
                Ok(End::Paused(Reason::StopRecording)) => {
                    anew = self.stop_recording() && self.plan.options.trace;
                }
                Ok(End::Paused(Reason::Succeeded)) => {
                    self.end_recording("another xdptun takes over");
                    info!("{name}: left to the process that takes over");
                    return Ok(());
                }
                Ok(End::Paused(Reason::Abandoned)) if self.taken_over => return Ok(()),
                Ok(End::Stopped | End::Paused(Reason::Abandoned)) => break,
                Ok(End::InterfaceGone) => {
                    warn!("{name}: the interface is gone; waiting for it to come back");
                    tell(Stage::Waiting)?;
                    self.end_recording("the interface is gone");
                    match wait_for(&name, orders, &mut self.plan).await? {
                        Waited::Found(interface) => {
                            let followed = self.attached.follow(interface, &self.plan.options());
                            self.attached = followed.with_context(|| {
                                format!(
                                    "it came back, and cannot be attached; {}",
                                    stays_attached(&name)
                                )
                            })?;
                            anew = true;
                        }
                        Waited::Left => {
                            info!("{name}: left to the process that takes over");
                            return Ok(());
                        }
                        Waited::Stopped => break,
                    }
                }
                // Who relies on the disguise must not lose it without asking.
                Err(error) if was_ready => {
                    return Err(error.context(stays_attached(&self.attached.interface.name)));
                }
                Err(error) if !self.taken_over => {
                    self.attached.detach().context("cannot detach")?;
                    return Err(error);
                }
                Err(error) => {
                    let name = &self.attached.interface.name;
                    return Err(error.context(format!(
                        "what was attached stays so, without a daemon; \
                         `xdptun attach --iface {name} ...` or `xdptun run` goes on with it"
                    )));
                }
            }
        }
        self.end_recording("xdptun ends");
        self.attached.detach().context("cannot detach")?;
        info!("{name}: detached");
        Ok(())
    }

    /// Becomes what `plan` says, by new programs in the place of the old ones if it
    /// takes that; whether it did. On failure it is as it was.
    fn change(&mut self, plan: Plan) -> Result<bool> {
        let (before, after) = (self.options(), self.recorded(plan.options()));
        let other_programs = after.takes_other_programs(&before);
        let changed = if other_programs {
            self.replace(&after)
        } else if after != before {
            self.attached.set(&after)
        } else {
            Ok(())
        };
        if let Err(error) = changed {
            return Err(match self.attached.set(&before) {
                Ok(()) => error,
                Err(also) => error.context(format!("and cannot be undone: {also:#}")),
            });
        }
        self.plan = plan;
        Ok(other_programs)
    }

    fn replace(&mut self, options: &AttachOptions) -> Result<()> {
        // Not by name, which may be another one's by now.
        let interface = Interface::at(self.attached.interface.index)?;
        let pinned = Pinned::open(interface.index)?.context("its pins are gone")?;
        self.attached = Attached::adopt(interface, options, &pinned)?;
        if let (Some(recording), Some(recorder)) = (&self.recording, self.attached.recorder.take())
        {
            recording.feed(recorder);
        }
        Ok(())
    }

    /// What its programs have to be.
    fn options(&self) -> AttachOptions {
        self.recorded(self.plan.options())
    }

    /// The same, with recording if there is a recording.
    fn recorded(&self, options: AttachOptions) -> AttachOptions {
        AttachOptions {
            record: self.recording.as_ref().map(|recording| recording.snap_len),
            ..options
        }
    }

    /// Begins to record, if nobody does; whether its programs are others now.
    fn record(&mut self, recording: Recording) -> bool {
        if self.recording.is_some() {
            recording.end("somebody captures here already; one at a time");
            return false;
        }
        self.recording = Some(recording);
        let begun = self.renew();
        let name = &self.attached.interface.name;
        match begun {
            Ok(()) => info!("{name}: packets are recorded for `xdptun capture`"),
            Err(error) => {
                self.end_recording(&format!("the programs cannot be replaced: {error:#}"));
                // Some of them may be.
                self.unrecord();
            }
        }
        true
    }

    /// Ends a recording that nobody reads; whether its programs are others now.
    fn stop_recording(&mut self) -> bool {
        // One that has ended by itself may have a successor.
        let read = |recording: &Recording| !recording.feed.is_closed();
        if self.recording.as_ref().is_none_or(read) {
            return false;
        }
        self.recording = None;
        self.unrecord();
        true
    }

    /// Ends a recording, if there is one, whose programs do not stay.
    fn end_recording(&mut self, why: &str) {
        if let Some(recording) = self.recording.take() {
            recording.end(why);
        }
    }

    /// Puts programs that do not record in the place of those that do.
    fn unrecord(&mut self) {
        let name = self.attached.interface.name.clone();
        match self.renew() {
            Ok(()) => info!("{name}: packets are not recorded any more"),
            Err(error) => warn!(
                "{name}: the programs go on to copy packets for nobody, as they cannot be \
                 replaced: {error:#}; starting xdptun again with `--take-over` does it"
            ),
        }
    }

    /// Loads the programs anew as they have to be. Flows do not notice: what is
    /// remembered of them is the same.
    fn renew(&mut self) -> Result<()> {
        self.replace(&self.options())?;
        self.attached.adopted = None;
        Ok(())
    }
}

/// Why nothing leaks from an interface that was given up, and the way out.
fn stays_attached(name: &str) -> String {
    format!(
        "the programs stay attached, so that nothing leaks; \
         `xdptun detach --iface {name}` removes them"
    )
}

/// How waiting for an interface ended.
pub enum Waited {
    /// It is there.
    Found(Interface),
    /// Another process waits for it.
    Left,
    /// It is not wanted any more.
    Stopped,
}

/// How often to look for an interface that is gone, should its coming be missed.
const LOOK: Duration = Duration::from_secs(1);

/// Waits until there is an interface of that name, or for what ends that. A change
/// changes `plan`.
///
/// # Errors
///
/// If the interfaces cannot be watched.
pub async fn wait_for(name: &str, orders: &mut Orders<Reason>, plan: &mut Plan) -> Result<Waited> {
    let mut links = LinkChanges::subscribe()?;
    loop {
        if let Ok(interface) = Interface::find(name) {
            return Ok(Waited::Found(interface));
        }
        tokio::select! {
            () = links.next() => {}
            () = tokio::time::sleep(LOOK) => {}
            order = daemon::next(orders) => match order {
                Order::Stop | Order::Pause(Reason::Abandoned) => return Ok(Waited::Stopped),
                Order::Pause(Reason::Succeeded) => return Ok(Waited::Left),
                Order::Pause(Reason::Change { plan: new, done }) => {
                    *plan = *new;
                    let _gone = done.send(Ok(()));
                }
                Order::Pause(Reason::Addresses(addresses)) => plan.addresses = addresses,
                Order::Pause(Reason::Record(recording)) => recording.end("the interface is gone"),
                Order::Pause(Reason::StopRecording) => {}
            }
        }
    }
}

/// How long a daemon may take to leave.
const HANDOVER: Duration = Duration::from_secs(5);

/// Takes the lock of an interface, from a running daemon if that is to be taken
/// over from with these options.
fn take_lock(
    interface: &Interface,
    directory: &Path,
    take_over: Option<&AttachOptions>,
) -> Result<InterfaceLock> {
    let name = &interface.name;
    let already = format!(
        "{name}: xdptun is already attached; `xdptun status` shows it, `--take-over` takes its \
         place without a gap, `xdptun detach --iface {name}` ends it"
    );
    let take = || {
        InterfaceLock::take(directory)
            .with_context(|| format!("cannot lock {}", directory.display()))
    };
    let lock = match (take()?, take_over) {
        (None, Some(options)) => {
            let busy =
                || format!("{name}: xdptun is just being attached; try again when it is ready");
            let pinned = Pinned::open(interface.index)?.with_context(busy)?;
            // Before the other leaves.
            Attached::check(options, &pinned).with_context(|| name.clone())?;
            let process = Pinned::daemon(interface.index)?.with_context(busy)?;
            kill(process, TAKE_OVER)
                .with_context(|| format!("{name}: cannot ask process {process} to leave"))?;
            if !InterfaceLock::wait_released(directory, HANDOVER)? {
                bail!("{name}: process {process} does not leave; nothing was changed");
            }
            take()?
        }
        (lock, _) => lock,
    };
    let lock = lock.context(already.clone())?;
    if !Pinned::exists(interface.index)? && datapath::is_attached(name) {
        pins::remove_directory(directory)?;
        bail!("{already}; its pins are not in this mount namespace");
    }
    Ok(lock)
}

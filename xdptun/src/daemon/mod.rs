//! What runs while an interface is attached: datagrams that wait for a
//! handshake, SYN retransmission, keepalive, expiry, and the clean end.
//!
//! None of it is on the path of established data: the programs carry that on
//! their own, with or without a daemon.

mod evict;
mod inject;
mod queue;
mod refusals;
mod sweep;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;

use anyhow::{Context as _, Result};
use aya::maps::{MapData, RingBuf};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tracing::{debug, info, warn};
use xdptun_common::flow::key::FlowKey;
use xdptun_common::report::event::{Event, Kind};
use xdptun_common::tunnel::config::Request;
use xdptun_common::tunnel::outcome::Outcome;
use xdptun_common::tunnel::state::{Flow, State};

use crate::addresses::AddressWatch;
use crate::datapath::Attached;
use crate::interface::name_of;
use crate::netlink::LinkChanges;
use inject::Injector;
use queue::Queue;
use refusals::Refusals;
use sweep::Doubts;

/// Silence after which a flow is probed, unless an operator says otherwise, in
/// seconds: what WireGuard's PersistentKeepalive uses, below every common NAT's
/// limit.
pub const KEEPALIVE: u32 = 25;
/// Time without datagrams after which a flow is ended, unless an operator says
/// otherwise, in seconds: outlives any pause within a conversation.
pub const IDLE_TIMEOUT: u32 = 600;

/// Times that an operator can set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timers {
    /// Silence after which a flow is probed.
    pub keepalive: Duration,
    /// Time without datagrams after which a flow is ended.
    pub idle: Duration,
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            keepalive: Duration::from_secs(KEEPALIVE.into()),
            idle: Duration::from_secs(IDLE_TIMEOUT.into()),
        }
    }
}

/// How often flows are looked at, unless that would take more than a tenth of
/// the time; at least every two seconds.
const SWEEP: Duration = Duration::from_millis(100);
const SWEEP_AT_LEAST: Duration = Duration::from_secs(2);
const SWEEP_SHARE: u32 = 10;
/// How often waiting handshakes are looked at.
const TICK: Duration = Duration::from_millis(100);
/// How long a clean end may take in all, and how often a FIN is repeated.
const GOODBYE: Duration = Duration::from_secs(1);
const FIN_INTERVAL: Duration = Duration::from_millis(200);

/// What ended the daemon.
#[derive(Debug, PartialEq, Eq)]
pub enum End<T> {
    /// It was told to stop, and every flow was ended.
    Stopped,
    /// It was told to make room for something; nothing was ended.
    Paused(T),
    /// The interface is gone.
    InterfaceGone,
}

/// What a daemon is told.
#[derive(Debug)]
pub enum Order<T> {
    /// End every flow, and then the daemon.
    Stop,
    /// End the daemon and leave the flows to what comes after it.
    Pause(T),
}

/// The signal that asks a daemon to leave everything to another process. One of
/// a version that does not know it dies of it, which comes to the same.
pub const TAKE_OVER: nix::sys::signal::Signal = nix::sys::signal::Signal::SIGUSR2;

/// What happens to a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Its handshake ended: datagrams pass.
    Up,
    /// Both ends closed it.
    Closed,
    /// The peer, or somebody on the way, reset it.
    Reset,
    /// The path seems dead, so it is opened again.
    Reopened {
        /// How long the peer has been silent.
        silence: Duration,
    },
    /// Nobody answers its handshake.
    Unanswered {
        /// How many datagrams waited for it, and were dropped.
        datagrams: usize,
    },
}

/// Whom a daemon tells what happens.
pub trait Observer {
    /// Something happened to a flow.
    fn flow(&self, flow: &FlowKey, news: News);
}

/// Where a daemon gets its orders from. One whose sender is gone has to stop.
pub type Orders<T> = UnboundedReceiver<Order<T>>;

/// Waits for the next order.
pub async fn next<T>(orders: &mut Orders<T>) -> Order<T> {
    orders.recv().await.unwrap_or(Order::Stop)
}

/// Runs until something ends it, and ends every flow if that was a stop. Calls
/// `ready` when nothing can fail any more that an operator should have to know
/// before. Can be run again after a pause.
///
/// # Errors
///
/// If the programs' records cannot be read, no frames be sent, or `ready` fails.
pub async fn run<T>(
    attached: &mut Attached,
    timers: Timers,
    orders: &mut Orders<T>,
    observer: &dyn Observer,
    ready: impl FnOnce(&mut Attached) -> Result<()>,
) -> Result<End<T>> {
    let events = attached
        .events
        .take()
        .context("the records are read elsewhere")?;
    let mut events = watch(events)?;
    let injector = Injector::new(&attached.interface).context("cannot open a packet socket")?;
    let mut links = LinkChanges::subscribe()?;
    let mut addresses = AddressWatch::begin(attached.interface.index)?;
    // They may have changed since they were read to attach.
    attached.local.set(&addresses.list().await?)?;
    let mut addresses_changed = false;
    let refused = attached.maps.counter(Outcome::RxRefused.index());
    let refused = refused.context("cannot read the counters")?;
    ready(attached)?;
    let mut daemon = Daemon {
        attached,
        injector,
        queue: Queue::default(),
        refusals: Refusals::new(refused),
        doubts: Doubts::default(),
        timers,
        observer,
    };
    if daemon.attached.adopted.take().is_some() {
        daemon.restart_handshakes(events.get_mut())?;
    }
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut next_sweep = Instant::now() + SWEEP;
    loop {
        tokio::select! {
            order = next(orders) => match order {
                Order::Stop => break,
                Order::Pause(reason) => {
                    daemon.hand_back();
                    attached.events = Some(events.into_inner());
                    return Ok(End::Paused(reason));
                }
            },
            () = links.next() => {}
            () = addresses.changed() => addresses_changed = true,
            ready = events.readable_mut() => {
                let mut ready = ready?;
                if daemon.drain(ready.get_inner_mut()) {
                    ready.clear_ready();
                }
            }
            _ = tick.tick() => {
                daemon.serve_waiting();
                if addresses_changed {
                    addresses_changed = !daemon.read_addresses(&addresses).await;
                }
            }
            () = sleep_until(next_sweep) => {
                let begun = Instant::now();
                daemon.sweep();
                let pause = begun.elapsed() * SWEEP_SHARE;
                next_sweep = Instant::now() + pause.clamp(SWEEP, SWEEP_AT_LEAST);
            }
        }
        if !daemon.is_there() {
            return Ok(End::InterfaceGone);
        }
    }
    daemon.say_goodbye(&mut events, orders).await?;
    Ok(End::Stopped)
}

/// Watches a ring buffer for records.
pub(crate) fn watch<T: AsRawFd>(ring: T) -> Result<AsyncFd<T>> {
    // SAFETY: aya's ring buffers own their descriptor, keep it open as long as
    // they live, and always name the same one.
    let watched = unsafe { AsyncFd::register_with_interest(ring, Interest::READABLE) };
    watched.map_err(|error| std::io::Error::from(error).into())
}

struct Daemon<'a> {
    attached: &'a mut Attached,
    injector: Injector,
    queue: Queue,
    refusals: Refusals,
    doubts: Doubts,
    timers: Timers,
    observer: &'a dyn Observer,
}

impl Daemon<'_> {
    /// Whether the interface is there, under whatever name.
    fn is_there(&mut self) -> bool {
        let interface = &mut self.attached.interface;
        let Some(name) = name_of(interface.index) else {
            return false;
        };
        if interface.name != name {
            info!("{}: it is called {name} now", interface.name);
            interface.name = name;
        }
        true
    }

    /// Tells the programs the addresses of this host; whether that could be done.
    async fn read_addresses(&mut self, addresses: &AddressWatch) -> bool {
        let told = match addresses.list().await {
            Ok(addresses) => self.attached.local.set(&addresses),
            Err(error) => Err(error),
        };
        if let Err(error) = &told {
            debug!("{}: {error:#}", self.attached.interface.name);
        }
        told.is_ok()
    }

    /// Handles records; whether that was all. Stops after some, so that a flood
    /// of them cannot keep timers and signals waiting.
    fn drain(&mut self, events: &mut RingBuf<MapData>) -> bool {
        const AT_ONCE: usize = 1024;
        for _ in 0..AT_ONCE {
            let Some(record) = events.next() else {
                return true;
            };
            let Some(event) = xdptun_common::read_plain::<Event>(&record) else {
                debug!("a record of {} bytes is too short", record.len());
                continue;
            };
            let frame = record.get(size_of::<Event>()..).unwrap_or_default();
            let frame = frame.get(..event.len as usize).unwrap_or_default();
            self.handle(event, frame);
        }
        false
    }

    fn handle(&mut self, event: Event, frame: &[u8]) {
        let flow = &event.flow;
        match Kind::from_raw(event.kind) {
            Some(Kind::Queued) => self.enqueue(flow, frame),
            Some(Kind::Established) => {
                self.observer.flow(flow, News::Up);
                self.flush(flow);
            }
            Some(Kind::Finished) => self.observer.flow(flow, News::Closed),
            Some(Kind::Reset) => self.observer.flow(flow, News::Reset),
            None => debug!("a record of unknown kind {}", event.kind),
        }
    }

    /// Keeps a datagram until its flow is up, which may be now: the record of
    /// the end of the handshake can come before this one. If nobody opens that flow any
    /// more, since it was removed or closed meanwhile, the datagram opens it anew.
    fn enqueue(&mut self, key: &FlowKey, frame: &[u8]) {
        if !self.queue.push(*key, frame) {
            self.count_lost(1);
        }
        let state = match self.attached.maps.flow(key) {
            Ok(flow) => flow.map_or(State::Closed, |flow| flow.state()),
            Err(error) => {
                debug!("cannot look for the flow: {error}");
                return;
            }
        };
        match state {
            State::Established | State::Closed => self.flush(key),
            State::SynSent | State::SynReceived | State::FinSent => {}
        }
    }

    fn is_established(&self, key: &FlowKey) -> bool {
        matches!(self.attached.maps.flow(key), Ok(Some(flow)) if flow.state() == State::Established)
    }

    /// Sends what waited for a flow, in order.
    fn flush(&mut self, key: &FlowKey) {
        for frame in self.queue.take(key) {
            if let Err(error) = self.injector.resend(key, frame) {
                warn!(
                    "{} -> {}: cannot send a queued datagram: {error}",
                    key.local(),
                    key.remote()
                );
                self.count_lost(1);
            }
        }
    }

    /// Sends what waits for a flow that is up by now, should the record of that
    /// be lost, and gives up on what has waited too long. The sweep repeats SYNs.
    fn serve_waiting(&mut self) {
        for key in self.queue.waiting() {
            if self.is_established(&key) {
                self.flush(&key);
            }
        }
        for (key, datagrams) in self.queue.give_up() {
            self.observer.flow(&key, News::Unanswered { datagrams });
            self.count_lost(datagrams as u64);
        }
    }

    /// Tells at once of what usually means that the other end is not there yet: the
    /// datagrams themselves are given up only after some time.
    fn tell_refusals(&mut self, flows: &[(FlowKey, Flow)]) {
        let count = self.attached.maps.counter(Outcome::RxRefused.index());
        let Ok(count) = count.inspect_err(|error| debug!("cannot read the counters: {error}"))
        else {
            return;
        };
        let waits = !self.queue.is_empty();
        if !self.refusals.is_news(count, waits, Instant::now()) {
            return;
        }
        // Which of those that are called it is, is not counted.
        let called = flows.iter().filter(|(_, flow)| flow.is_called());
        let called: BTreeSet<SocketAddr> = called.map(|(key, _)| key.remote()).collect();
        let peer = match (called.len(), called.first()) {
            (1, Some(peer)) => peer.to_string(),
            (more, _) => format!("one of {more} peers that are called"),
        };
        warn!(
            "{peer}, or a firewall before it, refuses: is xdptun attached there, to the \
             interface and port that are called? `xdptun doctor` tells more"
        );
    }

    /// Begins handshakes anew that another process began: the programs may have
    /// learnt a secret since.
    fn restart_handshakes(&mut self, events: &mut RingBuf<MapData>) -> Result<()> {
        // What waits for them comes first, so that it opens the flows again; in
        // bounds, as more may come all the time.
        const ROUNDS: usize = 64;
        let _all = (0..ROUNDS).any(|_| self.drain(events));
        for (key, flow) in self.attached.maps.flows()? {
            if matches!(flow.state(), State::SynSent | State::SynReceived) {
                self.request(&key, &flow, Request::Finish);
                self.flush(&key);
            }
        }
        Ok(())
    }

    /// Sends all that waits again: the programs hand it to the next daemon.
    fn hand_back(&mut self) {
        for key in self.queue.waiting() {
            self.flush(&key);
        }
    }

    /// Asks the program for a control segment. It knows best whether that is
    /// still due, and drops the frame if not.
    fn request(&self, key: &FlowKey, flow: &Flow, request: Request) {
        if let Err(error) = self.injector.request(key, flow.link, request) {
            let (local, remote) = (key.local(), key.remote());
            debug!("{local} -> {remote}: {request:?} failed: {error}");
        }
    }

    fn count_lost(&mut self, datagrams: u64) {
        let maps = &mut self.attached.maps;
        let counted = maps.attachment().and_then(|mut attachment| {
            attachment.lost_in_queue += datagrams;
            Ok(maps.set_attachment(attachment)?)
        });
        if let Err(error) = counted {
            debug!("cannot count lost datagrams: {error:#}");
        }
    }

    /// Ends every flow with FIN and waits for the peers', not for long.
    async fn say_goodbye<T>(
        &mut self,
        events: &mut AsyncFd<RingBuf<MapData>>,
        orders: &mut Orders<T>,
    ) -> Result<()> {
        let deadline = Instant::now() + GOODBYE;
        let mut repeat = interval(FIN_INTERVAL);
        loop {
            if self.open_flows()?.is_empty() {
                return Ok(());
            }
            tokio::select! {
                ready = events.readable_mut() => {
                    let mut ready = ready?;
                    if self.drain(ready.get_inner_mut()) {
                        ready.clear_ready();
                    }
                }
                _ = repeat.tick() => {
                    for (key, flow) in self.open_flows()? {
                        self.request(&key, &flow, Request::Finish);
                    }
                }
                () = sleep_until(deadline) => {
                    warn!("{} flows did not answer the FIN", self.open_flows()?.len());
                    return Ok(());
                }
                _ = next(orders) => return Ok(()),
            }
        }
    }

    fn open_flows(&self) -> Result<Vec<(FlowKey, Flow)>> {
        let mut flows = self.attached.maps.flows()?;
        flows.retain(|(_, flow)| matches!(flow.state(), State::Established | State::FinSent));
        Ok(flows)
    }
}

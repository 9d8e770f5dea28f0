//! The daemon of a group of interfaces: it keeps datagrams that wait for a handshake,
//! repeats SYNs, probes silent flows, removes flows that are over, and ends all flows at
//! its own end.
//!
//! It is not on the path of established data: the programs carry that on their own, with
//! or without a daemon.

mod brief;
mod doubts;
mod evict;
mod goodbye;
mod inject;
mod need;
mod observer;
mod round_trip;
#[cfg(test)]
mod sample;
mod sweep;
mod unanswered;
mod waiting;

pub use observer::{News, Observer};

use std::future::pending;
use std::time::Duration;

use aya::maps::{MapData, MapError, RingBuf};
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tracing::{debug, warn};
use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::config::Request;
use xdptun_common::tunnel::event::{Event, Kind};
use xdptun_common::tunnel::outcome::Outcome;
use xdptun_common::tunnel::state::Flow;

use crate::config::{IDLE_TIMEOUT, KEEPALIVE};
use crate::error::{Context as _, Result};
use crate::group::events::{drain, watch};
use crate::group::orders::next;
use crate::group::queue::{Limits, Queue};
use crate::group::{Carried, End, Order, Orders, Reason};
use crate::host::addresses::AddressWatch;
use crate::host::interface::Interface;
use crate::host::netlink::LinkChanges;
use crate::tunnel::{Attached, Plan};
use brief::{Brief, Telling};
use doubts::Doubts;
use inject::Injector;
use unanswered::Unanswered;

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

/// The pause between two sweeps. It grows so that reading the table takes at most one part in
/// `SWEEP_SHARE` of the time, up to `SWEEP_AT_LEAST`. What a sweep sends has limits of its own, and
/// flows that wait for it must not wait the longer, the more there are.
const SWEEP: Duration = Duration::from_millis(100);
const SWEEP_AT_LEAST: Duration = Duration::from_secs(2);
const SWEEP_SHARE: u32 = 10;
/// Datagrams that may wait for handshakes.
const WAITING: Limits = Limits {
    for_one: 8 << 20,
    in_all: 64 << 20,
    patience: Duration::from_secs(10),
};
/// How often the daemon looks at waiting datagrams.
const TICK: Duration = Duration::from_millis(100);

/// Runs the daemon until an order ends it, an interface goes, or one of the `missing` comes. A stop ends
/// every flow; a change of plan ends the flows that the new plan does not carry. Calls `ready` after the
/// last step of the start that can fail. Can be called again after a pause.
///
/// # Errors
///
/// If the daemon cannot read the events of the programs or send frames, or if `ready`
/// fails.
pub async fn run(
    attached: &mut Attached,
    timers: Timers,
    missing: &[String],
    orders: &mut Orders<Reason<Plan>>,
    observer: &dyn Observer,
    ready: impl FnOnce(&mut Attached) -> Result<()>,
) -> Result<End<Reason<Plan>>> {
    let mut sources = Sources::open(attached).await?;
    let mut daemon = Daemon::new(attached, timers, observer)?;
    ready(daemon.attached)?;
    if std::mem::take(&mut daemon.attached.adopted) {
        daemon.restart_handshakes(sources.events.get_mut())?;
    }
    let end = daemon.serve(&mut sources, missing, orders).await?;
    if let End::Paused(Reason::Change { plan, .. }) = &end {
        let after = plan.options().settings;
        let is_left = |key: &FlowKey| !after.carry(key);
        let events = &mut sources.events;
        let said = daemon.say_goodbye(events, is_left, pending::<()>()).await;
        if let Err(error) = said {
            warn!("flows that are not carried any more go on at their peers: {error:#}");
        }
    }
    match &end {
        End::Stopped => {
            let events = &mut sources.events;
            daemon.say_goodbye(events, |_| true, next(orders)).await?;
        }
        End::Paused(_) | End::InterfacesChanged => {
            daemon.hand_back();
            attached.maps.events = Some(sources.events.into_inner());
        }
    }
    Ok(end)
}

/// The sources of what the daemon reacts to, besides orders and time.
struct Sources {
    events: AsyncFd<RingBuf<MapData>>,
    links: LinkChanges,
    addresses: AddressWatch,
}

impl Sources {
    /// Takes the events of an attachment, and begins to watch the host.
    async fn open(attached: &mut Attached) -> Result<Self> {
        let events = attached.maps.events.take();
        let events = watch(events.context("another task reads the events")?)?;
        let links = LinkChanges::subscribe()?;
        let addresses = AddressWatch::begin(attached.indices())?;
        // The addresses may have changed since the attachment read them.
        attached.set_addresses(&addresses.list().await?)?;
        Ok(Self {
            events,
            links,
            addresses,
        })
    }
}

/// How many connections of this host were refused.
fn refused(attached: &Attached) -> Result<u64, MapError> {
    let refused = |one: &Carried| {
        let index = Outcome::RxRefused.index();
        Ok(attached.engine.counter(one.row, index)?.count)
    };
    attached.interfaces.iter().map(refused).sum()
}

struct Daemon<'a> {
    attached: &'a mut Attached,
    injector: Injector,
    queue: Queue<FlowKey>,
    unanswered: Unanswered,
    doubts: Doubts,
    brief: Brief,
    /// When addresses without flows were last removed, in nanoseconds of
    /// `CLOCK_MONOTONIC`.
    tidied: u64,
    timers: Timers,
    observer: &'a dyn Observer,
}

impl<'a> Daemon<'a> {
    fn new(attached: &'a mut Attached, timers: Timers, observer: &'a dyn Observer) -> Result<Self> {
        let injector = Injector::new().context("cannot open a packet socket")?;
        let refused = refused(attached).context("cannot read the counters")?;
        Ok(Self {
            attached,
            injector,
            queue: Queue::new(WAITING),
            unanswered: Unanswered::new(refused),
            doubts: Doubts::default(),
            brief: Brief::default(),
            tidied: 0,
            timers,
            observer,
        })
    }

    /// Runs until an order, or the loss or return of an interface.
    async fn serve<T>(
        &mut self,
        sources: &mut Sources,
        missing: &[String],
        orders: &mut Orders<T>,
    ) -> Result<End<T>> {
        let mut addresses_changed = false;
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut next_sweep = Instant::now() + SWEEP;
        // It may have happened before the kernel was asked for messages.
        if self.attached.interfaces_changed(missing) {
            return Ok(End::InterfacesChanged);
        }
        loop {
            tokio::select! {
                order = next(orders) => return Ok(match order {
                    Order::Stop => End::Stopped,
                    Order::Pause(reason) => End::Paused(reason),
                }),
                () = sources.links.next() => {
                    if self.attached.interfaces_changed(missing) {
                        return Ok(End::InterfacesChanged);
                    }
                }
                () = sources.addresses.changed() => addresses_changed = true,
                ready = sources.events.readable_mut() => {
                    let mut ready = ready?;
                    if self.drain(ready.get_inner_mut()) {
                        ready.clear_ready();
                    }
                }
                _ = tick.tick() => {
                    // The kernel's message may have been lost.
                    if self.attached.interfaces_changed(missing) {
                        return Ok(End::InterfacesChanged);
                    }
                    self.serve_waiting();
                    if addresses_changed {
                        addresses_changed = !self.read_addresses(&sources.addresses).await;
                    }
                }
                () = sleep_until(next_sweep) => {
                    let pause = self.sweep() * SWEEP_SHARE;
                    next_sweep = Instant::now() + pause.clamp(SWEEP, SWEEP_AT_LEAST);
                }
            }
        }
    }

    /// Gives the programs the addresses of this host; returns whether that worked.
    async fn read_addresses(&mut self, addresses: &AddressWatch) -> bool {
        let told = match addresses.list().await {
            Ok(addresses) => self.attached.set_addresses(&addresses),
            Err(error) => Err(error),
        };
        if let Err(error) = &told {
            debug!("cannot tell the programs the addresses: {error:#}");
        }
        told.is_ok()
    }

    /// Handles events; returns whether there are no more.
    fn drain(&mut self, events: &mut RingBuf<MapData>) -> bool {
        drain(events, |event: &Event, rest| self.handle(event, rest))
    }

    fn handle(&mut self, event: &Event, rest: &[u8]) {
        let frame = rest.get(..event.len as usize).unwrap_or_default();
        let flow = &event.flow;
        match Kind::from_raw(event.kind) {
            Some(Kind::Queued) => self.enqueue(flow, event.interface, frame),
            Some(Kind::Established) => {
                self.tell_up(flow, event.at);
                self.flush(flow);
            }
            Some(Kind::Finished) => self.tell_end(flow, event.at, News::Closed),
            Some(Kind::Reset) => self.tell_end(flow, event.at, News::Reset),
            Some(Kind::Fragmented) => self.tell_fragmented(flow),
            None => debug!("an event of unknown kind {}", event.kind),
        }
    }

    /// Tells that a flow came up, unless its peer ends each at once. Those that strangers open are
    /// theirs to end.
    fn tell_up(&mut self, key: &FlowKey, at: u64) {
        let flow = self.attached.maps.flow(key).ok().flatten();
        let is_own = flow.is_some_and(|flow| flow.syn_at != 0);
        if !is_own || self.brief.up(key, at) {
            self.observer.flow(key, News::Up);
        }
    }

    /// Tells that the peer ended a flow, unless it ends each at once and that was told.
    fn tell_end(&mut self, key: &FlowKey, at: u64, news: News) {
        match self.brief.ended(key, at) {
            Telling::End => self.observer.flow(key, news),
            Telling::Brief(flows) => self.observer.flow(key, News::Brief { flows }),
            Telling::Nothing => {}
        }
    }

    /// Tells that a flow sends fragments.
    fn tell_fragmented(&self, key: &FlowKey) {
        let flow = self.attached.maps.flow(key).ok().flatten();
        let interface = flow.and_then(|flow| Some(self.way_of(&flow)?.index));
        self.observer.flow(key, News::Fragmented { interface });
    }

    /// The interface by which the segments of a flow leave: the one that it last sent by, if
    /// that is there.
    fn way_of(&self, flow: &Flow) -> Option<&Interface> {
        let last = self.attached.at(flow.interface);
        let carried = last.or_else(|| self.attached.present().next())?;
        Some(&carried.interface)
    }

    /// Asks the egress program for a control segment. The program drops the request if the
    /// segment is no longer due.
    fn request(&mut self, key: &FlowKey, flow: &Flow, request: Request) {
        if request == Request::Finish {
            self.brief.forget(key);
        }
        let Some(interface) = self.way_of(flow) else {
            return;
        };
        let requested = self.injector.request(key, flow.link, interface, request);
        if let Err(error) = requested {
            let (local, remote) = (key.local(), key.remote());
            debug!("{local} -> {remote}: {request:?} failed: {error}");
        }
    }
}

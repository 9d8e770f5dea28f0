//! The daemon of a group of interfaces: it removes sessions that are over, follows the addresses
//! of this host, holds fragments that come before the first one of their datagram, and tells senders
//! of packets that the programs refused. Other packets never visit it.

mod answers;
mod held;

use std::time::Duration;

use aya::maps::{MapData, RingBuf};
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tracing::{debug, warn};
use xdptun_common::gateway::request::{Kind, Request};

use super::Attached;
use super::plan::Plan;
use super::sweep::Sweeper;
use crate::error::{Context as _, Result};
use crate::group::events::{drain, watch};
use crate::group::orders::next;
use crate::group::refusal::{Answer, prohibited, reset};
use crate::group::{End, Order, Orders, Reason};
use crate::host::addresses::AddressWatch;
use crate::host::clock::monotonic_ns;
use crate::host::netlink::LinkChanges;
use answers::Answers;
use held::Fragments;

/// How often the daemon looks for sessions that are over, if that takes no time. The programs
/// do not wait for it: to them such a session is absent.
const PAUSE: Duration = Duration::from_secs(1);

/// How long it pauses at most: a sweep keeps bindings of silent connections, which end a little
/// later than they are told ([`BINDING_REST`](xdptun_common::gateway::nat::BINDING_REST)).
const LONGEST: Duration = Duration::from_secs(10);

/// How much longer the pause is than the look before it, so that a large table takes a
/// twentieth of a CPU at most.
const REST: u32 = 20;

/// After that a request is of no use any more.
const STALE: Duration = Duration::from_secs(2);

/// How often the daemon looks at fragments that wait, and tells the programs that it is awake.
const TICK: Duration = Duration::from_millis(500);

/// Runs until an order ends it, or an interface comes or goes. Can be called again after a pause.
pub async fn run(
    attached: &mut Attached,
    missing: &[String],
    orders: &mut Orders<Reason<Plan>>,
    ready: impl FnOnce(&mut Attached) -> Result<()>,
) -> Result<End<Reason<Plan>>> {
    let requests = attached.maps.requests.ring.take();
    let mut requests = watch(requests.context("another task reads the requests")?)?;
    let mut daemon = Daemon {
        fragments: Fragments::new().context("cannot open a packet socket")?,
        answers: Answers::new().context("cannot open a raw socket")?,
        sweeper: Sweeper::default(),
        attached,
    };
    let end = daemon.serve(&mut requests, missing, orders, ready).await?;
    daemon.fragments.abandon(daemon.attached);
    attached.maps.requests.ring = Some(requests.into_inner());
    Ok(end)
}

struct Daemon<'a> {
    attached: &'a mut Attached,
    fragments: Fragments,
    answers: Answers,
    sweeper: Sweeper,
}

impl Daemon<'_> {
    async fn serve(
        &mut self,
        requests: &mut AsyncFd<RingBuf<MapData>>,
        missing: &[String],
        orders: &mut Orders<Reason<Plan>>,
        ready: impl FnOnce(&mut Attached) -> Result<()>,
    ) -> Result<End<Reason<Plan>>> {
        let mut links = LinkChanges::subscribe()?;
        let mut addresses = AddressWatch::begin(self.attached.indices())?;
        self.attached.set_local(&addresses.list().await?)?;
        self.attached.maps.requests.note_awake()?;
        ready(self.attached)?;
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut sweep_at = Instant::now();
        loop {
            tokio::select! {
                order = next(orders) => return Ok(match order {
                    Order::Stop => End::Stopped,
                    Order::Pause(reason) => End::Paused(reason),
                }),
                () = links.next() => if self.attached.interfaces_changed(missing) {
                    return Ok(End::InterfacesChanged);
                },
                () = addresses.changed() => self.read_addresses(&addresses).await?,
                readable = requests.readable_mut() => {
                    let mut readable = readable?;
                    let requests = readable.get_inner_mut();
                    if drain(requests, |request: &Request, rest| self.handle(request, rest)) {
                        readable.clear_ready();
                    }
                }
                _ = tick.tick() => {
                    self.attached.maps.requests.note_awake()?;
                    self.fragments.check(self.attached);
                }
                () = sleep_until(sweep_at) => {
                    let began = Instant::now();
                    self.sweep().await;
                    if self.attached.interfaces_changed(missing) {
                        return Ok(End::InterfacesChanged);
                    }
                    sweep_at = Instant::now() + (began.elapsed() * REST).clamp(PAUSE, LONGEST);
                }
            }
        }
    }

    /// Gives the programs the addresses of this host.
    async fn read_addresses(&mut self, addresses: &AddressWatch) -> Result<()> {
        match addresses.list().await {
            Ok(addresses) => self.attached.set_local(&addresses)?,
            Err(error) => warn!("cannot follow the addresses of this host: {error:#}"),
        }
        Ok(())
    }

    async fn sweep(&mut self) {
        if let Err(error) = self.sweeper.sweep(&mut self.attached.maps).await {
            warn!("cannot remove sessions that are over: {error:#}");
        }
    }

    /// Sends the answer to a frame that was met at an interface, if one is due.
    fn answer(&self, interface: u32, answer_at: impl FnOnce(usize) -> Option<Answer>) {
        let Some(met_at) = self.attached.at(interface) else {
            return;
        };
        let Some(answer) = answer_at(met_at.interface.link_len as usize) else {
            return;
        };
        if let Err(error) = self.answers.send(&answer) {
            debug!("cannot answer a packet that was refused: {error}");
        }
    }

    fn handle(&mut self, request: &Request, rest: &[u8]) {
        let frame = rest.get(..request.len as usize).unwrap_or_default();
        let (datagram, interface) = (&request.datagram, request.interface);
        // It may be from before this daemon ran.
        let is_stale = monotonic_ns().saturating_sub(request.at) > STALE.as_nanos() as u64;
        match Kind::from_raw(request.kind) {
            // Its first has come long ago, or never.
            Some(Kind::Hold) if is_stale => {
                self.attached.count_lost(interface, 1);
            }
            Some(Kind::Hold) => {
                self.fragments
                    .hold(self.attached, datagram, interface, frame);
            }
            Some(Kind::Release) => self.fragments.release(self.attached, datagram),
            Some(Kind::Prohibit | Kind::Reset) if is_stale => {}
            Some(Kind::Prohibit) => self.answer(interface, |at| prohibited(frame, at)),
            Some(Kind::Reset) => self.answer(interface, |at| reset(frame, at)),
            None => debug!("a request of unknown kind {}", request.kind),
        }
    }
}

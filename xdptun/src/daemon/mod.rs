//! What runs while an interface is attached: datagrams that wait for a
//! handshake, SYN retransmission, keepalive, expiry, and the clean end.
//!
//! None of it is on the path of established data: the programs carry that on
//! their own, with or without a daemon.

mod inject;
mod queue;
mod sweep;

use std::os::fd::AsRawFd;
use std::time::Duration;

use anyhow::{Context as _, Result};
use aya::maps::{MapData, RingBuf};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tracing::{debug, info, warn};
use xdptun_common::config::Request;
use xdptun_common::event::{Event, Kind};
use xdptun_common::flow::{FlowKey, State};

use crate::datapath::Attached;
use inject::Injector;
use queue::Queue;

/// Times that an operator can set.
#[derive(Clone, Copy, Debug)]
pub struct Timers {
    /// Silence after which a flow is probed.
    pub keepalive: Duration,
    /// Time without datagrams after which a flow is ended.
    pub idle: Duration,
}

impl Default for Timers {
    fn default() -> Self {
        // 25 s is what WireGuard's PersistentKeepalive uses: below every common
        // NAT's limit. Ten minutes outlive any pause within a conversation.
        Self {
            keepalive: Duration::from_secs(25),
            idle: Duration::from_secs(600),
        }
    }
}

/// How often flows are looked at.
const SWEEP: Duration = Duration::from_secs(1);
/// How often waiting handshakes are looked at.
const TICK: Duration = Duration::from_millis(100);
/// How long a clean end may take in all, and how often a FIN is repeated.
const GOODBYE: Duration = Duration::from_secs(1);
const FIN_INTERVAL: Duration = Duration::from_millis(200);

/// SIGINT and SIGTERM, caught from the moment it is made.
pub struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// Starts catching both signals.
    ///
    /// # Errors
    ///
    /// If the handlers cannot be installed.
    pub fn catch() -> Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).context("cannot catch SIGINT")?,
            terminate: signal(SignalKind::terminate()).context("cannot catch SIGTERM")?,
        })
    }

    async fn requested(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Runs until stopped and ends every flow. Calls `ready` when nothing can fail
/// any more that an operator should have to know before.
///
/// # Errors
///
/// If the programs' records cannot be read, no frames be sent, or `ready` fails.
pub async fn run(
    attached: &mut Attached,
    timers: Timers,
    mut stop: Stop,
    ready: impl FnOnce(&mut Attached) -> Result<()>,
) -> Result<()> {
    let events = attached
        .events
        .take()
        .context("the records are read elsewhere")?;
    let mut events = watch(events)?;
    let injector = Injector::new(&attached.interface).context("cannot open a packet socket")?;
    ready(attached)?;
    let mut daemon = Daemon {
        attached,
        injector,
        queue: Queue::default(),
        timers,
    };
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut sweep = interval(SWEEP);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.requested() => break,
            ready = events.readable_mut() => {
                let mut ready = ready?;
                if daemon.drain(ready.get_inner_mut()) {
                    ready.clear_ready();
                }
            }
            _ = tick.tick() => daemon.retransmit(),
            _ = sweep.tick() => daemon.sweep(),
        }
    }
    daemon.say_goodbye(&mut events, &mut stop).await
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
    timers: Timers,
}

impl Daemon<'_> {
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
        let (local, remote) = (event.flow.local(), event.flow.remote());
        match Kind::from_raw(event.kind) {
            Some(Kind::Queued) => self.enqueue(&event.flow, frame),
            Some(Kind::Established) => {
                info!("{local} -> {remote} up");
                self.flush(&event.flow);
            }
            Some(Kind::Finished) => info!("{local} -> {remote} down: closed"),
            Some(Kind::Reset) => info!("{local} -> {remote} down: reset by the peer"),
            None => debug!("a record of unknown kind {}", event.kind),
        }
    }

    /// Keeps a datagram until its flow is up, which may be now: the record of
    /// the end of the handshake can come before this one.
    fn enqueue(&mut self, key: &FlowKey, frame: &[u8]) {
        if !self.queue.push(*key, frame) {
            self.count_lost(1);
        }
        if self.is_established(key) {
            self.flush(key);
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

    /// Sends due SYNs of waiting flows again, and gives up on old ones.
    fn retransmit(&mut self) {
        for key in self.queue.waiting() {
            if self.is_established(&key) {
                self.flush(&key);
                continue;
            }
            // The program knows whether one is due, and drops the frame if not.
            if let Err(error) =
                self.injector
                    .request(&key, self.link_of(&key), Request::RetransmitSyn)
            {
                debug!(
                    "{} -> {}: cannot ask for a SYN: {error}",
                    key.local(),
                    key.remote()
                );
            }
        }
        for (key, datagrams) in self.queue.give_up() {
            warn!(
                "{} -> {}: no answer to the handshake, {datagrams} datagrams dropped; \
                 is xdptun attached there, and does the network let TCP port {} through?",
                key.local(),
                key.remote(),
                key.remote_port()
            );
            self.count_lost(datagrams as u64);
        }
    }

    fn link_of(&self, key: &FlowKey) -> [u8; 14] {
        self.attached
            .maps
            .flow(key)
            .ok()
            .flatten()
            .map(|flow| flow.link)
            .unwrap_or_default()
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
    async fn say_goodbye(
        &mut self,
        events: &mut AsyncFd<RingBuf<MapData>>,
        stop: &mut Stop,
    ) -> Result<()> {
        let deadline = Instant::now() + GOODBYE;
        let mut repeat = interval(FIN_INTERVAL);
        loop {
            if self.open_flows().is_empty() {
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
                    for (key, link) in self.open_flows() {
                        if let Err(error) = self.injector.request(&key, link, Request::Finish) {
                            debug!("{} -> {}: cannot ask for a FIN: {error}", key.local(), key.remote());
                        }
                    }
                }
                () = sleep_until(deadline) => {
                    warn!("{} flows did not answer the FIN", self.open_flows().len());
                    return Ok(());
                }
                () = stop.requested() => return Ok(()),
            }
        }
    }

    fn open_flows(&self) -> Vec<(FlowKey, [u8; 14])> {
        let flows = self.attached.maps.flows();
        flows
            .filter(|(_, flow)| matches!(flow.state(), State::Established | State::FinSent))
            .map(|(key, flow)| (key, flow.link))
            .collect()
    }
}

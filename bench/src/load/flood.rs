//! One-way traffic: how many datagrams pass, and what they cost.

use std::net::UdpSocket;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::prctl::set_timerslack;

use super::batch::Batch;
use super::pin::{End, pin};
use crate::cpu::busy_seconds;

/// Longer than any datagram that is sent in one piece.
const LARGEST: usize = 2048;

/// Silence after which nothing more is under way.
const SILENCE: Duration = Duration::from_millis(50);

/// How fast datagrams are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// As fast as they are taken.
    Saturated,
    /// So many in a second.
    PerSecond(f64),
}

/// How the receiver waits for datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// It sleeps, and has to be woken: the more often, the more time it has.
    Sleep,
    /// It asks again at once, and costs the sender nothing.
    Spin,
}

/// The traffic to send.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Payload bytes of one send.
    pub length: usize,
    /// How fast.
    pub pace: Pace,
    /// How it is waited for.
    pub wait: Wait,
    /// No longer than this.
    pub time: Duration,
    /// No more than this.
    pub count: u64,
}

/// What a load has achieved.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throughput {
    /// Sends that the kernel took.
    pub sent: u64,
    /// Datagrams that arrived.
    pub received: u64,
    /// Datagrams that arrived while the sender sent: rates count these.
    pub received_meanwhile: u64,
    /// How long the sender sent.
    pub seconds: f64,
    /// The time that all CPUs worked from the first to the last datagram.
    pub cpu_seconds: f64,
}

impl Throughput {
    /// Datagrams received in a second.
    pub fn per_second(&self) -> f64 {
        self.received_meanwhile as f64 / self.seconds
    }

    /// The share that did not arrive.
    pub fn loss(&self) -> f64 {
        1.0 - self.received as f64 / self.sent.max(1) as f64
    }

    /// CPU time of a received datagram, in microseconds.
    pub fn cpu_microseconds(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.received.max(1) as f64
    }
}

/// Sends from a connected socket to one that gets all of it.
pub fn carry(sender: &UdpSocket, receiver: &UdpSocket, load: Load) -> Result<Throughput> {
    let mut batch = Batch::new(load.length);
    carry_by(receiver, load, |due| batch.send(sender, due))
}

/// The same by a `send` that takes how many datagrams are due, and tells how
/// many it has sent.
pub fn carry_by(
    receiver: &UdpSocket,
    load: Load,
    send: impl FnMut(usize) -> std::io::Result<usize>,
) -> Result<Throughput> {
    match load.wait {
        Wait::Sleep => receiver.set_read_timeout(Some(SILENCE))?,
        Wait::Spin => receiver.set_nonblocking(true)?,
    }
    let (received, sending) = (AtomicU64::new(0), AtomicBool::new(true));
    let before = busy_seconds()?;
    let (sent, received_meanwhile) = thread::scope(|scope| {
        let sink = scope.spawn(|| drain(receiver, &received, &sending));
        let sent = generate(load, send);
        let meanwhile = received.load(Ordering::Relaxed);
        sending.store(false, Ordering::Relaxed);
        sink.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        anyhow::Ok((sent?, meanwhile))
    })?;
    let cpu_seconds = busy_seconds()? - before;
    receiver.set_nonblocking(false)?;
    Ok(Throughput {
        sent: sent.0,
        received: received.into_inner(),
        received_meanwhile,
        seconds: sent.1.as_secs_f64(),
        cpu_seconds,
    })
}

/// Counts datagrams until none arrives any more after the last send.
fn drain(socket: &UdpSocket, received: &AtomicU64, sending: &AtomicBool) -> Result<()> {
    pin(End::Receiver)?;
    let mut batch = Batch::new(LARGEST);
    let mut heard = Instant::now();
    loop {
        match batch.receive(socket).context("cannot receive")? {
            Some(count) => {
                received.fetch_add(count as u64, Ordering::Relaxed);
                heard = Instant::now();
            }
            None if sending.load(Ordering::Relaxed) || heard.elapsed() < SILENCE => {}
            None => return Ok(()),
        }
    }
}

/// Sends; how many, and how long it took.
fn generate(
    load: Load,
    mut send: impl FnMut(usize) -> std::io::Result<usize>,
) -> Result<(u64, Duration)> {
    let allowed = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0))?;
    pin(End::Sender)?;
    // Otherwise a sleep of microseconds takes 50 more.
    set_timerslack(1).context("no exact timer")?;
    let start = Instant::now();
    let mut sent = 0;
    let result = loop {
        let elapsed = start.elapsed();
        if sent >= load.count || elapsed >= load.time {
            break Ok((sent, elapsed));
        }
        let due = match load.pace {
            Pace::Saturated => u64::MAX,
            Pace::PerSecond(rate) => ((elapsed.as_secs_f64() * rate) as u64).saturating_sub(sent),
        };
        let due = due.min(load.count - sent).min(Batch::SIZE as u64);
        if due == 0 {
            thread::sleep(PAUSE);
            continue;
        }
        match send(due as usize) {
            Ok(count) => sent += count as u64,
            Err(error) => break Err(error).context("cannot send"),
        }
    };
    // The caller's thread goes on with other work.
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &allowed)?;
    result
}

/// How long a paced sender waits for the next datagram to be due.
const PAUSE: Duration = Duration::from_micros(20);

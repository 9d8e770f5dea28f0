//! Applications that go on talking, whatever becomes of the path.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use xdptun_lab::{Netns, udp, wait};

use crate::LIMIT;

/// How long a thread may sleep until it looks whether it is wanted any more.
const GLANCE: Duration = Duration::from_millis(10);

/// Bytes before the pattern: the conversation, and the number of the datagram.
const HEAD: usize = 5;

/// The number of what the answering end says without being asked.
const UNASKED: u32 = u32::MAX;

/// The asking end: sends a numbered datagram at each interval, and notes which
/// of them come back. That a datagram cannot be sent does not stop it.
#[derive(Debug)]
pub struct Conversation {
    name: String,
    shared: Arc<Asking>,
    thread: Option<JoinHandle<Result<()>>>,
}

#[derive(Debug, Default)]
struct Asking {
    stop: AtomicBool,
    /// Held while a datagram is sent.
    paused: Mutex<bool>,
    log: Mutex<Vec<Exchange>>,
}

/// One datagram.
#[derive(Debug, Clone, Copy)]
struct Exchange {
    sent: Instant,
    answered: Option<Instant>,
}

impl Conversation {
    /// Starts to talk from an address of a host; `id` tells it from others.
    pub fn start(
        id: u8,
        netns: &Netns,
        from: SocketAddr,
        to: SocketAddr,
        interval: Duration,
    ) -> Result<Self> {
        let socket = udp::bind(netns, from)?;
        let shared = Arc::new(Asking::default());
        let thread = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || ask(id, &socket, to, interval, &shared))
        };
        Ok(Self {
            name: format!("to {to} every {interval:?}"),
            shared,
            thread: Some(thread),
        })
    }

    /// Its name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// After this nothing is sent until [`Conversation::resume`].
    pub fn pause(&self) {
        *lock(&self.shared.paused) = true;
    }

    /// Sends again, the first datagram at once.
    pub fn resume(&self) {
        *lock(&self.shared.paused) = false;
    }

    /// How many datagrams were sent after a moment, and how many of them came
    /// back so far.
    pub fn since(&self, moment: Instant) -> (usize, usize) {
        let log = lock(&self.shared.log);
        let sent = log.iter().filter(|exchange| exchange.sent >= moment);
        let answered = sent.clone().filter(|exchange| exchange.answered.is_some());
        (sent.count(), answered.count())
    }

    /// When the first datagram after a moment was sent.
    pub fn first_question(&self, moment: Instant) -> Option<Instant> {
        let log = lock(&self.shared.log);
        let mut sent = log.iter().map(|exchange| exchange.sent);
        sent.find(|sent| *sent >= moment)
    }

    /// Of the datagrams sent after a moment, the first that came back: when it
    /// was sent, and when it was back.
    pub fn first_answer(&self, moment: Instant) -> Option<(Instant, Instant)> {
        let log = lock(&self.shared.log);
        let mut sent = log.iter().filter(|exchange| exchange.sent >= moment);
        sent.find_map(|exchange| Some((exchange.sent, exchange.answered?)))
    }

    /// Ends it, and requires that all came back that was sent after a moment,
    /// and at least one datagram.
    pub fn finish(mut self, moment: Instant) -> Result<()> {
        self.pause();
        let complete = wait::until(LIMIT, &format!("the last answer {}", self.name), || {
            let (sent, answered) = self.since(moment);
            sent > 0 && sent == answered
        });
        self.end()?;
        complete.with_context(|| format!("sent and answered: {:?}", self.since(moment)))
    }

    fn end(&mut self) -> Result<()> {
        self.shared.stop.store(true, Ordering::Relaxed);
        join(self.thread.take()).with_context(|| self.name.clone())
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("{error:#}");
        }
    }
}

fn ask(
    id: u8,
    socket: &UdpSocket,
    to: SocketAddr,
    interval: Duration,
    shared: &Asking,
) -> Result<()> {
    let mut due = Instant::now();
    let mut buffer = vec![0; 1 << 16];
    while !shared.stop.load(Ordering::Relaxed) {
        let paused = lock(&shared.paused);
        let now = Instant::now();
        if *paused {
            due = now;
        } else if now >= due {
            let number = {
                let mut log = lock(&shared.log);
                log.push(Exchange {
                    sent: now,
                    answered: None,
                });
                u32::try_from(log.len() - 1)?
            };
            // Without an address or a route there is an error; it is as lost.
            let _ = socket.send_to(&datagram(id, number), to);
            // Late datagrams follow at once, so the rate stays.
            due += interval;
        }
        drop(paused);
        let Some((length, _)) = receive(socket, due, &mut buffer)? else {
            continue;
        };
        let (speaker, number) = head(&buffer[..length])?;
        if number == UNASKED {
            continue;
        }
        let same = speaker == id && buffer[..length] == datagram(id, number);
        ensure!(same, "the answer to number {number} differs");
        let mut log = lock(&shared.log);
        let exchange = log.get_mut(number as usize).context("never asked")?;
        ensure!(exchange.answered.is_none(), "number {number} came twice");
        exchange.answered = Some(Instant::now());
    }
    Ok(())
}

/// Datagrams of all lengths up to a thousand bytes.
fn datagram(id: u8, number: u32) -> Vec<u8> {
    let length = HEAD + (number as usize * 37) % 1000;
    let [.., seed] = number.to_be_bytes();
    let mut payload = udp::pattern(length, seed);
    payload[0] = id;
    payload[1..HEAD].copy_from_slice(&number.to_be_bytes());
    payload
}

fn head(payload: &[u8]) -> Result<(u8, u32)> {
    let [id, a, b, c, d, ..] = *payload else {
        bail!("a datagram of {} bytes", payload.len());
    };
    Ok((id, u32::from_be_bytes([a, b, c, d])))
}

/// The answering end: sends every datagram back, and also talks to the last
/// address of every conversation without being asked, as a WireGuard peer does.
#[derive(Debug)]
pub struct Talkative {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Talkative {
    /// Starts it on an address of a host.
    pub fn start(netns: &Netns, address: SocketAddr, interval: Duration) -> Result<Self> {
        let socket = udp::bind(netns, address)?;
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let stop = Arc::clone(&stop);
            thread::spawn(move || answer(&socket, interval, &stop))
        };
        Ok(Self {
            address,
            stop,
            thread: Some(thread),
        })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Talkative {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Err(error) = join(self.thread.take()) {
            eprintln!("the answering end on {}: {error:#}", self.address);
        }
    }
}

fn answer(socket: &UdpSocket, interval: Duration, stop: &AtomicBool) -> Result<()> {
    let mut due = Instant::now();
    let mut last_address: HashMap<u8, SocketAddr> = HashMap::new();
    let mut buffer = vec![0; 1 << 16];
    while !stop.load(Ordering::Relaxed) {
        if Instant::now() >= due {
            for (id, to) in &last_address {
                let _ = socket.send_to(&datagram(*id, UNASKED), to);
            }
            due = Instant::now() + interval;
        }
        let Some((length, from)) = receive(socket, due, &mut buffer)? else {
            continue;
        };
        let (id, _) = head(&buffer[..length])?;
        last_address.insert(id, from);
        let _ = socket.send_to(&buffer[..length], from);
    }
    Ok(())
}

/// Receives one datagram; `None` if there is none until something is due.
fn receive(
    socket: &UdpSocket,
    due: Instant,
    buffer: &mut [u8],
) -> Result<Option<(usize, SocketAddr)>> {
    let patience = due.saturating_duration_since(Instant::now());
    let patience = patience.clamp(Duration::from_millis(1), GLANCE);
    socket.set_read_timeout(Some(patience))?;
    match socket.recv_from(buffer) {
        Ok(received) => Ok(Some(received)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error).context("cannot receive"),
    }
}

fn join(thread: Option<JoinHandle<Result<()>>>) -> Result<()> {
    match thread.map(JoinHandle::join) {
        Some(Ok(result)) => result,
        Some(Err(panic)) => std::panic::resume_unwind(panic),
        None => Ok(()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Clients that ask.

use std::io::{self, IoSlice};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};
use xdptun_lab::seeded::Random;
use xdptun_lab::stop::Stopped;
use xdptun_lab::{Family, Host};
use xdptun_test_net::{PORT, socket};

use super::gate::Gate;
use super::worker::{Worker, receive};
use crate::account::Account;
use crate::content::{HEAD, Way};
use crate::journal::Flaw;
use crate::ledger::Ledger;

/// Sockets of each client and family.
const SOCKETS: usize = 2;

/// How often a client sends.
const TICK: Duration = Duration::from_millis(10);

/// How often each socket sends at least; these datagrams measure recoveries.
const HEARTBEAT: Duration = Duration::from_millis(100);

/// Datagrams of a client in a second at most.
const PER_SECOND: u32 = 2000;

/// Datagrams of a super-packet at most.
const PIECES: usize = 16;

/// IP and TCP headers in an Ethernet frame's 1500 bytes leave so much.
fn longest(family: Family) -> usize {
    1500 - family.header_len() - 20
}

/// One socket of a client.
#[derive(Debug)]
pub struct Stream {
    socket: UdpSocket,
    server: SocketAddr,
    /// Its account.
    pub account: Arc<Account>,
}

/// A client with its sockets.
#[derive(Debug)]
pub struct Client {
    host: Host,
    server: Host,
    ledger: Arc<Ledger>,
    streams: Arc<RwLock<Vec<Arc<Stream>>>>,
    listeners: Vec<Worker>,
    sender: Option<Worker>,
}

impl Client {
    /// Begins to ask: `random` decides when and how much.
    pub fn start(
        host: &Host,
        server: &Host,
        gate: &Arc<Gate>,
        random: Random,
        ledger: &Arc<Ledger>,
    ) -> Result<Self> {
        let mut client = Self {
            host: host.clone(),
            server: server.clone(),
            ledger: Arc::clone(ledger),
            streams: Arc::default(),
            listeners: Vec::new(),
            sender: None,
        };
        client.renew()?;
        let mut sender = Sender {
            streams: Arc::clone(&client.streams),
            gate: Arc::clone(gate),
            ledger: Arc::clone(ledger),
            random,
            left: PER_SECOND,
        };
        client.sender = Some(Worker::start(&ledger.journal, move |stopped| {
            sender.run(stopped)
        })?);
        Ok(client)
    }

    /// Replaces all sockets by new ones, as a program does that starts anew.
    pub fn renew(&mut self) -> Result<()> {
        let mut streams = Vec::new();
        let mut listeners = Vec::new();
        for family in Family::BOTH.repeat(SOCKETS) {
            // Bound to no address, so that it sends from the one that the host has.
            let socket = socket::roomy(&self.host.netns, socket::anywhere(family))?;
            socket::never_fragment(&socket, family)?;
            let stream = Arc::new(Stream {
                socket,
                server: self.server.socket(family, PORT),
                account: self.ledger.open(family),
            });
            streams.push(Arc::clone(&stream));
            let ledger = Arc::clone(&self.ledger);
            listeners.push(Worker::start(&self.ledger.journal, move |stopped| {
                receive(&stream.socket, stopped, |bytes, from| {
                    stream.hear(&ledger, bytes, from);
                })
            })?);
        }
        *self.streams.write().unwrap_or_else(PoisonError::into_inner) = streams;
        self.listeners = listeners;
        Ok(())
    }

    /// Its sockets now.
    pub fn streams(&self) -> Vec<Arc<Stream>> {
        read(&self.streams).clone()
    }

    /// Asks no more.
    pub fn quiet(&mut self) {
        self.sender = None;
    }
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

impl Stream {
    /// Judges an answer.
    fn hear(&self, ledger: &Ledger, bytes: &[u8], from: SocketAddr) {
        if from != self.server {
            let text = format!("{} bytes at a client from {from}", bytes.len());
            return ledger.journal.find(Flaw::Stranger, &text);
        }
        let Some(name) = ledger.read(Way::Answer, bytes, from) else {
            return;
        };
        if ledger.is_misdirected(self.account.stream(), name) {
            ledger.counts.misdirected.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let judged = self.account.arrive(Way::Answer, name);
        if ledger.journal.check(Flaw::Duplicated, judged).is_some() {
            ledger.counts.returned.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Sends for all sockets of a client.
struct Sender {
    streams: Arc<RwLock<Vec<Arc<Stream>>>>,
    gate: Arc<Gate>,
    ledger: Arc<Ledger>,
    random: Random,
    /// Datagrams that it may still send in this second.
    left: u32,
}

impl Sender {
    fn run(&mut self, stopped: &Stopped) -> Result<()> {
        let mut rates = Vec::new();
        let (mut second, mut beat) = (Instant::now(), Instant::now());
        while !stopped.within(TICK)? {
            let gate = Arc::clone(&self.gate);
            let _open = gate.pass();
            let streams = read(&self.streams).clone();
            if second.elapsed() >= Duration::from_secs(1) || rates.len() != streams.len() {
                second = Instant::now();
                self.left = PER_SECOND;
                rates = streams
                    .iter()
                    .map(|_| self.random.pick(&[0, 1, 2, 4]))
                    .collect();
            }
            let is_beat = beat.elapsed() >= HEARTBEAT;
            if is_beat {
                beat = Instant::now();
            }
            for (stream, rate) in streams.iter().zip(&rates) {
                let longest = longest(stream.account.family());
                if is_beat {
                    let length = self.random.between(HEAD, longest);
                    self.ask(stream, &[length]);
                }
                for _ in 0..*rate {
                    let length = match self.random.below(20) {
                        0 => self.random.below(HEAD),
                        1 => longest,
                        _ => self.random.between(0, longest),
                    };
                    self.ask(stream, &[length]);
                }
                if self.random.once_in(100) {
                    let piece = self.random.between(HEAD, longest);
                    let mut lengths = vec![piece; self.random.between(2, PIECES)];
                    // The last one may be shorter.
                    if let Some(last) = lengths.last_mut() {
                        *last = self.random.between(HEAD, piece);
                    }
                    self.ask(stream, &lengths);
                }
            }
        }
        Ok(())
    }

    /// Sends datagrams of these lengths, as one super-packet if there are several.
    fn ask(&mut self, stream: &Stream, lengths: &[usize]) {
        let Some(left) = u32::try_from(lengths.len())
            .ok()
            .and_then(|count| self.left.checked_sub(count))
        else {
            return;
        };
        self.left = left;
        let (mut bytes, mut names) = (Vec::new(), Vec::new());
        for length in lengths {
            let length = u16::try_from(*length).expect("fits an Ethernet frame");
            let name = stream.account.enter(length);
            self.ledger.shorts(stream.account.family()).send(name);
            bytes.extend(name.datagram(Way::Question));
            names.push(name);
        }
        let sent = match lengths {
            [_] => stream.socket.send_to(&bytes, stream.server),
            [piece, ..] => send_together(stream, &bytes, *piece),
            [] => return,
        };
        self.ledger.add(&self.ledger.counts.asked, sent, &names);
    }
}

/// Sends datagrams of `piece` bytes, the last of them shorter maybe (UDP GSO).
fn send_together(stream: &Stream, bytes: &[u8], piece: usize) -> io::Result<usize> {
    let piece = u16::try_from(piece).map_err(io::Error::other)?;
    let sent = sendmsg(
        stream.socket.as_raw_fd(),
        &[IoSlice::new(bytes)],
        &[ControlMessage::UdpGsoSegments(&piece)],
        MsgFlags::empty(),
        Some(&SockaddrStorage::from(stream.server)),
    );
    Ok(sent?)
}

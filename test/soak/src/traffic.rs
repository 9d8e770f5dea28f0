//! Clients that ask, and a server that answers.

use std::collections::HashMap;
use std::io::{self, ErrorKind, IoSlice};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};
use xdptun_lab::dice::Dice;
use xdptun_lab::stop::{self, Stop, Stopped, Woken};
use xdptun_lab::{Family, Host};
use xdptun_test_net::{PORT, socket};

use crate::book::{Book, Shorts};
use crate::content::{HEAD, Name, Way};
use crate::journal::{Flaw, Journal};

/// Sockets of each client and family.
const SOCKETS: usize = 2;

/// How often a client sends.
const TICK: Duration = Duration::from_millis(10);

/// How often each socket sends at least. What a recovery is measured with.
const HEARTBEAT: Duration = Duration::from_millis(100);

/// What a client sends in a second at most.
const PER_SECOND: u32 = 2000;

/// Datagrams of a super-packet at most.
const PIECES: usize = 16;

/// IP and TCP headers in an Ethernet frame's 1500 bytes leave so much.
fn longest(family: Family) -> usize {
    1500 - family.header_len() - 20
}

/// Held by all that send while they do; taken away while a host is bare.
#[derive(Debug, Default)]
pub struct Gate(RwLock<()>);

impl Gate {
    /// Waits until the host may send. Keep what is returned while it does.
    pub fn pass(&self) -> RwLockReadGuard<'_, ()> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nothing is being sent; nothing is until the guard is dropped.
    pub fn close(&self) -> RwLockWriteGuard<'_, ()> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread that ends when dropped.
#[derive(Debug)]
struct Worker {
    stop: Option<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn start(
        journal: &Arc<Journal>,
        work: impl FnOnce(&Stopped) -> Result<()> + Send + 'static,
    ) -> Result<Self> {
        let (stop, stopped) = stop::channel()?;
        let journal = Arc::clone(journal);
        let thread = thread::spawn(move || {
            journal.check(Flaw::Unseen, work(&stopped));
        });
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.stop.take());
        if self.thread.take().is_some_and(|t| t.join().is_err()) {
            eprintln!("a thread of the traffic panicked");
        }
    }
}

/// Datagrams, all clients together.
#[derive(Debug, Default)]
pub struct Counts {
    /// Handed to the clients' kernels.
    pub asked: AtomicU64,
    /// Arrived at the server.
    pub heard: AtomicU64,
    /// Handed to the server's kernel.
    pub answered: AtomicU64,
    /// Arrived at the clients.
    pub returned: AtomicU64,
    /// Arrived at another client's socket, which had got the port from the router.
    pub misdirected: AtomicU64,
    /// Not taken by a kernel, as its interface was down.
    pub refused: AtomicU64,
}

/// For how long an answer may reach whoever got a port that the router took from
/// somebody: the daemon keeps datagrams for ten seconds while a flow opens, and
/// to the server the router is one address.
const REASSIGNED: Duration = Duration::from_secs(15);

/// What clients and server share.
#[derive(Debug)]
pub struct Ledger {
    /// The log.
    pub journal: Arc<Journal>,
    /// Totals.
    pub counts: Counts,
    books: RwLock<HashMap<u32, Arc<Book>>>,
    /// Short questions, by family: whose they are cannot be told.
    shorts: [Shorts; 2],
    streams: AtomicU32,
    /// When the router last forgot which port is whose.
    forgot: Mutex<Option<Instant>>,
}

impl Ledger {
    /// The router forgets which port is whose.
    pub fn ports_change_hands(&self) {
        let mut forgot = self.forgot.lock().unwrap_or_else(PoisonError::into_inner);
        *forgot = Some(Instant::now());
    }

    /// How many datagrams came after a later one of their stream.
    pub fn overtaken(&self) -> u64 {
        let books = self.books.read().unwrap_or_else(PoisonError::into_inner);
        books.values().map(|book| book.overtaken()).sum()
    }

    /// Whether an answer is another stream's, and may be here because its port is.
    fn is_misdirected(&self, stream: u32, name: Name) -> bool {
        let Name::Numbered {
            stream: other,
            number,
            ..
        } = name
        else {
            return false;
        };
        let books = self.books.read().unwrap_or_else(PoisonError::into_inner);
        let was_sent = books.get(&other).is_some_and(|book| number < book.next());
        let forgot = self.forgot.lock().unwrap_or_else(PoisonError::into_inner);
        other != stream && was_sent && forgot.is_some_and(|at| at.elapsed() < REASSIGNED)
    }

    /// An empty one.
    pub fn new(journal: Arc<Journal>) -> Self {
        Self {
            journal,
            counts: Counts::default(),
            books: RwLock::default(),
            shorts: Default::default(),
            streams: AtomicU32::new(0),
            forgot: Mutex::default(),
        }
    }

    fn open(&self, family: Family) -> Arc<Book> {
        let stream = self.streams.fetch_add(1, Ordering::Relaxed);
        let book = Arc::new(Book::new(stream, family));
        let mut books = self.books.write().unwrap_or_else(PoisonError::into_inner);
        books.insert(stream, Arc::clone(&book));
        book
    }

    fn shorts(&self, family: Family) -> &Shorts {
        &self.shorts[usize::from(family == Family::V6)]
    }

    /// Judges a question at the server.
    fn hear(&self, family: Family, name: Name) -> Result<()> {
        let Name::Numbered { stream, .. } = name else {
            return self.shorts(family).arrive(name);
        };
        let books = self.books.read().unwrap_or_else(PoisonError::into_inner);
        let book = books.get(&stream).filter(|book| book.family() == family);
        let book = book.with_context(|| format!("{name:?} over {family}: no such stream"))?;
        book.arrive(Way::Question, name)
    }

    /// Reads a datagram; `None` if nobody sent it.
    fn read(&self, way: Way, bytes: &[u8], from: SocketAddr) -> Option<Name> {
        let flaw = if bytes.starts_with(crate::forgery::PAYLOAD) {
            Flaw::Forged
        } else {
            Flaw::Altered
        };
        let read = Name::read(way, bytes).with_context(|| format!("from {from}"));
        self.journal.check(flaw, read)
    }

    /// Counts datagrams that a kernel took, or notes that it did not.
    fn add(&self, count: &AtomicU64, sent: io::Result<usize>, names: &[Name]) {
        let datagrams = names.len() as u64;
        match sent {
            Ok(_) => {
                count.fetch_add(datagrams, Ordering::Relaxed);
            }
            Err(error) if is_of_the_network(&error) => {
                self.counts.refused.fetch_add(datagrams, Ordering::Relaxed);
                let books = self.books.read().unwrap_or_else(PoisonError::into_inner);
                for name in names {
                    if let Name::Numbered { stream, number, .. } = name
                        && let Some(book) = books.get(stream)
                    {
                        book.refuse(*number);
                    }
                }
            }
            Err(error) => self
                .journal
                .find(Flaw::Program, &format!("cannot send: {error}")),
        }
    }
}

/// Whether an interface that is down, or a router, explains it.
fn is_of_the_network(error: &io::Error) -> bool {
    let expected = [
        Errno::ENETUNREACH,
        Errno::EHOSTUNREACH,
        Errno::ENETDOWN,
        Errno::ECONNREFUSED,
        Errno::EADDRNOTAVAIL,
        Errno::ENOBUFS,
        Errno::EAGAIN,
        // Too large for what the path carries now.
        Errno::EMSGSIZE,
    ];
    expected
        .map(|errno| Some(errno as i32))
        .contains(&error.raw_os_error())
}

/// Receives until stopped; whoever hands an error over is not to be told of
/// what the network does.
fn receive(
    socket: &UdpSocket,
    stopped: &Stopped,
    mut take: impl FnMut(&[u8], SocketAddr),
) -> Result<()> {
    socket.set_nonblocking(true)?;
    let mut buffer = vec![0; 1 << 16];
    while stopped.wait_readable(socket)? == Woken::Readable {
        match socket.recv_from(&mut buffer) {
            Ok((length, from)) => take(&buffer[..length], from),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if is_of_the_network(&error) => {}
            Err(error) => return Err(error).context("cannot receive"),
        }
    }
    Ok(())
}

/// The server's sockets.
#[derive(Debug)]
pub struct Server {
    _workers: Vec<Worker>,
}

impl Server {
    /// Answers every question that comes from `router` with a datagram of the
    /// same name and length.
    pub fn start(
        host: &Host,
        gate: &Arc<Gate>,
        router: impl Fn(Family) -> std::net::IpAddr,
        ledger: &Arc<Ledger>,
    ) -> Result<Self> {
        let serve = |family: Family| {
            let socket = socket::roomy(&host.netns, host.socket(family, PORT))?;
            socket::never_fragment(&socket, family)?;
            let (router, gate, ledger) = (router(family), Arc::clone(gate), Arc::clone(ledger));
            let journal = Arc::clone(&ledger.journal);
            Worker::start(&journal, move |stopped| {
                receive(&socket, stopped, |bytes, from| {
                    if from.ip() != router {
                        let text = format!("{} bytes at the server from {from}", bytes.len());
                        return ledger.journal.find(Flaw::Stranger, &text);
                    }
                    let Some(name) = ledger.read(Way::Question, bytes, from) else {
                        return;
                    };
                    let judged = ledger.hear(family, name);
                    if ledger.journal.check(Flaw::Duplicated, judged).is_none() {
                        return;
                    }
                    ledger.counts.heard.fetch_add(1, Ordering::Relaxed);
                    let answer = name.datagram(Way::Answer);
                    let _open = gate.pass();
                    let sent = socket.send_to(&answer, from);
                    ledger.add(&ledger.counts.answered, sent, &[name]);
                })
            })
        };
        let workers = Family::BOTH.map(serve);
        Ok(Self {
            _workers: workers.into_iter().collect::<Result<_>>()?,
        })
    }
}

/// One socket of a client.
#[derive(Debug)]
pub struct Stream {
    socket: UdpSocket,
    server: SocketAddr,
    /// Its account.
    pub book: Arc<Book>,
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
    /// Begins to ask, as the dice say.
    pub fn start(
        host: &Host,
        server: &Host,
        gate: &Arc<Gate>,
        dice: Dice,
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
            dice,
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
                book: self.ledger.open(family),
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
        if ledger.is_misdirected(self.book.stream(), name) {
            ledger.counts.misdirected.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let judged = self.book.arrive(Way::Answer, name);
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
    dice: Dice,
    /// What may still be sent in this second.
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
                    .map(|_| self.dice.pick(&[0, 1, 2, 4]))
                    .collect();
            }
            let is_beat = beat.elapsed() >= HEARTBEAT;
            if is_beat {
                beat = Instant::now();
            }
            for (stream, rate) in streams.iter().zip(&rates) {
                let longest = longest(stream.book.family());
                if is_beat {
                    let length = self.dice.between(HEAD, longest);
                    self.ask(stream, &[length]);
                }
                for _ in 0..*rate {
                    let length = match self.dice.below(20) {
                        0 => self.dice.below(HEAD),
                        1 => longest,
                        _ => self.dice.between(0, longest),
                    };
                    self.ask(stream, &[length]);
                }
                if self.dice.once_in(100) {
                    let piece = self.dice.between(HEAD, longest);
                    let mut lengths = vec![piece; self.dice.between(2, PIECES)];
                    // The last one may be shorter.
                    if let Some(last) = lengths.last_mut() {
                        *last = self.dice.between(HEAD, piece);
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
            let name = stream.book.enter(length);
            self.ledger.shorts(stream.book.family()).send(name);
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

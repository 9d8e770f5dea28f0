//! The datagrams of all clients: sent and arrived.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use xdptun_lab::Family;

use crate::account::{Account, Shorts};
use crate::content::{Name, Way};
use crate::forgery;
use crate::journal::{Flaw, Journal};

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

/// How long an answer may still reach the new user of a port that the router took
/// from another client: the daemon keeps datagrams for ten seconds while a flow
/// opens, and to the server the router is one address.
const REASSIGNED: Duration = Duration::from_secs(15);

/// The accounts and totals that clients and server share.
#[derive(Debug)]
pub struct Ledger {
    /// The log.
    pub journal: Arc<Journal>,
    /// Totals.
    pub counts: Counts,
    accounts: RwLock<HashMap<u32, Arc<Account>>>,
    /// Short questions, by family: they do not tell which client sent them.
    shorts: [Shorts; 2],
    streams: AtomicU32,
    /// When the router last forgot which client has which port.
    forgot: Mutex<Option<Instant>>,
}

impl Ledger {
    /// The router forgets which client has which port.
    pub fn ports_change_hands(&self) {
        let mut forgot = self.forgot.lock().unwrap_or_else(PoisonError::into_inner);
        *forgot = Some(Instant::now());
    }

    /// How many datagrams came after a later one of their stream.
    pub fn overtaken(&self) -> u64 {
        let accounts = self.accounts.read().unwrap_or_else(PoisonError::into_inner);
        accounts.values().map(|account| account.overtaken()).sum()
    }

    /// Whether an answer is another stream's, and may be here because its port is.
    pub fn is_misdirected(&self, stream: u32, name: Name) -> bool {
        let Name::Numbered {
            stream: other,
            number,
            ..
        } = name
        else {
            return false;
        };
        let accounts = self.accounts.read().unwrap_or_else(PoisonError::into_inner);
        let was_sent = accounts
            .get(&other)
            .is_some_and(|account| number < account.next());
        let forgot = self.forgot.lock().unwrap_or_else(PoisonError::into_inner);
        other != stream && was_sent && forgot.is_some_and(|at| at.elapsed() < REASSIGNED)
    }

    /// An empty one.
    pub fn new(journal: Arc<Journal>) -> Self {
        Self {
            journal,
            counts: Counts::default(),
            accounts: RwLock::default(),
            shorts: Default::default(),
            streams: AtomicU32::new(0),
            forgot: Mutex::default(),
        }
    }

    /// Opens an account for a new socket of a client.
    pub fn open(&self, family: Family) -> Arc<Account> {
        let stream = self.streams.fetch_add(1, Ordering::Relaxed);
        let account = Arc::new(Account::new(stream, family));
        let mut accounts = self
            .accounts
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        accounts.insert(stream, Arc::clone(&account));
        account
    }

    /// The short questions over one IP version.
    pub fn shorts(&self, family: Family) -> &Shorts {
        &self.shorts[usize::from(family == Family::V6)]
    }

    /// Judges a question at the server.
    pub fn hear(&self, family: Family, name: Name) -> Result<()> {
        let Name::Numbered { stream, .. } = name else {
            return self.shorts(family).arrive(name);
        };
        let accounts = self.accounts.read().unwrap_or_else(PoisonError::into_inner);
        let account = accounts
            .get(&stream)
            .filter(|account| account.family() == family);
        let account = account.with_context(|| format!("{name:?} over {family}: no such stream"))?;
        account.arrive(Way::Question, name)
    }

    /// Reads a datagram; `None` if neither a client nor the server sent it.
    pub fn read(&self, way: Way, bytes: &[u8], from: SocketAddr) -> Option<Name> {
        let flaw = if bytes.starts_with(forgery::PAYLOAD) {
            Flaw::Forged
        } else {
            Flaw::Altered
        };
        let read = Name::read(way, bytes).with_context(|| format!("from {from}"));
        self.journal.check(flaw, read)
    }

    /// Counts datagrams that a kernel took, or notes that it did not.
    pub fn add(&self, count: &AtomicU64, sent: io::Result<usize>, names: &[Name]) {
        let datagrams = names.len() as u64;
        match sent {
            Ok(_) => {
                count.fetch_add(datagrams, Ordering::Relaxed);
            }
            Err(error) if is_of_the_network(&error) => {
                self.counts.refused.fetch_add(datagrams, Ordering::Relaxed);
                let accounts = self.accounts.read().unwrap_or_else(PoisonError::into_inner);
                for name in names {
                    if let Name::Numbered { stream, number, .. } = name
                        && let Some(account) = accounts.get(stream)
                    {
                        account.refuse(*number);
                    }
                }
            }
            Err(error) => self
                .journal
                .find(Flaw::Program, &format!("cannot send: {error}")),
        }
    }
}

/// Whether an interface that is down, or a router, explains an error.
pub fn is_of_the_network(error: &io::Error) -> bool {
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

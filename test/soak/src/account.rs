//! The datagrams of one socket, sent and arrived, in memory that does not grow with
//! time.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, ensure};
use xdptun_lab::Family;

use crate::content::{HEAD, Name, Way};

/// How many numbers a receiver remembers. At the highest rate of a socket that is
/// more than two minutes, and nothing on the path keeps a datagram that long.
const REMEMBERED: u32 = 1 << 16;

/// The account of one client's socket, which the server shares.
#[derive(Debug)]
pub struct Account {
    stream: u32,
    family: Family,
    /// Datagrams with a number that were sent, or were about to be.
    next: AtomicU32,
    /// One past the highest number that was answered.
    answered: AtomicU32,
    at_server: Mutex<Window>,
    at_client: Mutex<Window>,
    /// Datagrams that arrived after a later one.
    overtaken: AtomicU64,
    short: Shorts,
}

/// Datagrams without a number, by length: as many may arrive as were sent.
#[derive(Debug, Default)]
pub struct Shorts {
    sent: [AtomicU64; HEAD],
    arrived: [AtomicU64; HEAD],
}

impl Account {
    /// The account of a socket that has sent nothing yet.
    pub fn new(stream: u32, family: Family) -> Self {
        Self {
            stream,
            family,
            next: AtomicU32::new(0),
            answered: AtomicU32::new(0),
            at_server: Mutex::default(),
            at_client: Mutex::default(),
            overtaken: AtomicU64::new(0),
            short: Shorts::default(),
        }
    }

    /// The number of the socket.
    pub fn stream(&self) -> u32 {
        self.stream
    }

    /// The IP version of the socket.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Takes the next number, for a datagram of this length.
    pub fn enter(&self, length: u16) -> Name {
        if usize::from(length) < HEAD {
            let name = Name::Short(length.to_le_bytes()[0]);
            self.short.send(name);
            return name;
        }
        Name::Numbered {
            stream: self.stream,
            number: self.next.fetch_add(1, Ordering::Relaxed),
            length,
        }
    }

    /// The number that the next datagram will have.
    pub fn next(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
    }

    /// Whether a datagram of this number or a later one was answered.
    pub fn is_answered_from(&self, number: u32) -> bool {
        self.answered.load(Ordering::Relaxed) > number
    }

    /// How many of these numbers have no answer. They must not be old.
    pub fn unanswered(&self, numbers: Range<u32>) -> usize {
        let window = self.at_client.lock();
        let window = window.unwrap_or_else(PoisonError::into_inner);
        numbers.filter(|number| !window.has(*number)).count()
    }

    /// Notes that a kernel did not take a datagram or its answer: its loss is no finding.
    pub fn refuse(&self, number: u32) {
        let mut window = self.at_client.lock();
        window
            .as_mut()
            .unwrap_or_else(|error| error.get_mut())
            .take(number);
    }

    /// How many datagrams arrived after a later one, at either end.
    pub fn overtaken(&self) -> u64 {
        self.overtaken.load(Ordering::Relaxed)
    }

    /// Notes that a datagram arrived. An error if it was never sent, or arrived
    /// before.
    pub fn arrive(&self, way: Way, name: Name) -> Result<()> {
        let Name::Numbered { stream, number, .. } = name else {
            return self.short.arrive(name);
        };
        ensure!(
            stream == self.stream && number < self.next(),
            "{name:?} was never sent on stream {}",
            self.stream
        );
        let window = match way {
            Way::Question => &self.at_server,
            Way::Answer => &self.at_client,
        };
        let mut window = window.lock().unwrap_or_else(PoisonError::into_inner);
        let is_late = number < window.end;
        ensure!(window.take(number), "{name:?} arrived again");
        self.overtaken
            .fetch_add(u64::from(is_late), Ordering::Relaxed);
        if way == Way::Answer {
            self.answered.fetch_max(number + 1, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Shorts {
    /// Notes that one is about to be sent.
    pub fn send(&self, name: Name) {
        if let Name::Short(length) = name {
            self.sent[usize::from(length)].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes that one arrived. An error if more arrived than were sent.
    pub fn arrive(&self, name: Name) -> Result<()> {
        if let Name::Short(length) = name {
            let length = usize::from(length);
            let arrived = self.arrived[length].fetch_add(1, Ordering::Relaxed) + 1;
            let sent = self.sent[length].load(Ordering::Relaxed);
            ensure!(
                arrived <= sent,
                "{arrived} datagrams of {length} bytes arrived, {sent} were sent"
            );
        }
        Ok(())
    }
}

/// Which of the last numbers were seen.
#[derive(Debug, Default)]
struct Window {
    /// One past the highest.
    end: u32,
    /// A bit for each of the last numbers, at its remainder.
    seen: Vec<u64>,
}

impl Window {
    /// Whether a number was seen, of those that are remembered.
    fn has(&self, number: u32) -> bool {
        let (word, bit) = place(number);
        number < self.end && self.seen[word] & bit != 0
    }

    /// Whether a number is new; those that are too old to be remembered are not.
    fn take(&mut self, number: u32) -> bool {
        self.seen.resize(REMEMBERED as usize / 64, 0);
        if number.saturating_add(REMEMBERED) < self.end {
            return false;
        }
        // Entries older than the window make room.
        let passed = self.end..number + 1;
        for old in passed.take(REMEMBERED as usize) {
            let (word, bit) = place(old);
            self.seen[word] &= !bit;
        }
        self.end = self.end.max(number + 1);
        let (word, bit) = place(number);
        let new = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        new
    }
}

fn place(number: u32) -> (usize, u64) {
    let index = number % REMEMBERED;
    ((index / 64) as usize, 1 << (index % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_counts_once() {
        let mut window = Window::default();
        for number in [0, 5, 3, REMEMBERED + 2, 4, 3 * REMEMBERED] {
            assert!(window.take(number), "{number}");
            assert!(!window.take(number), "{number} again");
        }
        assert!(!window.has(2 * REMEMBERED + 1) && window.has(3 * REMEMBERED));
        assert!(window.take(2 * REMEMBERED + 1), "late, but remembered");
        assert!(window.has(2 * REMEMBERED + 1) && !window.has(3 * REMEMBERED + 1));
        assert!(!window.take(2 * REMEMBERED - 1), "too old to tell");
    }

    #[test]
    fn what_was_not_sent_cannot_arrive() {
        let account = Account::new(7, Family::V4);
        let name = account.enter(100);
        account.arrive(Way::Question, name).unwrap();
        assert!(!account.is_answered_from(0));
        account.arrive(Way::Answer, name).unwrap();
        assert!(account.is_answered_from(0) && !account.is_answered_from(1));
        assert!(account.arrive(Way::Answer, name).is_err(), "again");
        for (stream, number) in [(7, 1), (8, 0)] {
            let other = Name::Numbered {
                stream,
                number,
                length: 100,
            };
            assert!(account.arrive(Way::Question, other).is_err(), "never sent");
        }
    }

    #[test]
    fn what_a_kernel_refused_counts_as_answered() {
        let account = Account::new(7, Family::V4);
        let names = [account.enter(100), account.enter(100), account.enter(100)];
        account.arrive(Way::Answer, names[1]).unwrap();
        assert_eq!((account.unanswered(0..3), account.overtaken()), (2, 0));
        account.refuse(2);
        assert_eq!(account.unanswered(0..3), 1);
        assert!(
            account.arrive(Way::Answer, names[2]).is_err(),
            "was not sent"
        );
        account.arrive(Way::Answer, names[0]).unwrap();
        assert_eq!((account.unanswered(0..3), account.overtaken()), (0, 1));
    }

    #[test]
    fn short_ones_are_counted() {
        let shorts = Shorts::default();
        shorts.send(Name::Short(3));
        shorts.arrive(Name::Short(3)).unwrap();
        assert!(shorts.arrive(Name::Short(3)).is_err());
        assert!(shorts.arrive(Name::Short(0)).is_err());
    }
}

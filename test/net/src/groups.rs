//! Hosts with several interfaces in one group, and applications that talk over them.

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use xdptun_lab::{Family, Host, Multihomed, numbered, udp, wait};

use crate::conversation::Conversation;
use crate::socket::roomy;
use crate::status::Counters;
use crate::wire::{Segment, Wire, segments};
use crate::{LIMIT, PORT};

/// The interfaces of [`Multihomed`] with two links, and of [`xdptun_lab::Uplinked`].
pub const BOTH: [&str; 2] = ["eth0", "eth1"];

/// Datagrams under way at a time: fewer than any queue on the way holds.
const BURST: usize = 64;

/// Between two datagrams of a conversation.
const INTERVAL: Duration = Duration::from_millis(1);

/// Answers in a row that show that a conversation goes on.
const ROUND: usize = 20;

/// Sends the datagrams of these numbers to an echo server and requires each back, once and
/// unchanged. The first goes alone: it may have to wait for a handshake.
pub fn echo(socket: &UdpSocket, to: SocketAddr, numbers: Range<u32>) -> Result<()> {
    let all: Vec<u32> = numbers.collect();
    let (first, others) = all.split_at(1);
    for burst in [first].into_iter().chain(others.chunks(BURST)) {
        for number in burst {
            let sent = socket.send_to(&numbered::datagram(*number), to);
            sent.with_context(|| format!("cannot send datagram {number} to {to}"))?;
        }
        let mut missing: BTreeSet<u32> = burst.iter().copied().collect();
        while !missing.is_empty() {
            let received = udp::receive(socket, LIMIT);
            let (bytes, from) = received.with_context(|| format!("{missing:?} are missing"))?;
            let number = numbered::number(&bytes)?;
            ensure!(from == to, "datagram {number} came back from {from}");
            ensure!(missing.remove(&number), "datagram {number} came unasked");
        }
    }
    Ok(())
}

/// The payload bytes of the datagrams of these numbers.
#[must_use]
pub fn payload_bytes(numbers: Range<u32>) -> u64 {
    let lengths = numbers.map(|number| numbered::datagram(number).len() as u64);
    lengths.sum()
}

/// A socket of the first host that is bound to the host's own address, and an echo server on
/// that of the second.
pub fn ends(net: &Multihomed, family: Family) -> Result<(UdpSocket, udp::Server)> {
    let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT))?;
    let socket = roomy(&net.a.netns, net.a.socket(family, 0))?;
    Ok((socket, server))
}

/// Captures of each link of [`BOTH`], what both hosts send there.
pub fn watch(net: &Multihomed) -> Result<[Wire; 2]> {
    let [first, second] = BOTH.map(|dev| Wire::watch_on(&[&net.a, &net.b], dev));
    Ok([first?, second?])
}

/// Requires that a wire carried segments only, and none that opens, ends or resets a flow.
///
/// # Panics
///
/// If it carried anything else of [`PORT`].
pub fn assert_only_goes_on(wire: Wire, context: &str) {
    let frames = wire.stop().unwrap();
    for segment in segments(&frames, PORT) {
        let flags = segment.flags();
        let goes_on = ["P.", "."].contains(&flags.as_str());
        assert!(goes_on, "{context}: {}", segment.packet);
    }
}

/// Requires that no counter of a loss moved.
///
/// # Panics
///
/// If one did.
pub fn assert_nothing_lost(counters: &Counters, context: &str) {
    let is_loss = |name: &&String| name.contains("_drop_") || name.contains("_lost");
    let lost = counters.keys().find(is_loss);
    assert_eq!(lost, None, "{context}: {counters:?}");
}

/// The numbers of the datagrams that segments from an address carry, in order of number.
///
/// # Panics
///
/// If one of them was changed.
pub fn numbers(segments: &[Segment<'_>], source: SocketAddr) -> Vec<u32> {
    let data = segments.iter().filter(|segment| segment.is_data());
    let data = data.filter(|segment| segment.source == source);
    let mut numbers: Vec<u32> = data
        .map(|segment| {
            numbered::number(segment.payload)
                .unwrap_or_else(|error| panic!("{error:#}: {}", segment.packet))
        })
        .collect();
    numbers.sort_unstable();
    numbers
}

/// How many segments have these flags.
#[must_use]
pub fn count(segments: &[Segment<'_>], flags: &str) -> usize {
    let all = segments.iter();
    all.filter(|segment| segment.flags() == flags).count()
}

/// A conversation over each family between the hosts' own addresses, a datagram in a
/// millisecond.
#[derive(Debug)]
pub struct Talk {
    start: Instant,
    conversations: Vec<Conversation>,
    _servers: Vec<udp::Server>,
}

impl Talk {
    /// Starts it; returns when both flows are open.
    pub fn start(client: &Host, server: &Host) -> Result<Self> {
        let start = Instant::now();
        let (mut conversations, mut servers) = (Vec::new(), Vec::new());
        for (id, family) in (0..).zip(Family::BOTH) {
            let echo = udp::Server::echo(&server.netns, server.socket(family, PORT))?;
            let from = client.socket(family, 0);
            let to = echo.address();
            let conversation = Conversation::start(id, &client.netns, from, to, INTERVAL)?;
            conversations.push(conversation);
            servers.push(echo);
        }
        let talk = Self {
            start,
            conversations,
            _servers: servers,
        };
        talk.round()?;
        Ok(talk)
    }

    /// How many datagrams at least come back in a [`Talk::round`], of both.
    pub fn of_round(&self) -> u64 {
        (ROUND * self.conversations.len()) as u64
    }

    /// Waits until datagrams that are sent from now on come back.
    pub fn round(&self) -> Result<()> {
        let now = Instant::now();
        self.wait("answers", |conversation| conversation.since(now).1 >= ROUND)
    }

    /// Waits until datagrams were sent in vain.
    ///
    /// # Errors
    ///
    /// If one that was sent after this call came back.
    pub fn silence(&self) -> Result<()> {
        let now = Instant::now();
        self.wait("questions", |conversation| {
            conversation.since(now).0 >= ROUND
        })?;
        for conversation in &self.conversations {
            let (asked, answered) = conversation.since(now);
            let name = conversation.name();
            ensure!(answered == 0, "{name}: {answered} of {asked} answered");
        }
        Ok(())
    }

    /// Pauses, and requires that everything that was sent comes back; how many datagrams
    /// that are, of both.
    pub fn settle(&self) -> Result<u64> {
        self.pause();
        self.wait("the last answers", |conversation| {
            let (asked, answered) = conversation.since(self.start);
            asked == answered
        })?;
        let all = self.conversations.iter();
        let asked: usize = all
            .map(|conversation| conversation.since(self.start).0)
            .sum();
        Ok(asked as u64)
    }

    /// After this nothing is sent until [`Talk::resume`].
    pub fn pause(&self) {
        for conversation in &self.conversations {
            conversation.pause();
        }
    }

    /// Sends again.
    pub fn resume(&self) {
        for conversation in &self.conversations {
            conversation.resume();
        }
    }

    /// Ends it, and requires that all came back that was sent since a moment.
    pub fn finish_since(self, moment: Instant) -> Result<()> {
        let mut all = self.conversations.into_iter();
        all.try_for_each(|conversation| conversation.finish(moment))
    }

    /// Ends it, and requires that all came back that was ever sent.
    pub fn finish(self) -> Result<()> {
        let start = self.start;
        self.finish_since(start)
    }

    fn wait(&self, what: &str, met: impl Fn(&Conversation) -> bool) -> Result<()> {
        let reached = wait::until(LIMIT, what, || self.conversations.iter().all(&met));
        reached.with_context(|| {
            let all = self.conversations.iter();
            let told = all.map(|conversation| {
                let (asked, answered) = conversation.since(self.start);
                format!("{}: {answered} of {asked} answered", conversation.name())
            });
            told.collect::<Vec<_>>().join("; ")
        })
    }
}

//! Flows of the tunnel: states and entries of the table.

use crate::flow::tick::Tick;
use crate::tunnel::ack::AckMarks;
use crate::wire::IpFields;

/// Where a flow is in its life (RFC 9293 section 3.3.2, without the states that
/// only wait: an unreliable carrier has nothing to wait for).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum State {
    /// Over; kept for a moment so that no other CPU meets reused memory. The
    /// next datagram opens it anew.
    Closed = 0,
    /// We sent a SYN.
    SynSent = 1,
    /// Both sides sent a SYN and crossed.
    SynReceived = 2,
    /// Data passes both ways.
    Established = 3,
    /// We sent a FIN and wait for the peer's.
    FinSent = 4,
}

crate::from_raw! {
    /// The state stored as `value`. A number that no version wrote counts as
    /// closed, which every path treats as "start again".
    pub State: u32 { Closed, SynSent, SynReceived, Established, FinSent } else Closed
}

impl State {
    /// Every state, in the order of a flow's life.
    pub const ALL: [Self; 5] = [
        Self::Closed,
        Self::SynSent,
        Self::SynReceived,
        Self::Established,
        Self::FinSent,
    ];

    /// The name used in status output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::SynSent => "syn-sent",
            Self::SynReceived => "syn-received",
            Self::Established => "established",
            Self::FinSent => "fin-sent",
        }
    }
}

/// Who opened a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Opener {
    /// The peer: its SYN came first.
    Peer = 0,
    /// This host.
    Host = 1,
}

impl Opener {
    /// The opener of a flow that is made in this state.
    #[inline(always)]
    #[must_use]
    pub const fn of_new(state: State) -> Self {
        match state {
            State::SynSent => Self::Host,
            State::Closed | State::SynReceived | State::Established | State::FinSent => Self::Peer,
        }
    }
}

/// An entry of the flow table. The kernel changes its words one by one and
/// atomically (no lock), so a reader may see a packet counted and its bytes not
/// yet. Times are nanoseconds of `CLOCK_MONOTONIC`.
///
/// Ordered by how often a word changes, as datagrams of one flow go out on one CPU
/// and come in on another, and a line of the cache that one has written costs the
/// other a hundred nanoseconds. What every datagram changes lies between the bytes
/// 32 and 96, which are one line of 64 bytes where the kernel allocates entries as it
/// has since 6.1 (behind 8 bytes of the allocator, 48 of its own, and the key). Times
/// change with the tick of the clock ([`Flow::sent_at`] and the three after it are
/// written only if they do), the rest with the state.
///
/// Times of 32 bits count [`Tick`]s.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Flow {
    /// When a segment was last sent.
    pub sent_at: u64,
    /// When a valid segment last came.
    pub received_at: u64,
    /// When the first datagram or probe was sent after that; older than
    /// `received_at` if none was.
    pub unanswered_at: u64,
    /// When a datagram last passed, either way.
    pub data_at: u64,
    /// A [`State`].
    pub state: u32,
    /// The highest acknowledgement number seen from the peer.
    pub snd_una: u32,
    /// The next sequence number to send.
    pub snd_nxt: u32,
    /// The next sequence number expected from the peer. A datagram moves it ahead by at
    /// most [`MAX_STEP`], and after a silence anywhere; a probe or challenge of the peer
    /// moves it back.
    pub rcv_nxt: u32,
    /// What the last segment we sent acknowledged.
    pub acked: u32,
    /// Earlier values of `snd_una`, see [`AckMarks`].
    pub ack_marks: AckMarks,
    /// Datagrams disguised.
    pub tx_packets: u64,
    /// Their payload bytes.
    pub tx_bytes: u64,
    /// Datagrams restored.
    pub rx_packets: u64,
    /// Their payload bytes.
    pub rx_bytes: u64,
    /// When the entry was made or opened anew.
    pub opened_at: u64,
    /// When the handshake ended; 0 before.
    pub established_at: u64,
    /// When the last SYN was sent; in [`State::FinSent`], the first FIN.
    pub syn_at: u64,
    /// Our initial sequence number.
    pub iss: u32,
    /// When the flow will have earned its answers back ([`answer`]).
    pub answers_earned_at: u32,
    /// When an ICMP error about the flow last failed its proof ([`crate::tunnel::sent`]).
    pub distrusted_at: u32,
    /// A [`Label`].
    pub label: u32,
    /// How its segments are labelled otherwise, see [`KeptFields`].
    pub kept_fields: KeptFields,
    /// Index of the interface by which it last sent.
    pub interface: u32,
    /// The Ethernet header that reaches the peer there, for segments the daemon asks for.
    pub link: [u8; 14],
    /// SYNs sent in this handshake, perhaps with [`RESTARTED`], or [`REMEMBERED`].
    pub syns: u16,
}

crate::plain!(Flow: 160);

/// Fields of the IP header of a flow's segments without data, so that they take the way of
/// those with data: class and hop limit are those of the last datagram, and the IPv4
/// identification goes on from a random number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct KeptFields(pub u32);

impl KeptFields {
    /// The two bits of a class that say something of the packet's own way (RFC 3168).
    const ECN: u8 = 3;

    /// Of a flow that nothing was sent of.
    #[inline(always)]
    #[must_use]
    pub const fn new(identification: u16) -> Self {
        Self((identification as u32) << 16)
    }

    /// After a datagram with these fields.
    #[inline(always)]
    #[must_use]
    pub const fn seen(self, fields: IpFields) -> Self {
        let class = (fields.class & !Self::ECN) as u32;
        Self(self.0 & 0xffff_0000 | class << 8 | fields.hop_limit as u32)
    }

    /// The fields of segment number `count`; without a datagram so far, `hop_limit` is that
    /// of the host.
    #[inline(always)]
    #[must_use]
    pub const fn fields(self, count: u16, hop_limit: u8, label: u32) -> IpFields {
        let known = self.0 as u8;
        IpFields {
            class: (self.0 >> 8) as u8,
            hop_limit: if known == 0 { hop_limit } else { known },
            identification: ((self.0 >> 16) as u16).wrapping_add(count),
            label,
        }
    }
}

/// The IPv6 flow label of a flow's segments, and beside it, to save memory, what is known of
/// [fragments](crate::tunnel::fragment).
///
/// ```text
///   31     30    29      20 19                    0
/// +------+------+----------+-----------------------+
/// | take | told | message  |      flow label       |
/// +------+------+----------+-----------------------+
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Label(pub u32);

impl Label {
    /// The peer takes fragments.
    const TAKE: u32 = 1 << 31;
    /// The daemon was told that the flow has some.
    const DAEMON_TOLD: u32 = 1 << 30;
    /// When the peer was last asked whether it takes fragments, and since it does, when the sender of
    /// one was last told that it is too long: in seconds of 2^30 ns.
    const MESSAGE: u32 = 0x3ff0_0000;
    /// See [`Label::MESSAGE`].
    const MESSAGE_SHIFT: u32 = 20;

    /// The flow label, 20 bits; 0 leaves that of the datagrams.
    #[inline(always)]
    #[must_use]
    pub const fn value(self) -> u32 {
        self.0 & IpFields::LABEL
    }

    /// With another flow label.
    #[inline(always)]
    #[must_use]
    pub const fn with_value(self, label: u32) -> Self {
        Self(self.0 & !IpFields::LABEL | label & IpFields::LABEL)
    }

    /// Whether the peer is known to take fragments.
    #[inline(always)]
    #[must_use]
    pub const fn takes_fragments(self) -> bool {
        self.0 & Self::TAKE != 0
    }

    /// As of a peer that takes fragments.
    #[inline(always)]
    #[must_use]
    pub const fn taking_fragments(self) -> Self {
        Self(self.0 & !Self::MESSAGE | Self::TAKE)
    }

    /// As of a flow that begins again: its peer may be another xdptun by now.
    #[inline(always)]
    #[must_use]
    pub const fn begun_again(self) -> Self {
        Self(self.0 & !Self::TAKE)
    }

    /// Whether the daemon was told of fragments.
    #[inline(always)]
    #[must_use]
    pub const fn is_daemon_told(self) -> bool {
        self.0 & Self::DAEMON_TOLD != 0
    }

    /// After it was; `None` if it was before.
    #[inline(always)]
    #[must_use]
    pub const fn daemon_told(self) -> Option<Self> {
        if self.is_daemon_told() {
            return None;
        }
        Some(Self(self.0 | Self::DAEMON_TOLD))
    }

    /// After the peer was asked whether it takes fragments; `None` if it was in this second.
    #[inline(always)]
    #[must_use]
    pub const fn asked(self, now: u64) -> Option<Self> {
        self.unless_within(1, now)
    }

    /// After the sender of a fragment was told that it is too long; `None` if it was in the last
    /// [`Self::TELL_AGAIN`] seconds.
    #[inline(always)]
    #[must_use]
    pub const fn told_sender(self, now: u64) -> Option<Self> {
        self.unless_within(Self::TELL_AGAIN, now)
    }

    /// After how many seconds a sender is told again: Linux forgets after ten minutes
    /// (`net.ipv4.route.mtu_expires`), and some never listen.
    pub const TELL_AGAIN: u32 = 60;

    /// With the second of `now`, unless it is one of so many from the noted one on.
    #[inline(always)]
    const fn unless_within(self, seconds: u32, now: u64) -> Option<Self> {
        const MOST: u32 = Label::MESSAGE >> Label::MESSAGE_SHIFT;
        let second = (now >> 30) as u32 % MOST;
        // Never 0, which says that there was none.
        let before = (self.0 & Self::MESSAGE) >> Self::MESSAGE_SHIFT;
        if before != 0 && (second + MOST - (before - 1)) % MOST < seconds {
            return None;
        }
        Some(Self(
            self.0 & !Self::MESSAGE | (second + 1) << Self::MESSAGE_SHIFT,
        ))
    }
}

/// In how many ticks a flow earns one answer to a segment with nothing but its numbers (a
/// challenge, RFC 5961; the answer to a probe). Each flow has a limit of its own: with a
/// common one a stranger would count on one flow how many segments another answered, and
/// so find its numbers (CVE-2016-5696).
pub const ANSWER_AGAIN: u32 = 95;

/// How many such answers a flow may give at once after a pause.
pub const ANSWERS: u32 = 16;

/// How many of them are not for challenges, which anybody can provoke: otherwise forged segments
/// would leave the probes of the peer without an answer, and it would open the flow again.
pub const KEPT_ANSWERS: u32 = ANSWERS / 2;

/// The [`Tick`] at which a flow will have earned all its answers back, if it gives one more
/// now and keeps `kept`; `None` if it has no more left. `earned_at` is that tick before.
#[inline(always)]
#[must_use]
pub const fn answer(earned_at: u32, now: Tick, kept: u32) -> Option<u32> {
    const MOST: u32 = ANSWERS * ANSWER_AGAIN;
    let owed = earned_at.wrapping_sub(now.0);
    // A flow owes at most all its answers, by the clock of the CPU that gave the last one. This
    // CPU's may be behind that. A larger number is a tick that has passed.
    let owed = if owed > MOST + Tick::AHEAD { 0 } else { owed };
    if owed > MOST - (1 + kept) * ANSWER_AGAIN {
        return None;
    }
    Some(now.0.wrapping_add(owed + ANSWER_AGAIN))
}

/// What every datagram changes, see [`Flow`].
const _: () = assert!(
    core::mem::offset_of!(Flow, state) == 32 && core::mem::offset_of!(Flow, rx_bytes) + 8 <= 96
);

impl Flow {
    /// The state.
    #[must_use]
    pub const fn state(&self) -> State {
        State::from_raw(self.state)
    }

    /// Whether its peer is called and has not answered yet. One whose own SYN began the
    /// flow is not.
    #[must_use]
    pub const fn is_called(&self) -> bool {
        matches!(self.state(), State::SynSent | State::SynReceived)
            && self.syns != 0
            && self.syns != REMEMBERED
    }

    /// Whether this host has sent its peer at least so many SYNs, all unanswered.
    #[must_use]
    pub const fn is_silent(&self, syns: u16) -> bool {
        self.is_called() && self.syns & !RESTARTED >= syns
    }

    /// Whether the peer opened it and this host has sent no datagram on it. The peer may be
    /// a stranger.
    #[must_use]
    pub const fn is_unanswered_call(&self) -> bool {
        self.syn_at == 0 && self.tx_packets == 0
    }

    /// Whether the peer has acknowledged nothing but our SYN, of more that was sent. If our
    /// answer to its SYN-ACK was lost as well, it has no flow, and would take the number of
    /// the next segment for the first, behind data that no firewall has seen.
    #[must_use]
    pub const fn is_unconfirmed(&self) -> bool {
        self.snd_una == self.iss.wrapping_add(1) && self.snd_nxt != self.snd_una
    }

    /// Who opened the flow, if it waits for its first answer ([`crate::tunnel::share`]).
    #[must_use]
    pub const fn waits(&self) -> Option<Opener> {
        if self.tx_packets != 0 {
            return None;
        }
        match self.state() {
            State::SynSent => Some(Opener::Host),
            State::SynReceived if self.syns != REMEMBERED => Some(Opener::Host),
            // The first datagram is about to leave.
            State::Established if self.syn_at != 0 => None,
            State::SynReceived | State::Established | State::FinSent | State::Closed => {
                Some(Opener::Peer)
            }
        }
    }

    /// Whether it is time for its first or next SYN.
    #[must_use]
    pub const fn wants_syn(&self, now: u64) -> bool {
        matches!(self.state(), State::SynSent | State::SynReceived)
            && syn_is_due(self.syn_at, self.syns, now)
    }
}

/// Stands for the number of SYNs in a flow that the peer's SYN made: the SYN-ACK was
/// sent, and nothing is repeated.
pub const REMEMBERED: u16 = u16::MAX;

/// The bit in the number of SYNs that tells that they were counted anew once: the
/// peer had a flow in the way. Once only: otherwise an attacker who forges such
/// segments could keep a handshake from ending.
pub const RESTARTED: u16 = 1 << 15;

/// The count of SYNs goes no further: without a daemon a flow may go on sending them for
/// days, and must not come to stand for [`REMEMBERED`].
pub const MOST_SYNS: u16 = 1000;

/// Whether SYN number `sent + 1` is due, if the last one left at `last`, in
/// nanoseconds; zero stands for "never". Half a second after the first, then
/// every second: a path that comes back is found within that. Almost at once
/// after one that does not count, because the peer had a flow in the way.
#[inline(always)]
#[must_use]
pub const fn syn_is_due(last: u64, sent: u16, now: u64) -> bool {
    if sent == REMEMBERED {
        return false;
    }
    let wait = match sent & !RESTARTED {
        0 => 50_000_000,
        1 => 500_000_000,
        _ => 1_000_000_000,
    };
    // The clock of another CPU may be behind that of the last sender.
    last == 0 || now.saturating_sub(last) >= wait
}

/// After how many ticks without a sign of the peer its sequence number may be any: more may
/// have been lost meanwhile than the window holds, and the acknowledgement number alone tells
/// that a segment is the peer's. On a flow that is idle that is one number of 2^32. Longer than the
/// delay of an ACK: a peer that only acknowledges is mostly heard of sooner. So a flow of
/// more than 1 Gbit/s that was interrupted for a shorter time goes on after this one.
pub const SILENCE: u32 = 512;

/// How far one segment moves the number that we acknowledge, in bytes. After a loss of
/// more it takes some segments to catch up. A probe or challenge of the peer corrects what
/// forged segments moved.
pub const MAX_STEP: u32 = 1 << 20;

//! What user space tells the programs.

use crate::again::OF_TUNNEL;

/// Names of the tunnel's read-only variables, beside [those of any function](crate::global).
/// They are fixed at load, and the verifier removes what they rule out.
pub mod global {
    /// [`crate::tunnel::isn::Secret`]: key of the initial sequence numbers.
    pub const SECRET: &str = "SECRET";
    /// `[u64; 6]`: seeds of [`hash`](crate::flow::key::FlowKey::hash).
    pub const SEEDS: &str = "SEEDS";
    /// `u32`: 1 if a caller must prove that it knows a secret.
    pub const HIDDEN: &str = "HIDDEN";
    /// `u32`: what the programs are [told](crate::tunnel::veil::word) of the veil.
    pub const VEIL: &str = "VEIL";
    /// `u32`: how many flows the table holds.
    pub const MAX_FLOWS: &str = "MAX_FLOWS";
    /// `u32`: 1 if only the addresses in the `PEERS` map are ours.
    pub const PEERS_ONLY: &str = "PEERS_ONLY";
    /// [`super::Phantuns`]: which peers are stock phantuns.
    pub const PHANTUNS: &str = "PHANTUNS";
    /// [`super::TcpDefaults`]: what a TCP connection of this host begins with.
    pub const TCP_DEFAULTS: &str = "TCP_DEFAULTS";
}

/// What a TCP connection of this host begins with, by its settings (sysctl): the segments
/// of a handshake look the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct TcpDefaults {
    /// Room for received bytes, of which the first window is made.
    pub space: u32,
    /// By how many bits windows are shifted (RFC 7323 section 2).
    pub window_scale: u8,
    /// Whether ECN is asked for (1), granted (2), or neither (0): `net.ipv4.tcp_ecn`.
    pub ecn: u8,
    /// Time to live.
    pub ttl: u8,
    /// Hop limit.
    pub hop_limit: u8,
}

crate::plain!(TcpDefaults: 8);

impl TcpDefaults {
    /// Linux's own defaults, with a larger window scale: 62 MB may be under way.
    pub const LINUX: Self = Self {
        space: 65536,
        window_scale: 10,
        ecn: 2,
        ttl: 64,
        hop_limit: 64,
    };

    /// The window of a SYN or SYN-ACK: as many whole segments of `mss` bytes as there is
    /// room for (`tcp_select_initial_window`).
    #[inline(always)]
    #[must_use]
    pub const fn first_window(&self, mss: u16) -> u16 {
        let mss = mss as u32;
        let window = if mss != 0 && self.space > mss {
            self.space / mss * mss
        } else {
            self.space
        };
        if window > u16::MAX as u32 {
            u16::MAX
        } else {
            window as u16
        }
    }
}

/// Which peers run phantun and not xdptun. It accepts a SYN only with sequence number 0, acknowledges
/// with data or after 128 MiB, and knows no FIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Phantuns {
    /// None.
    None = 0,
    /// Every peer.
    All = 1,
    /// Those that the `PEERS` map says so of.
    Some = 2,
}

crate::from_raw! {
    /// The choice stored as `value`; [`Phantuns::None`] if it is unknown.
    pub Phantuns: u32 { None, All, Some } else None
}

/// What the `PEERS` map says of a network.
pub mod peer {
    /// A peer that runs xdptun.
    pub const XDPTUN: u32 = 1;
    /// A peer that runs phantun.
    pub const PHANTUN: u32 = 2;
}

/// Capacity of the `PEERS` map, in networks.
pub const MAX_PEERS: u32 = 1024;

/// Marks of packets that carry a request to the `egress` program: a clone made
/// by `ingress`, or a frame sent by the daemon. Each is one of xdptun's own
/// ([`is_own`](crate::again::is_own)). `SO_MARK` needs CAP_NET_ADMIN
/// or CAP_NET_RAW, and a mark does not cross the wire or a network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Request {
    /// Turn this inbound segment into a pure ACK for its flow.
    Acknowledge = OF_TUNNEL,
    /// Turn this datagram into a SYN again if one is due, else drop it.
    RetransmitSyn = OF_TUNNEL + 1,
    /// Turn this datagram into a keepalive probe.
    Probe = OF_TUNNEL + 2,
    /// Turn this datagram into a FIN.
    Finish = OF_TUNNEL + 3,
    /// Open the flow again, whose path is dead, and turn this datagram into the
    /// SYN.
    Reopen = OF_TUNNEL + 4,
    /// Not to `egress`, but to `ingress`: this ICMP error is `egress`'s own, about a
    /// datagram that does not fit.
    OwnError = OF_TUNNEL + 5,
    /// Turn this datagram into the ACK that ended the handshake, again.
    Confirm = OF_TUNNEL + 6,
    /// Nothing: treat this datagram, which waited with the daemon, like any other. The mark
    /// tells other programs that they have met it before.
    Resend = OF_TUNNEL + 7,
}

crate::from_raw! {
    Request: u32 {
        Acknowledge,
        RetransmitSyn,
        Probe,
        Finish,
        Reopen,
        OwnError,
        Confirm,
        Resend,
    }
}

impl Request {
    /// The request a mark stands for.
    #[inline(always)]
    #[must_use]
    pub const fn from_mark(mark: u32) -> Option<Self> {
        Self::from_raw(mark)
    }

    /// The mark that stands for it.
    #[must_use]
    pub const fn mark(self) -> u32 {
        self as u32
    }
}

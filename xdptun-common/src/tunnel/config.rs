//! What user space tells the programs.

/// Names of the read-only variables of the programs, fixed at load; what they
/// rule out is removed by the verifier.
pub mod global {
    /// [`crate::tunnel::isn::Secret`]: key of the initial sequence numbers.
    pub const SECRET: &str = "SECRET";
    /// `u32`: 1 if a caller must prove that it knows a secret.
    pub const HIDDEN: &str = "HIDDEN";
    /// `u32`: length of the interface's link header in bytes, [`super::LINK_ETHERNET`] or [`super::LINK_NONE`].
    pub const LINK_LEN: &str = "LINK_LEN";
    /// `u32`: how many flows the table holds.
    pub const MAX_FLOWS: &str = "MAX_FLOWS";
    /// `u32`: 1 if only the addresses in the `PEERS` map are ours.
    pub const PEERS_ONLY: &str = "PEERS_ONLY";
    /// [`super::TcpDefaults`]: what a TCP connection of this host begins with.
    pub const TCP_DEFAULTS: &str = "TCP_DEFAULTS";
    /// `u32`: 1 on a kernel whose pull looks at a pending checksum before it
    /// moves the start of the packet (before 6.2, `bpf: pull before calling
    /// skb_postpull_rcsum`).
    pub const SHRINK_TWICE: &str = "SHRINK_TWICE";
    /// `u32`: how many bytes of each packet are recorded ([`crate::report::copy`]); 0 if
    /// none is.
    pub const RECORD: &str = "RECORD";
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

/// Ethernet.
pub const LINK_ETHERNET: u32 = 14;
/// No link header (TUN, WireGuard, PPP).
pub const LINK_NONE: u32 = 0;

/// Capacity of the `PEERS` map, in networks.
pub const MAX_PEERS: u32 = 1024;

/// Capacity of the `LOCAL` map, in networks.
pub const MAX_LOCAL: u32 = 65536;

/// What the kernel takes for this host itself, in the `LOCAL` map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Local {
    /// Addresses that a connection can end at.
    Host = 1,
    /// Broadcast and anycast addresses, at which none can.
    Many = 2,
    /// What is this host's for packets that a rule chooses, as for TPROXY: connections can
    /// end there, and packets of others can come from there.
    ByRule = 3,
}

impl Local {
    /// Whether a connection can end at what a value of the map stands for.
    #[inline(always)]
    #[must_use]
    pub const fn is_end(value: u32) -> bool {
        value != Self::Many as u32
    }

    /// Whether no other host can have what a value of the map stands for.
    #[inline(always)]
    #[must_use]
    pub const fn is_own(value: u32) -> bool {
        value != Self::ByRule as u32
    }
}

/// Words of the `PORTS` map, a bit for each port.
pub const PORT_WORDS: u32 = 65536 / 64;

/// Where a port's bit is: word and mask.
#[inline(always)]
#[must_use]
pub const fn port_bit(port: u16) -> (u32, u64) {
    ((port >> 6) as u32, 1 << (port & 63))
}

/// Marks of packets that carry a request to the `egress` program: a clone made
/// by `ingress`, or a frame sent by the daemon. `SO_MARK` needs CAP_NET_ADMIN
/// or CAP_NET_RAW, and a mark does not cross the wire or a network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Request {
    /// Turn this inbound segment into a pure ACK for its flow.
    Acknowledge = Self::BASE,
    /// Turn this datagram into a SYN again if one is due, else drop it.
    RetransmitSyn = Self::BASE + 1,
    /// Turn this datagram into a keepalive probe.
    Probe = Self::BASE + 2,
    /// Turn this datagram into a FIN.
    Finish = Self::BASE + 3,
    /// Open the flow again, whose path is dead, and turn this datagram into the
    /// SYN.
    Reopen = Self::BASE + 4,
    /// Not to `egress`, but to `ingress`: this ICMP error is `egress`'s own, about a
    /// datagram that does not fit.
    OwnError = Self::BASE + 5,
    /// Turn this datagram into the ACK that ended the handshake, again.
    Confirm = Self::BASE + 6,
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
    }
}

impl Request {
    /// "xdp" and a number, so that a user's own marks do not meet it by chance.
    const BASE: u32 = 0x7864_7000;

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

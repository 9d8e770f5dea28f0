//! The two hosts of all tests: this one, which the programs run on, and a peer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use xdptun_common::flow::key::FlowKey;
use xdptun_common::flow::tick::Tick;
use xdptun_common::tunnel::ack::AckMarks;
use xdptun_common::tunnel::config::TcpDefaults;
use xdptun_common::tunnel::state::{Flow, KeptFields, Label, MOST_SYNS, RESTARTED, State};
use xdptun_common::wire::IpFields;

use crate::kernel::MTU;
use crate::moment::{Moment, control_window};
use crate::packet::{Packet, flags};
use crate::program::NOWHERE;

/// A port that is configured as ours.
pub const OWNED: u16 = 8000;
/// How far behind the latest acknowledgement number the flows of tests take one.
pub const OLDEST_ACK: u32 = 1 << 12;
/// Another one: the port of this host's browser connections.
pub const HTTPS: u16 = 443;
/// A port that is not ours.
pub const OTHER: u16 = 40000;

/// A version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// This host.
    #[must_use]
    pub const fn host(self) -> IpAddr {
        match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
            Self::V6 => IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1)),
        }
    }

    /// The peer.
    #[must_use]
    pub const fn peer(self) -> IpAddr {
        match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
            Self::V6 => IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2)),
        }
    }

    /// An address that is no configured peer.
    #[must_use]
    pub const fn stranger(self) -> IpAddr {
        match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9)),
            Self::V6 => IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9)),
        }
    }

    /// A peer that has a secret of its own.
    #[must_use]
    pub const fn with_own_key(self) -> IpAddr {
        match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::new(203, 0, 113, 10)),
            Self::V6 => IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 10)),
        }
    }

    /// A network, all of whose addresses except [`Self::to_all`] are this host's, and the
    /// length of its prefix in 16-byte addresses.
    #[must_use]
    pub const fn own_network(self) -> (IpAddr, u32) {
        match self {
            Self::V4 => (IpAddr::V4(Ipv4Addr::new(10, 1, 2, 0)), 96 + 24),
            Self::V6 => (IpAddr::V6(Ipv6Addr::new(0xfd01, 0, 0, 0, 0, 0, 0, 0)), 64),
        }
    }

    /// Any address of that network.
    #[must_use]
    pub const fn also_host(self) -> IpAddr {
        match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::new(10, 1, 2, 3)),
            Self::V6 => IpAddr::V6(Ipv6Addr::new(0xfd01, 0, 0, 0, 7, 0, 0, 3)),
        }
    }

    /// The broadcast or anycast address in it.
    #[must_use]
    pub const fn to_all(self) -> IpAddr {
        match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::new(10, 1, 2, 255)),
            Self::V6 => IpAddr::V6(Ipv6Addr::new(0xfd01, 0, 0, 0, 0, 0, 0, 0)),
        }
    }

    /// Length of the fixed IP header in bytes.
    #[must_use]
    pub const fn header_len(self) -> usize {
        match self {
            Self::V4 => 20,
            Self::V6 => 40,
        }
    }
}

/// The address of an interface: that of this host, or of the way to all others.
/// Ours is the loopback's, on which packets of a test run count as arrived: to
/// the kernel a frame for any other address is another host's.
#[must_use]
pub fn mac(address: IpAddr) -> [u8; 6] {
    if Family::ALL.iter().any(|family| family.host() == address) {
        [0; 6]
    } else {
        [0x02, 0, 0, 0, 0, 0x22]
    }
}

/// Two sockets, seen from this host.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// This host's socket.
    pub local: SocketAddr,
    /// The other one.
    pub remote: SocketAddr,
}

impl Path {
    /// Both ends by family and ports.
    #[must_use]
    pub const fn new(family: Family, local: u16, remote: u16) -> Self {
        Self {
            local: SocketAddr::new(family.host(), local),
            remote: SocketAddr::new(family.peer(), remote),
        }
    }

    /// This host owns the port.
    #[must_use]
    pub const fn server(family: Family) -> Self {
        Self::new(family, OWNED, OTHER)
    }

    /// The peer owns the port.
    #[must_use]
    pub const fn client(family: Family) -> Self {
        Self::new(family, OTHER, OWNED)
    }

    /// The same local socket with a stranger at the other end.
    #[must_use]
    pub const fn with_stranger(family: Family) -> Self {
        Self {
            local: SocketAddr::new(family.host(), OWNED),
            remote: SocketAddr::new(family.stranger(), OTHER),
        }
    }

    /// The same local socket with a peer that has a secret of its own.
    #[must_use]
    pub const fn with_own_key(family: Family) -> Self {
        Self {
            local: SocketAddr::new(family.host(), OWNED),
            remote: SocketAddr::new(family.with_own_key(), OTHER),
        }
    }

    /// The same sockets, seen from the peer.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self {
            local: self.remote,
            remote: self.local,
        }
    }

    /// The flow's key.
    #[must_use]
    pub const fn key(self) -> FlowKey {
        FlowKey::new(self.local, self.remote)
    }

    /// A datagram of this host.
    #[must_use]
    pub fn outbound(self) -> Packet {
        Packet::datagram(self.local, self.remote)
    }

    /// A datagram of the peer.
    #[must_use]
    pub fn inbound(self) -> Packet {
        Packet::datagram(self.remote, self.local)
    }

    /// A segment without data of this host, as the programs make it from any other packet:
    /// the first SYN of a flow that begins with `sequence`, an answer to a sender without
    /// a flow, or one of an [established](Path::established) flow.
    #[must_use]
    pub fn control(self, at: Moment, flags: u8, sequence: u32, acknowledgment: u32) -> Packet {
        let key = self.key();
        let segment = self.outbound().segment(flags, sequence, acknowledgment);
        let mss = u16::from_be_bytes(mss(self.family()));
        let first_window = TcpDefaults::LINUX.first_window(mss);
        let answers_stranger = |segment: Packet| segment.flow_label(at.label(&key));
        if flags & flags::RST != 0 {
            return answers_stranger(segment.window(0));
        }
        if flags & flags::SYN == 0 {
            return segment
                .window(control_window(acknowledgment))
                .identified(ESTABLISHED_ID);
        }
        let syn = segment
            .window(first_window)
            .options(&syn_options(self.family()));
        if flags & flags::ACK != 0 {
            return answers_stranger(syn);
        }
        syn.identified(at.identification(&key, sequence).wrapping_add(1))
    }

    /// The same as the next segment of `flow`.
    #[must_use]
    pub fn control_of(
        self,
        at: Moment,
        flow: &Flow,
        flags: u8,
        sequence: u32,
        acknowledgment: u32,
    ) -> Packet {
        let syns = flow.syns & !RESTARTED;
        let count = if flags == flags::SYN {
            syns.saturating_add(1).min(MOST_SYNS)
        } else {
            (flow.rx_packets as u16).wrapping_add(syns).wrapping_add(1)
        };
        let fields = flow
            .kept_fields
            .fields(count, DATAGRAM.hop_limit, Label(flow.label).value());
        self.control(at, flags, sequence, acknowledgment)
            .identified(fields.identification)
            .flow_label(fields.label)
            .tos(fields.class)
            .ttl(fields.hop_limit)
    }

    /// The family of both ends.
    #[must_use]
    pub const fn family(self) -> Family {
        match self.local {
            SocketAddr::V4(_) => Family::V4,
            SocketAddr::V6(_) => Family::V6,
        }
    }

    /// The flow in the middle of its life. Both sequence numbers are about to
    /// pass zero, and nothing is left to acknowledge.
    #[must_use]
    pub fn established(self, at: Moment) -> Flow {
        Flow {
            state: State::Established as u32,
            iss: 0xffff_0000,
            snd_una: 0xffff_ffe0,
            snd_nxt: 0xffff_ffe0,
            rcv_nxt: 0xffff_fff0,
            acked: 0xffff_fff0,
            ack_marks: AckMarks {
                numbers: [0xffff_ffe0 - OLDEST_ACK, 0xffff_ffe0 - OLDEST_ACK / 2],
                since: at.tick().wrapping_sub(100),
            },
            syns: 1,
            kept_fields: KeptFields::new(0).seen(DATAGRAM),
            sent_at: at.before_ms(5),
            received_at: at.before_ms(30),
            unanswered_at: at.before_ms(31),
            data_at: at.before_ms(1000),
            tx_packets: 0x1_00fe,
            tx_bytes: 1_000_000,
            rx_packets: 70,
            rx_bytes: 7000,
            opened_at: at.before_ms(5000),
            established_at: at.before_ms(4990),
            syn_at: at.before_ms(5000),
            link: self.outbound().link(),
            ..NO_FLOW
        }
    }

    /// The flow after its first SYN, which has just left.
    #[must_use]
    pub fn opening(self, at: Moment) -> Flow {
        let iss = at.isn(&self.key());
        Flow {
            state: State::SynSent as u32,
            iss,
            snd_una: iss.wrapping_add(1),
            snd_nxt: iss.wrapping_add(1),
            rcv_nxt: 0,
            acked: 0,
            syns: 1,
            sent_at: at.ns(),
            received_at: at.ns(),
            unanswered_at: 0,
            data_at: at.ns(),
            tx_packets: 0,
            tx_bytes: 0,
            rx_packets: 0,
            rx_bytes: 0,
            opened_at: at.ns(),
            established_at: 0,
            syn_at: at.ns(),
            link: self.outbound().link(),
            ack_marks: AckMarks::new(iss.wrapping_add(1), Tick(at.tick())),
            kept_fields: KeptFields::new(at.identification(&self.key(), iss)).seen(DATAGRAM),
            ..NO_FLOW
        }
    }
}

/// A flow of which nothing is known.
const NO_FLOW: Flow = Flow {
    state: 0,
    iss: 0,
    snd_una: 0,
    snd_nxt: 0,
    rcv_nxt: 0,
    acked: 0,
    ack_marks: AckMarks {
        numbers: [0; 2],
        since: 0,
    },
    syns: 0,
    sent_at: 0,
    received_at: 0,
    unanswered_at: 0,
    data_at: 0,
    tx_packets: 0,
    tx_bytes: 0,
    rx_packets: 0,
    rx_bytes: 0,
    opened_at: 0,
    established_at: 0,
    syn_at: 0,
    answers_earned_at: 0,
    distrusted_at: 0,
    link: [0; 14],
    label: 0,
    kept_fields: KeptFields(0),
    interface: NOWHERE,
};

/// The IP header fields of a datagram, if a test does not say others.
pub const DATAGRAM: IpFields = IpFields {
    class: 0,
    hop_limit: 64,
    identification: 0,
    label: 0,
};

/// The IPv4 identification of the next segment without data of an
/// [established](Path::established) flow: behind that of its SYN, one for each datagram that came.
const ESTABLISHED_ID: u16 = 1 + 70 + 1;

/// The options of our SYN: maximum segment size, SACK permitted, window scale
/// 10 (RFC 9293 section 3.2, RFC 2018, RFC 7323).
#[must_use]
pub fn syn_options(family: Family) -> [u8; 12] {
    let [high, low] = mss(family);
    [2, 4, high, low, 1, 1, 4, 2, 1, 3, 3, 10]
}

/// The same with a timestamp (RFC 7323 section 3), as Linux orders them.
#[must_use]
pub fn timestamped_syn_options(family: Family, timestamp: u32) -> [u8; 20] {
    let [high, low] = mss(family);
    let [a, b, c, d] = timestamp.to_be_bytes();
    [
        2, 4, high, low, 4, 2, 8, 10, a, b, c, d, 0, 0, 0, 0, 1, 3, 3, 10,
    ]
}

fn mss(family: Family) -> [u8; 2] {
    match family {
        Family::V4 => MTU - 40,
        Family::V6 => MTU - 60,
    }
    .to_be_bytes()
}

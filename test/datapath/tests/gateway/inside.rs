//! Conversations of inside hosts, and all that their translation changes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use etherparse::IpNumber;
use xdptun_common::gateway::nat::Filtering;
use xdptun_common::wire::Protocol;
use xdptun_test_datapath::gateway::{Gateway, NatRow, OWN};
use xdptun_test_datapath::{Family, Message, Packet, flags};

use crate::HERE;

/// The interface of the inside hosts, which translates nothing by itself.
pub const LAN: u32 = 77;

/// The ports that the outside address lends.
pub const PORTS: [u16; 2] = [20_000, 20_999];

/// One of [`PORTS`], which most inside ends have themselves.
pub const PORT: u16 = 20_100;

/// A first packet of an inside end that was not bound.
pub const BINDS: [&str; 3] = ["out_translated", "sessions_began", "bindings_began"];
/// A first packet of a session, of an inside end that is bound.
pub const BEGINS: [&str; 2] = ["out_translated", "sessions_began"];
/// The packet of an inside host after which its session lasts.
pub const PROVES: [&str; 2] = ["out_translated", "sessions_proven"];
/// A packet of a session that leaves.
pub const LEAVES: [&str; 1] = ["out_translated"];
/// A packet of a session that comes in.
pub const ARRIVES: [&str; 1] = ["in_translated"];
/// A first packet of an outside host.
pub const CALLS: [&str; 2] = ["in_translated", "sessions_began"];
/// The packet of an outside host after which its session lasts.
pub const CALL_PROVES: [&str; 2] = ["in_translated", "sessions_proven"];

/// The address of an inside host.
pub const fn inside_host(number: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(192, 168, 7, number))
}

/// An outside address of this host, and an end there.
pub const fn outside(port: u16) -> SocketAddr {
    SocketAddr::new(Family::V4.host(), port)
}

/// An end of the first remote host.
pub const fn remote(port: u16) -> SocketAddr {
    SocketAddr::new(Family::V4.stranger(), port)
}

/// An end of the second remote host.
pub const fn other_remote(port: u16) -> SocketAddr {
    SocketAddr::new(Family::V4.with_own_key(), port)
}

/// What the interface translates, if a test names nothing else.
pub const fn row() -> NatRow {
    NatRow {
        outside: Some(Family::V4.host()),
        ports: PORTS,
        filtering: Filtering::EndpointIndependent,
        max_per_host: 1000,
        inside: (Ipv4Addr::new(192, 168, 7, 0), 24),
        pool: None,
    }
}

/// The programs that translate so.
pub fn nat(row: NatRow) -> Gateway {
    let mut gateway = Gateway::new(&[]);
    gateway.set_nat(OWN, row);
    gateway
}

/// What carries a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Datagrams.
    Udp,
    /// A connection.
    Tcp,
    /// ICMP queries, whose identifier is the port of the host that asks.
    Echo,
}

impl Transport {
    /// All.
    pub const ALL: [Self; 3] = [Self::Udp, Self::Tcp, Self::Echo];
    /// Those by which an outside host may begin.
    pub const WITH_PORTS: [Self; 2] = [Self::Udp, Self::Tcp];

    /// Its protocol number.
    pub const fn protocol(self) -> Protocol {
        match self {
            Self::Udp => Protocol::UDP,
            Self::Tcp => Protocol::TCP,
            Self::Echo => Protocol::ICMP,
        }
    }
}

/// An inside end, its outside end, and the end that it talks to.
#[derive(Clone, Copy, Debug)]
pub struct Conversation {
    /// The inside end.
    pub inside: SocketAddr,
    /// The outside end.
    pub outside: SocketAddr,
    /// The remote end.
    pub remote: SocketAddr,
    /// What carries it.
    pub by: Transport,
}

/// Numbers of the segments of a connection: its caller's first is 1000, the other end's 5000.
const SYN: (u8, u32, u32) = (flags::SYN, 1000, 0);
const SYN_ACK: (u8, u32, u32) = (flags::SYN | flags::ACK, 5000, 1001);
const ACK: (u8, u32, u32) = (flags::ACK, 1001, 5001);

impl Conversation {
    /// One of an inside host with the first remote host, which keeps its port.
    pub const fn new(host: u8, by: Transport) -> Self {
        Self {
            inside: SocketAddr::new(inside_host(host), PORT),
            outside: outside(PORT),
            remote: remote(443),
            by,
        }
    }

    /// With another inside port.
    pub fn of_port(mut self, port: u16) -> Self {
        self.inside.set_port(port);
        self
    }

    /// With another outside port.
    pub fn by_port(mut self, port: u16) -> Self {
        self.outside.set_port(port);
        self
    }

    /// With another remote end.
    pub const fn with(mut self, remote: SocketAddr) -> Self {
        self.remote = remote;
        self
    }

    /// A packet of the inside host as it leaves, and what it becomes; `make` is given both ends.
    pub fn leaving(self, make: impl Fn(SocketAddr, SocketAddr) -> Packet) -> [Packet; 2] {
        let sent = make(self.inside, self.remote);
        let becomes = make(self.outside, self.remote).linked_as(&sent);
        [sent, becomes]
    }

    /// A packet of the remote end as it comes in, and what it becomes.
    pub fn arriving(self, make: impl Fn(SocketAddr, SocketAddr) -> Packet) -> [Packet; 2] {
        let sent = make(self.remote, self.outside).link_to(HERE);
        let becomes = make(self.remote, self.inside).linked_as(&sent);
        [sent, becomes]
    }

    /// A datagram that leaves, and what it becomes.
    pub fn sends(self) -> [Packet; 2] {
        self.leaving(|from, to| Packet::datagram(from, to).payload(*b"query"))
    }

    /// A datagram that comes in, and what it becomes.
    pub fn gets(self) -> [Packet; 2] {
        self.arriving(|from, to| Packet::datagram(from, to).payload(*b"answer"))
    }

    /// A segment that leaves, and what it becomes.
    pub fn sends_segment(self, flags: u8, numbers: (u32, u32)) -> [Packet; 2] {
        self.sends()
            .map(|packet| packet.segment(flags, numbers.0, numbers.1))
    }

    /// A segment that comes in, and what it becomes.
    pub fn gets_segment(self, flags: u8, numbers: (u32, u32)) -> [Packet; 2] {
        self.gets()
            .map(|packet| packet.segment(flags, numbers.0, numbers.1))
    }

    fn sends_one(self, (flags, sequence, acknowledgement): (u8, u32, u32)) -> [Packet; 2] {
        match self.by {
            Transport::Udp => self.sends(),
            Transport::Tcp => self.sends_segment(flags, (sequence, acknowledgement)),
            Transport::Echo => self.leaving(|from, to| query(from, to.ip(), b"query")),
        }
    }

    fn gets_one(self, (flags, sequence, acknowledgement): (u8, u32, u32)) -> [Packet; 2] {
        match self.by {
            Transport::Udp => self.gets(),
            Transport::Tcp => self.gets_segment(flags, (sequence, acknowledgement)),
            Transport::Echo => self.arriving(|from, to| reply(from.ip(), to, b"query")),
        }
    }

    /// The first packet of the inside host.
    pub fn begins(self) -> [Packet; 2] {
        self.sends_one(SYN)
    }

    /// The answer to it.
    pub fn is_answered(self) -> [Packet; 2] {
        self.gets_one(SYN_ACK)
    }

    /// The packet of the inside host after which the session lasts.
    pub fn goes_on(self) -> [Packet; 2] {
        self.sends_one(ACK)
    }

    /// The first packet of the remote end, if that begins.
    pub fn is_called(self) -> [Packet; 2] {
        self.gets_one(SYN)
    }

    /// The answer of the inside host to it.
    pub fn answers(self) -> [Packet; 2] {
        self.sends_one(SYN_ACK)
    }

    /// The packet of the remote end after which the session lasts.
    pub fn is_called_on(self) -> [Packet; 2] {
        self.gets_one(ACK)
    }

    /// The inside host begins a session, and these are counted.
    #[track_caller]
    pub fn begin(self, gateway: &mut Gateway, counters: &[&str]) {
        let [sent, becomes] = self.begins();
        gateway.leaves(sent).becomes(becomes, counters);
    }

    /// The remote end answers.
    #[track_caller]
    pub fn answer(self, gateway: &mut Gateway) {
        let [sent, becomes] = self.is_answered();
        gateway.comes_in(sent).becomes(becomes, &ARRIVES);
    }

    /// The inside host opens a session that lasts; the first packet counts these.
    #[track_caller]
    pub fn open(self, gateway: &mut Gateway, counters: &[&str]) {
        self.begin(gateway, counters);
        self.answer(gateway);
        let [sent, becomes] = self.goes_on();
        gateway.leaves(sent).becomes(becomes, &PROVES);
    }

    /// The remote end opens a session that lasts.
    #[track_caller]
    pub fn open_from_outside(self, gateway: &mut Gateway) {
        let [sent, becomes] = self.is_called();
        gateway.comes_in(sent).becomes(becomes, &CALLS);
        let [sent, becomes] = self.answers();
        gateway.leaves(sent).becomes(becomes, &LEAVES);
        let [sent, becomes] = self.is_called_on();
        gateway.comes_in(sent).becomes(becomes, &CALL_PROVES);
    }
}

/// An echo request.
pub fn query(from: SocketAddr, to: IpAddr, body: &[u8]) -> Packet {
    echo(8, from.port(), body).packet(from.ip(), to)
}

/// The reply to one.
pub fn reply(from: IpAddr, to: SocketAddr, body: &[u8]) -> Packet {
    echo(0, to.port(), body).packet(from, to.ip())
}

fn echo(kind: u8, identifier: u16, body: &[u8]) -> Message {
    const SEQUENCE: u32 = 9;
    Message {
        kind,
        code: 0,
        rest: u32::from(identifier) << 16 | SEQUENCE,
        body: body.to_vec(),
    }
}

/// A packet of a protocol without ports.
pub fn tunnelled(from: IpAddr, to: IpAddr) -> Packet {
    Packet::other(from, to, IpNumber::GRE).payload([0, 0, 8, 0, 1, 2, 3, 4])
}

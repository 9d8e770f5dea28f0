//! A client of IPv6, a server of IPv4, and what they send to each other.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use xdptun_lab::Family;
use xdptun_lab::nat64::behind_prefix;
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::{Message, Packet, flags};

/// The client.
pub const CLIENT: Ipv6Addr = Ipv6Addr::new(0xfd00, 7, 0, 0, 0, 0, 0, 9);
/// Another one in its network.
pub const SECOND_CLIENT: Ipv6Addr = Ipv6Addr::new(0xfd00, 7, 0, 0, 0, 0, 0, 0xb);
/// A host in a network of which xdptun was not told.
pub const STRANGER: Ipv6Addr = Ipv6Addr::new(0xfd00, 8, 0, 0, 0, 0, 0, 9);
/// A router between the client and the gateway, in no network of clients.
pub const ROUTER_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 9, 0, 0, 0, 0, 0, 1);
/// The server.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);
/// Another one.
pub const SECOND_SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 81);
/// A router between the gateway and the server.
pub const ROUTER_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// An address to which the gateway has no route.
pub const UNREACHED: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);

/// The port of the server.
pub const PORT: u16 = 7;

/// Data of a packet whose length does not matter.
const LITTLE: usize = 20;

/// What a packet is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// A datagram.
    Udp,
    /// A segment with data.
    Tcp,
    /// A request of the client, a reply of the server.
    Echo,
}

/// What the client and the server know of each other.
#[derive(Debug, Clone, Copy)]
pub struct Ends {
    /// The client's port, the identifier of its pings, and the identification of packets: fragments
    /// of a row do not meet those of another.
    pub port: u16,
    /// The IPv4 address that it has by the translator.
    pub address: Ipv4Addr,
    /// The ports of UDP and TCP that it has there, and the identifier.
    pub mapped: [u16; 3],
}

impl Ends {
    /// The client before it has sent anything.
    pub const fn unknown(port: u16) -> Self {
        Self {
            port,
            address: Ipv4Addr::UNSPECIFIED,
            mapped: [0; 3],
        }
    }

    /// The client as a family knows it.
    pub fn client(&self, family: Family, protocol: Protocol) -> SocketAddr {
        match family {
            Family::V4 => (self.address, self.mapped[protocol as usize]).into(),
            Family::V6 => (CLIENT, self.port).into(),
        }
    }

    /// What the client sends, as it is seen in a family.
    pub fn up(&self, family: Family, protocol: Protocol) -> Packet {
        let (from, to) = (self.client(family, protocol), server(family));
        match protocol {
            Protocol::Echo => ping([8, 128], from.port(), from.ip(), to.ip()),
            _ => made(protocol, from, to),
        }
    }

    /// What the server sends, as it is seen in a family.
    pub fn down(&self, family: Family, protocol: Protocol) -> Packet {
        let (from, to) = (server(family), self.client(family, protocol));
        match protocol {
            Protocol::Echo => ping([0, 129], to.port(), from.ip(), to.ip()),
            _ => made(protocol, from, to),
        }
    }

    /// A request of the server, as it is seen in a family.
    pub fn ping_down(&self, family: Family) -> Packet {
        let to = self.client(family, Protocol::Echo);
        ping([8, 128], to.port(), server(family).ip(), to.ip())
    }
}

/// The server as a family knows it.
pub fn server(family: Family) -> SocketAddr {
    SocketAddr::new(at(family, SERVER), PORT)
}

/// An IPv4 address as a family knows it.
pub fn at(family: Family, address: Ipv4Addr) -> IpAddr {
    match family {
        Family::V4 => address.into(),
        Family::V6 => behind_prefix(address).into(),
    }
}

/// A packet between two ends.
pub fn made(protocol: Protocol, from: SocketAddr, to: SocketAddr) -> Packet {
    let packet = Packet::datagram(from, to).payload(payload(LITTLE));
    let packet = match protocol {
        Protocol::Tcp => packet.segment(flags::DATA, 1000, 2000),
        _ => packet,
    };
    packet.without_link()
}

/// A ping of any length.
pub fn ping(kinds: [u8; 2], identifier: u16, from: IpAddr, to: IpAddr) -> Packet {
    sized_ping(kinds, identifier, [from, to], LITTLE)
}

/// A ping with so much data.
pub fn sized_ping(kinds: [u8; 2], identifier: u16, ends: [IpAddr; 2], len: usize) -> Packet {
    let [from, to] = ends;
    let message = Message {
        kind: kinds[usize::from(from.is_ipv6())],
        code: 0,
        rest: u32::from(identifier) << 16 | 1,
        body: payload(len),
    };
    let packet = message.packet(from, to);
    packet.without_link()
}

//! Packets through the program of NAT64.

mod errors;
mod fragmented;
mod leases;
mod messages;
mod refused;
mod stack;
mod translated;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use xdptun_test_datapath::Packet;
use xdptun_test_datapath::nat64::{INSIDE, Nat64, translator};

/// A server of IPv4.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);

/// A client and a server, each as both versions have it.
pub struct Ends {
    /// The client.
    pub client: [IpAddr; 2],
    /// The server.
    pub server: [IpAddr; 2],
}

/// Which of both addresses is that of IPv4.
pub const V4: usize = 0;
/// The same of IPv6.
pub const V6: usize = 1;

/// The client with a number.
pub fn client(number: u16) -> Ipv6Addr {
    let mut segments = INSIDE.segments();
    segments[7] = number;
    segments.into()
}

impl Ends {
    /// The program, and a client that has an address and was answered.
    pub fn new() -> (Nat64, Self) {
        let mut nat64 = Nat64::new(translator());
        let ends = Self::of(&mut nat64, client(9));
        (nat64, ends)
    }

    /// A client that gets an address now, and is answered.
    pub fn of(nat64: &mut Nat64, client: Ipv6Addr) -> Self {
        let server = [IpAddr::V4(SERVER), nat64.v6(SERVER)];
        let call = Packet::datagram((client, 4000).into(), (server[V6], 53).into());
        nat64.meets(call).made(&["to_v4", "leases_began"]);
        let (address, _) = nat64.lease(client).expect("it has sent");
        let ends = Self {
            client: [address.into(), client.into()],
            server,
        };
        let answer = ends.to_client(V4, 53, 4000);
        nat64.meets(answer).made(&["to_v6", "leases_answered"]);
        ends
    }

    /// A datagram of the client, in a version.
    pub fn to_server(&self, version: usize, from: u16, to: u16) -> Packet {
        let from = SocketAddr::new(self.client[version], from);
        let to = SocketAddr::new(self.server[version], to);
        Packet::datagram(from, to).link_to([9; 6]).link_from([8; 6])
    }

    /// A datagram to the client, in a version.
    pub fn to_client(&self, version: usize, from: u16, to: u16) -> Packet {
        let from = SocketAddr::new(self.server[version], from);
        let to = SocketAddr::new(self.client[version], to);
        Packet::datagram(from, to).link_to([9; 6]).link_from([8; 6])
    }
}

//! Conversations through the gateway's programs.

mod bindings;
mod cut;
mod errors;
mod filtered;
mod forwarded;
mod fragmented;
mod hairpin;
mod inside;
mod inside_errors;
mod masqueraded;
mod random;
mod refused;
mod shared;
mod simultaneous;
mod stack;
mod timed;
mod together;
mod translated;
mod untranslated;

use std::net::SocketAddr;

use xdptun_test_datapath::gateway::{Gateway, Rule};
use xdptun_test_datapath::{Family, Packet, flags};

/// The port that the gateway listens at, and that of the back end.
pub const LISTEN: u16 = 7000;
/// See [`LISTEN`].
pub const SERVICE: u16 = 80;

/// The link address of this host. The kernel takes no other frame for it.
pub const HERE: [u8; 6] = [0; 6];

/// The three hosts of a conversation.
#[derive(Clone, Copy, Debug)]
pub struct Hosts {
    /// The client.
    pub client: SocketAddr,
    /// The listen address.
    pub listen: SocketAddr,
    /// The back end.
    pub back_end: SocketAddr,
}

impl Hosts {
    /// Those of a family, with another client for each number.
    pub fn new(family: Family, number: u16) -> Self {
        Self {
            client: SocketAddr::new(family.stranger(), 40_000 + number),
            listen: SocketAddr::new(family.host(), LISTEN),
            back_end: SocketAddr::new(family.peer(), SERVICE),
        }
    }

    /// The programs that forward to the back end.
    pub fn gateway(self) -> Gateway {
        Gateway::new(&Rule::both(LISTEN, self.back_end))
    }

    /// A datagram that comes in, and what it becomes.
    pub fn call(self) -> [Packet; 2] {
        let sent = Packet::datagram(self.client, self.listen).payload(*b"call");
        let becomes = Packet::datagram(self.client, self.back_end).payload(*b"call");
        let becomes = becomes.linked_as(&sent);
        [sent, becomes]
    }

    /// A datagram of the back end that leaves, and what it becomes.
    pub fn answer(self) -> [Packet; 2] {
        let sent = Packet::datagram(self.back_end, self.client).payload(*b"answer");
        let becomes = Packet::datagram(self.listen, self.client).payload(*b"answer");
        let becomes = becomes.linked_as(&sent);
        [sent, becomes]
    }

    /// A datagram to the back end itself, which this host only routes.
    pub fn direct(self) -> Packet {
        Packet::datagram(self.client, self.back_end).link_to(HERE)
    }

    /// A segment that comes in, and what it becomes.
    pub fn call_segment(self, flags: u8, numbers: (u32, u32)) -> [Packet; 2] {
        self.call()
            .map(|packet| packet.segment(flags, numbers.0, numbers.1))
    }

    /// A segment of the back end that leaves, and what it becomes.
    pub fn answer_segment(self, flags: u8, numbers: (u32, u32)) -> [Packet; 2] {
        self.answer()
            .map(|packet| packet.segment(flags, numbers.0, numbers.1))
    }

    /// Opens a connection, so that it lasts: the client's number is 1000, the back end's 5000.
    pub fn connect(self, gateway: &mut Gateway) {
        let [syn, becomes] = self.call_segment(flags::SYN, (1000, 0));
        gateway
            .comes_in(syn)
            .becomes(becomes, &["in_forwarded", "sessions_began"]);
        let [syn_ack, becomes] = self.answer_segment(flags::SYN | flags::ACK, (5000, 1001));
        gateway.leaves(syn_ack).becomes(becomes, &["out_returned"]);
        let [ack, becomes] = self.call_segment(flags::ACK, (1001, 5001));
        gateway
            .comes_in(ack)
            .becomes(becomes, &["in_forwarded", "sessions_proven"]);
    }

    /// The client resets the connection, which ends the session; the back end hears of it.
    pub fn reset(self, gateway: &mut Gateway) {
        let [reset, becomes] = self.call_segment(flags::RST, (1001, 0));
        gateway.comes_in(reset).becomes(becomes, &["in_forwarded"]);
    }
}

/// Both families.
pub fn both(number: u16) -> impl Iterator<Item = Hosts> {
    Family::ALL
        .into_iter()
        .map(move |family| Hosts::new(family, number))
}

//! ICMP errors: sent here, and taken apart.

use std::net::IpAddr;

use anyhow::{Context, Result};
use etherparse::{IpHeaders, IpNumber};
use xdptun_lab::Family;
use xdptun_test_datapath::{Message, Packet};

use crate::ends::{Ends, PORT, Protocol};
use crate::names::{THE_CLIENT, THE_SERVER, name};

/// The hop limit of a packet that an error is about: it has come a way.
pub const INSIDE: u8 = 60;

/// An error.
#[derive(Debug, Clone, Copy)]
pub struct Error {
    /// Type and code.
    pub kind: [u8; 2],
    /// The second half of its header.
    pub rest: u32,
}

impl Error {
    /// The error from a host about a packet, of whose data behind the IP header it quotes so much.
    pub fn about(self, packet: &Packet, len: usize, [from, to]: [IpAddr; 2]) -> Vec<u8> {
        self.with(packet.clone().ttl(INSIDE).quote(len), [from, to])
    }

    /// The error with this body.
    pub fn with(self, body: Vec<u8>, [from, to]: [IpAddr; 2]) -> Vec<u8> {
        let [kind, code] = self.kind;
        let message = Message {
            kind,
            code,
            rest: self.rest,
            body,
        };
        message.packet(from, to).without_link().bytes()
    }

    /// The header of an ICMP message that is an error.
    pub fn read(protocol: IpNumber, message: &[u8]) -> Result<Option<Self>> {
        let is_error = match (protocol, message) {
            (IpNumber::ICMP, [kind, ..]) => matches!(kind, 3 | 4 | 5 | 11 | 12),
            (IpNumber::IPV6_ICMP, [kind, ..]) => *kind < 128,
            _ => false,
        };
        if !is_error {
            return Ok(None);
        }
        let [kind, code, _, _, rest @ ..] = message.first_chunk::<8>().context("a short error")?;
        Ok(Some(Self {
            kind: [*kind, *code],
            rest: u32::from_be_bytes(*rest),
        }))
    }

    /// The second half of its header, if it says something.
    pub fn rest(self, protocol: IpNumber) -> Option<String> {
        let rest = self.rest;
        match (protocol, self.kind) {
            (IpNumber::ICMP, [3, 4]) => Some(format!("MTU {}", rest & 0xffff)),
            (IpNumber::ICMP, [12, _]) => Some(format!("pointer {}", rest >> 24)),
            (IpNumber::IPV6_ICMP, [2, _]) => Some(format!("MTU {rest}")),
            (IpNumber::IPV6_ICMP, [4, _]) => Some(format!("pointer {rest}")),
            _ => None,
        }
    }
}

/// The packet that an error is about, as far as its message quotes that, and what is not as the
/// receiver knows it.
pub fn quoted(message: &[u8], ends: &Ends) -> Result<Vec<String>> {
    let quote = &message[8..];
    let (ip, rest, _) = IpHeaders::from_slice_lax(quote).context("the packet inside")?;
    let (family, hop_limit, length) = match &ip {
        IpHeaders::Ipv4(ip, _) => (Family::V4, ip.time_to_live, ip.total_len),
        IpHeaders::Ipv6(ip, _) => (Family::V6, ip.hop_limit, 40 + ip.payload_length),
    };
    let mut words = vec![format!("about {} of {length} bytes", quote.len())];
    if hop_limit != INSIDE {
        words.push(format!("hop limit {hop_limit} inside"));
    }
    let addresses: [IpAddr; 2] = match &ip {
        IpHeaders::Ipv4(ip, _) => [ip.source.into(), ip.destination.into()],
        IpHeaders::Ipv6(ip, _) => [ip.source.into(), ip.destination.into()],
    };
    let [from, to] = addresses.map(|address| name(address, ends));
    let mut known = [&*from, &*to];
    known.sort_unstable();
    if known != [THE_CLIENT, THE_SERVER] {
        words.push(format!("from {from} to {to} inside"));
    }
    if rest.payload.len() >= 8 && !has_known_ports(rest.ip_number, rest.payload, family, ends) {
        words.push("other ports inside".into());
    }
    Ok(words)
}

/// Whether the packet inside has the ports of the client and the server, or the client's identifier.
fn has_known_ports(protocol: IpNumber, data: &[u8], family: Family, ends: &Ends) -> bool {
    let word = |at| u16::from_be_bytes([data[at], data[at + 1]]);
    let client = |protocol| ends.client(family, protocol).port();
    let is_between =
        |port| [word(0), word(2)] == [port, PORT] || [word(0), word(2)] == [PORT, port];
    match protocol {
        IpNumber::UDP => is_between(client(Protocol::Udp)),
        IpNumber::TCP => is_between(client(Protocol::Tcp)),
        IpNumber::ICMP | IpNumber::IPV6_ICMP => word(4) == client(Protocol::Echo),
        _ => true,
    }
}

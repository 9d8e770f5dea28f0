//! ICMP and ICMPv6 messages (RFC 792, RFC 4443).

use std::net::IpAddr;

use etherparse::{Icmpv4Header, Icmpv4Type, Icmpv6Header, Icmpv6Type, IpNumber};

use crate::packet::Packet;
use crate::path::Family;

/// A message without addresses.
#[derive(Clone, Debug)]
pub struct Message {
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// The second half of the header: an MTU, a pointer, or nothing.
    pub rest: u32,
    /// The data after it: the packet that an error is about.
    pub body: Vec<u8>,
}

impl Message {
    /// The message that a packet exceeds an MTU.
    #[must_use]
    pub fn too_big(family: Family, mtu: u32, quote: Vec<u8>) -> Self {
        let (kind, code) = match family {
            Family::V4 => (3, 4),
            Family::V6 => (2, 0),
        };
        Self {
            kind,
            code,
            rest: mtu,
            body: quote,
        }
    }

    /// The packet that carries it.
    ///
    /// # Panics
    ///
    /// If the addresses are of different families.
    #[must_use]
    pub fn packet(&self, from: IpAddr, to: IpAddr) -> Packet {
        let (type_u8, code_u8) = (self.kind, self.code);
        let bytes5to8 = self.rest.to_be_bytes();
        let (number, header) = match (from, to) {
            (IpAddr::V4(_), IpAddr::V4(_)) => {
                let icmp_type = Icmpv4Type::Unknown {
                    type_u8,
                    code_u8,
                    bytes5to8,
                };
                let header = Icmpv4Header::with_checksum(icmp_type, &self.body);
                (IpNumber::ICMP, header.to_bytes().to_vec())
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let icmp_type = Icmpv6Type::Unknown {
                    type_u8,
                    code_u8,
                    bytes5to8,
                };
                let (from, to) = (from.octets(), to.octets());
                let header = Icmpv6Header::with_checksum(icmp_type, from, to, &self.body);
                let header = header.expect("a message fits a packet");
                (IpNumber::IPV6_ICMP, header.to_bytes().to_vec())
            }
            _ => panic!("{from} and {to} are of different families"),
        };
        Packet::other(from, to, number).payload([header, self.body.clone()].concat())
    }
}

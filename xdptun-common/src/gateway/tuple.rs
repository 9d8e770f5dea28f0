//! The key of a translation: the addresses and ports of a packet as a hook meets it.

use core::net::SocketAddr;

use crate::address::{address_bytes, ip_addr};
use crate::wire::{Echo, Ip, Protocol};

/// Where a packet is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Side {
    /// It comes in: its destination is translated.
    In = 0,
    /// It leaves: its source is translated.
    Out = 1,
}

crate::from_raw! {
    Side: u8 { In, Out } else In
}

impl Side {
    /// Where the answers to a packet are met.
    #[inline(always)]
    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::In => Self::Out,
            Self::Out => Self::In,
        }
    }
}

/// Addresses and ports of a packet before it is translated, its protocol, and where it is met.
/// Addresses are 16 bytes, IPv4 as v4-mapped; ports are big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C, align(4))]
pub struct Tuple {
    source: [u8; 16],
    destination: [u8; 16],
    source_port: [u8; 2],
    destination_port: [u8; 2],
    protocol: u8,
    side: u8,
    reserved: [u8; 2],
}

crate::plain!(Tuple: 40);

impl Tuple {
    /// The tuple of a packet with this header and these ports: source, destination.
    #[inline(always)]
    #[must_use]
    pub fn of(ip: &impl Ip, protocol: Protocol, ports: (u16, u16), side: Side) -> Self {
        Self {
            source: ip.source(),
            destination: ip.destination(),
            source_port: ports.0.to_be_bytes(),
            destination_port: ports.1.to_be_bytes(),
            protocol: protocol.0,
            side: side as u8,
            reserved: [0; 2],
        }
    }

    /// The tuple of a packet between two socket addresses.
    #[must_use]
    pub const fn new(
        source: SocketAddr,
        destination: SocketAddr,
        protocol: Protocol,
        side: Side,
    ) -> Self {
        Self {
            source: address_bytes(source.ip()),
            destination: address_bytes(destination.ip()),
            source_port: source.port().to_be_bytes(),
            destination_port: destination.port().to_be_bytes(),
            protocol: protocol.0,
            side: side as u8,
            reserved: [0; 2],
        }
    }

    /// Where the packet is met.
    #[inline(always)]
    #[must_use]
    pub const fn side(&self) -> Side {
        Side::from_raw(self.side)
    }

    /// Its protocol.
    #[inline(always)]
    #[must_use]
    pub const fn protocol(&self) -> Protocol {
        Protocol(self.protocol)
    }

    /// Its source.
    #[inline(always)]
    #[must_use]
    pub const fn source(&self) -> End {
        End {
            address: self.source,
            port: self.source_port,
        }
    }

    /// Its destination.
    #[inline(always)]
    #[must_use]
    pub const fn destination(&self) -> End {
        End {
            address: self.destination,
            port: self.destination_port,
        }
    }

    /// The end that this hook translates.
    #[inline(always)]
    #[must_use]
    pub const fn translated(&self) -> End {
        match self.side() {
            Side::In => self.destination(),
            Side::Out => self.source(),
        }
    }

    /// The packet after its translation, still as if met at the same hook.
    #[inline(always)]
    #[must_use]
    pub const fn with_translated(self, end: End) -> Self {
        match self.side() {
            Side::In => Self {
                destination: end.address,
                destination_port: end.port,
                ..self
            },
            Side::Out => Self {
                source: end.address,
                source_port: end.port,
                ..self
            },
        }
    }

    /// The packet that goes the other way between the same ends, met at the same hook.
    #[inline(always)]
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
            ..self
        }
    }

    /// The same packet, met at another hook.
    #[inline(always)]
    #[must_use]
    pub const fn at(self, side: Side) -> Self {
        Self {
            side: side as u8,
            ..self
        }
    }

    /// The answer to a packet that is translated to have this end, as the other hook meets it.
    /// [`Tuple::translated`] is the end that it is translated back to, so the answer of the
    /// answer is the packet.
    #[inline(always)]
    #[must_use]
    pub const fn answer(self, end: End) -> Self {
        let side = self.side().opposite();
        self.with_translated(end).reversed().at(side)
    }

    /// Addresses and ports as words, for hashing.
    #[inline(always)]
    #[must_use]
    pub const fn words(&self) -> [u64; 5] {
        // SAFETY: both are 40 bytes without invalid values.
        unsafe { core::mem::transmute(*self) }
    }
}

/// The ports of an echo message, source and destination: its identifier is the port of the end
/// that asks (RFC 5508 section 3.1), and the other end has none.
#[inline(always)]
#[must_use]
pub const fn echo_ports(echo: Echo, identifier: u16) -> (u16, u16) {
    match echo {
        Echo::Request => (identifier, 0),
        Echo::Reply => (0, identifier),
    }
}

/// An address of 16 bytes, IPv4 as v4-mapped, and a big-endian port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C, align(2))]
pub struct End {
    address: [u8; 16],
    port: [u8; 2],
}

crate::plain!(End: 18);

impl End {
    /// An end with a 16-byte address and a native port.
    #[inline(always)]
    #[must_use]
    pub const fn new(address: [u8; 16], port: u16) -> Self {
        Self {
            address,
            port: port.to_be_bytes(),
        }
    }

    /// Its address.
    #[inline(always)]
    #[must_use]
    pub const fn address(&self) -> [u8; 16] {
        self.address
    }

    /// Its port, as a native number.
    #[inline(always)]
    #[must_use]
    pub const fn port(&self) -> u16 {
        u16::from_be_bytes(self.port)
    }

    /// For people.
    #[must_use]
    pub const fn socket_addr(&self) -> SocketAddr {
        SocketAddr::new(ip_addr(self.address), self.port())
    }
}

impl From<SocketAddr> for End {
    fn from(address: SocketAddr) -> Self {
        Self::new(address_bytes(address.ip()), address.port())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_translated_back_to_what_the_packet_was_sent_to() {
        let [client, listen, back_end] = ["192.0.2.1:40000", "203.0.113.7:7000", "10.0.0.5:80"]
            .map(|end| end.parse::<SocketAddr>().unwrap());
        let call = Tuple::new(client, listen, Protocol::TCP, Side::In);
        let answer = call.answer(back_end.into());
        assert_eq!(
            answer,
            Tuple::new(back_end, client, Protocol::TCP, Side::Out)
        );
        assert_eq!(call.translated(), listen.into());
        assert_eq!(answer.answer(call.translated()), call);
    }
}

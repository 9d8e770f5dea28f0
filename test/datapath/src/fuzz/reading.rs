//! Parses a packet as the network sees it, by `etherparse` and by the letter of the
//! RFCs: the programs' own parser has no say in it.

use std::net::{IpAddr, SocketAddr};

use etherparse::{EtherType, IpNumber, Ipv4Slice, Ipv6Header, Ipv6HeaderSlice, TcpSlice};
use xdptun_common::flow::key::FlowKey;
use xdptun_lab::checksum;

use crate::path::{HTTPS, OWNED};

/// Length of an Ethernet header.
pub const LINK: usize = 14;
/// Tags that are read through; the programs promise no more (802.1ad has two).
const MAX_TAGS: usize = 2;
/// Extension headers that are read through; the programs promise no more.
const MAX_EXTENSIONS: usize = 8;

/// An IP packet that a strict receiver takes: every length fits.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    /// The frame up to the end of the IP packet, without padding.
    pub packet: &'a [u8],
    /// Where the IP header starts.
    pub l3: usize,
    /// Where the transport header starts.
    pub l4: usize,
    /// Where the byte is that names the transport protocol.
    pub protocol_at: usize,
    /// Which part of a datagram it is.
    pub part: Part,
    /// Sender and receiver.
    pub addresses: (IpAddr, IpAddr),
}

/// Which part of a datagram a packet holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Whole,
    /// The first fragment, with the transport header.
    First,
    /// Any other fragment.
    Later,
}

/// Reads a frame; `None` if no strict receiver would take it for an IP packet.
#[must_use]
pub fn read(frame: &[u8]) -> Option<Reading<'_>> {
    let mut l3 = LINK;
    let mut ether_type = type_before(frame, l3)?;
    for _ in 0..MAX_TAGS {
        if [EtherType::VLAN_TAGGED_FRAME, EtherType::PROVIDER_BRIDGING].contains(&ether_type) {
            l3 += 4;
            ether_type = type_before(frame, l3)?;
        }
    }
    match ether_type {
        EtherType::IPV4 => read_v4(frame, l3),
        EtherType::IPV6 => read_v6(frame, l3),
        _ => None,
    }
}

fn type_before(frame: &[u8], l3: usize) -> Option<EtherType> {
    let bytes = frame.get(l3 - 2..l3)?;
    Some(EtherType(u16::from_be_bytes([bytes[0], bytes[1]])))
}

fn read_v4(frame: &[u8], l3: usize) -> Option<Reading<'_>> {
    // The slice must live as long as its header, so only numbers leave it.
    let slice = Ipv4Slice::from_slice(frame.get(l3..)?).ok()?;
    let header = slice.header();
    let part = match (header.fragments_offset().value(), header.more_fragments()) {
        (0, false) => Part::Whole,
        (0, true) => Part::First,
        _ => Part::Later,
    };
    Some(Reading {
        packet: &frame[..l3 + usize::from(header.total_len())],
        l3,
        l4: l3 + usize::from(header.ihl()) * 4,
        protocol_at: l3 + 9,
        part,
        addresses: (
            header.source_addr().into(),
            header.destination_addr().into(),
        ),
    })
}

fn read_v6(frame: &[u8], l3: usize) -> Option<Reading<'_>> {
    let header = Ipv6HeaderSlice::from_slice(frame.get(l3..)?).ok()?;
    let (source, destination) = (header.source_addr(), header.destination_addr());
    // Linux drops such packets, and RFC 4291 gives them no meaning on the wire.
    if [source, destination]
        .iter()
        .any(|address| address.to_ipv4_mapped().is_some())
    {
        return None;
    }
    let l4 = l3 + Ipv6Header::LEN;
    Some(Reading {
        packet: frame.get(..l4 + usize::from(header.payload_length()))?,
        l3,
        l4,
        protocol_at: l3 + 6,
        part: Part::Whole,
        addresses: (source.into(), destination.into()),
    })
    .and_then(Reading::behind_extensions)
}

impl<'a> Reading<'a> {
    /// Goes on behind IPv6 extension headers (RFC 8200 section 4, RFC 7045).
    fn behind_extensions(mut self) -> Option<Self> {
        for _ in 0..MAX_EXTENSIONS {
            let header = &self.packet[self.l4..];
            let units = usize::from(*header.get(1).unwrap_or(&0));
            let len = match self.protocol() {
                IpNumber::IPV6_FRAGMENTATION_HEADER => {
                    let field = header.get(2..4)?;
                    let field = u16::from_be_bytes([field[0], field[1]]);
                    self.part = match (field >> 3, field & 1, self.part) {
                        (0, 0, part) => part,
                        (0, ..) => Part::First,
                        _ => Part::Later,
                    };
                    8
                }
                // RFC 4302 section 2.2: in words, less two.
                IpNumber::AUTHENTICATION_HEADER => (units + 2) * 4,
                IpNumber::IPV6_HEADER_HOP_BY_HOP
                | IpNumber::IPV6_ROUTE_HEADER
                | IpNumber::IPV6_DESTINATION_OPTIONS
                | IpNumber::MOBILITY_HEADER
                | IpNumber::HIP
                | IpNumber::SHIM6 => (units + 1) * 8,
                _ => return Some(self),
            };
            if header.len() < len {
                return None;
            }
            self.protocol_at = self.l4;
            self.l4 += len;
            if self.part == Part::Later {
                break;
            }
        }
        Some(self)
    }

    /// The transport protocol.
    #[must_use]
    pub fn protocol(&self) -> IpNumber {
        IpNumber(self.packet[self.protocol_at])
    }

    /// The transport header and what it carries.
    #[must_use]
    pub fn transport(&self) -> &'a [u8] {
        &self.packet[self.l4..]
    }

    /// Length of the IP packet in bytes.
    #[must_use]
    pub fn ip_len(&self) -> usize {
        self.packet.len() - self.l3
    }

    /// Where the length field of the IP header is.
    #[must_use]
    pub fn length_at(&self) -> usize {
        self.l3 + if self.is_v4() { 2 } else { 4 }
    }

    /// Whether it is IPv4.
    #[must_use]
    pub const fn is_v4(&self) -> bool {
        self.addresses.0.is_ipv4()
    }

    /// Whether it is not in a VLAN.
    #[must_use]
    pub const fn is_untagged(&self) -> bool {
        self.l3 == LINK
    }

    /// Whether it holds all of a packet of this protocol.
    #[must_use]
    pub fn is_whole(&self, protocol: IpNumber) -> bool {
        self.part == Part::Whole && self.protocol() == protocol
    }

    /// Source and destination socket, if it is UDP or TCP with its ports.
    #[must_use]
    pub fn sockets(&self) -> Option<(SocketAddr, SocketAddr)> {
        let has_ports = [IpNumber::UDP, IpNumber::TCP].contains(&self.protocol());
        if !has_ports || self.part == Part::Later {
            return None;
        }
        let ports = self.transport().first_chunk::<4>()?;
        let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
        Some((
            SocketAddr::new(self.addresses.0, port(0)),
            SocketAddr::new(self.addresses.1, port(2)),
        ))
    }

    /// Whether either port is one of ours.
    #[must_use]
    pub fn has_owned_port(&self) -> bool {
        self.sockets().is_some_and(|(source, destination)| {
            [source, destination]
                .iter()
                .any(|socket| [OWNED, HTTPS].contains(&socket.port()))
        })
    }

    /// Whether it is a UDP datagram of an owned port, or its first part.
    #[must_use]
    pub fn is_owned_datagram(&self) -> bool {
        self.protocol() == IpNumber::UDP && self.transport().len() >= 8 && self.has_owned_port()
    }

    /// The flow of a packet that this host sends.
    #[must_use]
    pub fn outbound(&self) -> Option<FlowKey> {
        self.sockets().map(|(from, to)| FlowKey::new(from, to))
    }

    /// The flow of a packet that this host receives.
    #[must_use]
    pub fn inbound(&self) -> Option<FlowKey> {
        self.outbound().map(FlowKey::reversed)
    }

    /// The segment, if it is all there.
    #[must_use]
    pub fn segment(&self) -> Option<TcpSlice<'a>> {
        if !self.is_whole(IpNumber::TCP) {
            return None;
        }
        TcpSlice::from_slice(self.transport()).ok()
    }

    /// Whether the IPv4 header checksum is right; IPv6 has none.
    #[must_use]
    pub fn header_sum_is_right(&self) -> bool {
        let header = self.l3..self.l3 + usize::from(self.packet[self.l3] & 0xf) * 4;
        !self.is_v4() || checksum::sum(&self.packet[header]) == 0xffff
    }

    /// Whether the checksum in the transport header is right, for a protocol
    /// with a pseudo-header.
    #[must_use]
    pub fn transport_sum_is_right(&self) -> bool {
        let (source, destination) = self.addresses;
        let protocol = self.protocol().0;
        checksum::transport_sum(source, destination, protocol, self.transport()) == 0xffff
    }

    /// Whether the checksum of a datagram is that of its pseudo-header alone, which says
    /// that the device shall add the rest.
    #[must_use]
    pub fn transport_sum_is_pending(&self) -> bool {
        let (source, destination) = self.addresses;
        let transport = self.transport();
        let nothing = vec![0; transport.len()];
        let sum = checksum::transport_sum(source, destination, self.protocol().0, &nothing);
        transport.get(6..8) == Some(&sum.to_be_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{flags, payload};
    use crate::path::{Family, OTHER, Path};

    #[test]
    fn finds_a_datagram_behind_everything_that_may_stand_before_it() {
        for family in Family::ALL {
            let path = Path::client(family);
            let plain = path.outbound().payload(payload(40));
            let headers = plain
                .clone()
                .ip_options(3)
                .extension(IpNumber::IPV6_HEADER_HOP_BY_HOP, 2)
                .extension(IpNumber::AUTHENTICATION_HEADER, 2);
            for packet in [plain, headers] {
                for frame in [packet.clone(), packet.clone().vlan(7)] {
                    let bytes = frame.padded_to(200).bytes();
                    let reading = read(&bytes).expect("a valid packet");
                    assert_eq!(reading.sockets(), Some((path.local, path.remote)));
                    assert_eq!(reading.transport().len(), 48);
                    assert!(reading.is_owned_datagram() && reading.part == Part::Whole);
                    assert!(reading.header_sum_is_right() && reading.transport_sum_is_right());
                }
            }
        }
    }

    #[test]
    fn tells_fragments_apart() {
        for family in Family::ALL {
            let datagram = Path::client(family).outbound().payload(payload(40));
            for (offset, more, part) in [
                (0, true, Part::First),
                (9, true, Part::Later),
                (9, false, Part::Later),
            ] {
                let bytes = datagram.clone().fragment(offset, more).bytes();
                let reading = read(&bytes).expect("a valid packet");
                assert_eq!(reading.part, part);
                assert_eq!(reading.is_owned_datagram(), part == Part::First);
            }
        }
    }

    #[test]
    fn any_changed_byte_of_a_segment_is_noticed() {
        for family in Family::ALL {
            let path = Path::new(family, OTHER, OTHER);
            let segment = path.outbound().payload(payload(9));
            let bytes = segment.segment(flags::DATA, 1, 2).bytes();
            assert!(!read(&bytes).expect("a valid packet").has_owned_port());
            for at in LINK..bytes.len() {
                let mut bytes = bytes.clone();
                bytes[at] ^= 0x11;
                let is_right = read(&bytes).is_some_and(|reading| {
                    reading.segment().is_some()
                        && reading.header_sum_is_right()
                        && reading.transport_sum_is_right()
                });
                // Traffic class, flow label and hop limit are under no checksum.
                let unprotected = family == Family::V6 && [14, 15, 16, 17, 21].contains(&at);
                assert_eq!(is_right, unprotected && at != 14, "byte {at}");
            }
        }
    }

    #[test]
    fn a_packet_longer_than_its_frame_is_none() {
        for family in Family::ALL {
            let bytes = Path::client(family).outbound().payload(payload(9)).bytes();
            assert!(read(&bytes).is_some());
            assert!(read(&bytes[..bytes.len() - 1]).is_none());
        }
    }
}

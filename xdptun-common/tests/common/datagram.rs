//! Datagrams built by etherparse, and segments read by it: the other half of
//! each comparison is not code of this crate.

use etherparse::{IpHeaders, IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header, PacketBuilder};
use proptest::prelude::*;

/// What of an IP header is random; the rest follows from the payload.
#[derive(Clone, Debug)]
pub struct Network {
    pub source: [u8; 16],
    pub destination: [u8; 16],
    pub traffic_class: u8,
    /// IPv4 identification, IPv6 flow label.
    pub label: u16,
    pub dont_fragment: bool,
    pub hop_limit: u8,
    pub ports: (u16, u16),
}

pub fn network() -> impl Strategy<Value = Network> {
    (
        any::<[u8; 16]>(),
        any::<[u8; 16]>(),
        any::<(u8, u16, bool)>(),
        1..=u8::MAX,
        any::<(u16, u16)>(),
    )
        .prop_map(
            |(source, destination, (traffic_class, label, dont_fragment), hop_limit, ports)| {
                Network {
                    source,
                    destination,
                    traffic_class,
                    label,
                    dont_fragment,
                    hop_limit,
                    ports,
                }
            },
        )
}

impl Network {
    /// One with nothing special in it.
    pub fn example() -> Self {
        Self {
            source: *b"\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\x0a\x01\x02\x03",
            destination: *b"\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\xc0\xa8\x07\x09",
            traffic_class: 0xb9,
            label: 0x1234,
            dont_fragment: true,
            hop_limit: 63,
            ports: (51820, 8000),
        }
    }

    /// An IPv4 packet with a UDP datagram; the last four bytes of each address count.
    pub fn ipv4_datagram(&self, payload: &[u8]) -> Vec<u8> {
        let [.., a, b, c, d] = self.source;
        let [.., e, f, g, h] = self.destination;
        let mut header =
            Ipv4Header::new(0, self.hop_limit, IpNumber::UDP, [a, b, c, d], [e, f, g, h])
                .expect("an empty payload fits");
        header.dscp = (self.traffic_class >> 2).try_into().expect("six bits");
        header.ecn = (self.traffic_class & 3).try_into().expect("two bits");
        header.identification = self.label;
        header.dont_fragment = self.dont_fragment;
        self.datagram(IpHeaders::Ipv4(header, Default::default()), payload)
    }

    /// An IPv6 packet with a UDP datagram.
    pub fn ipv6_datagram(&self, payload: &[u8]) -> Vec<u8> {
        let header = Ipv6Header {
            traffic_class: self.traffic_class,
            flow_label: Ipv6FlowLabel::try_new(u32::from(self.label) << 4).expect("twenty bits"),
            payload_length: 0,
            next_header: IpNumber::UDP,
            hop_limit: self.hop_limit,
            source: self.source,
            destination: self.destination,
        };
        self.datagram(IpHeaders::Ipv6(header, Default::default()), payload)
    }

    fn datagram(&self, headers: IpHeaders, payload: &[u8]) -> Vec<u8> {
        let (source, destination) = self.ports;
        let builder = PacketBuilder::ip(headers).udp(source, destination);
        let mut packet = Vec::new();
        builder
            .write(&mut packet, payload)
            .expect("the payload fits into a datagram");
        packet
    }
}

//! Frames, field by field.
//!
//! Checksums are those of `etherparse`, computed over the finished packet:
//! nothing of the arithmetic under test is used to judge it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use etherparse::{
    IpDscp, IpEcn, IpFragOffset, IpNumber, Ipv4Header, Ipv4Options, Ipv6FlowLabel, Ipv6Header,
    TcpHeader, UdpHeader,
};

use xdptun_common::tunnel::sent::{SentSegment, tag};
use xdptun_common::tunnel::veil::VeilKey;
use xdptun_common::wire::IpFields;
use xdptun_common::{Plain, read_plain, wire};

use crate::moment::{SECRET, VEIL_KEY};
use crate::path::mac;
use crate::veil::veiled;

/// TCP control bits (RFC 9293 section 3.1).
pub mod flags {
    /// No more data.
    pub const FIN: u8 = 0x01;
    /// Synchronise sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Reset.
    pub const RST: u8 = 0x04;
    /// Push: here, "this is a datagram".
    pub const PSH: u8 = 0x08;
    /// The acknowledgement number counts.
    pub const ACK: u8 = 0x10;
    /// The urgent pointer counts.
    pub const URG: u8 = 0x20;
    /// Congestion echo (RFC 3168).
    pub const ECE: u8 = 0x40;
    /// Congestion window reduced (RFC 3168).
    pub const CWR: u8 = 0x80;
    /// The flags of every segment with data.
    pub const DATA: u8 = PSH | ACK;
}

/// The IP header that a packet begins with.
fn ip<I: Plain>(packet: &[u8]) -> I {
    read_plain(packet).expect("an IP packet")
}

/// Bytes that look random and are the same each time.
#[must_use]
pub fn payload(len: usize) -> Vec<u8> {
    // Knuth's multiplicative hash: no byte pattern that a checksum would miss.
    (0..len)
        .map(|at| (at as u32 + 1).wrapping_mul(2_654_435_761).to_be_bytes()[0])
        .collect()
}

/// An IPv6 extension header without its first byte's value, which the builder
/// fills in.
pub type Extension = (IpNumber, Vec<u8>);

/// The bit of the window that says that a datagram is padded.
pub const PADDED: u16 = 0x0400;

/// A datagram that was cut into fragments; see [`Packet::fragmented`].
pub type Fragmented = [u8; 40];

/// A frame under construction. Every length and checksum that is not set by
/// hand is right.
#[derive(Clone, Debug)]
pub struct Packet {
    link: Option<[[u8; 6]; 2]>,
    tags: Vec<[u16; 2]>,
    network: Network,
    transport: Transport,
    payload: Vec<u8>,
    transport_len: Option<usize>,
    frame_len: usize,
}

#[derive(Clone, Debug)]
enum Network {
    V4(Ipv4Header),
    V6(Ipv6Header, Vec<Extension>),
}

#[derive(Clone, Debug)]
enum Transport {
    Udp {
        source: u16,
        destination: u16,
        has_checksum: bool,
        length: Option<u16>,
    },
    Tcp(Box<TcpHeader>),
    Other(IpNumber),
}

impl Packet {
    /// A UDP datagram without payload.
    #[must_use]
    pub fn datagram(from: SocketAddr, to: SocketAddr) -> Self {
        let mut packet = Self::other(from.ip(), to.ip(), IpNumber::UDP);
        packet.transport = Transport::Udp {
            source: from.port(),
            destination: to.port(),
            has_checksum: true,
            length: None,
        };
        packet
    }

    /// A packet of any other protocol; its payload starts with that protocol's
    /// header.
    ///
    /// # Panics
    ///
    /// If the addresses are of different families.
    #[must_use]
    pub fn other(from: IpAddr, to: IpAddr, protocol: IpNumber) -> Self {
        let network = match (from, to) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Network::V4(Ipv4Header {
                time_to_live: 64,
                dont_fragment: true,
                source: source.octets(),
                destination: destination.octets(),
                ..Ipv4Header::default()
            }),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Network::V6(
                Ipv6Header {
                    hop_limit: 64,
                    source: source.octets(),
                    destination: destination.octets(),
                    ..Ipv6Header::default()
                },
                Vec::new(),
            ),
            _ => panic!("{from} and {to} are of different families"),
        };
        Self {
            link: Some([mac(to), mac(from)]),
            tags: Vec::new(),
            network,
            transport: Transport::Other(protocol),
            payload: Vec::new(),
            transport_len: None,
            frame_len: 0,
        }
    }

    /// With the link header of another packet.
    ///
    /// # Panics
    ///
    /// If that has none.
    #[must_use]
    pub fn linked_as(mut self, other: &Self) -> Self {
        assert!(other.link.is_some(), "no link header");
        self.link = other.link;
        self
    }

    /// The same packet as a TCP segment: IP header and payload stay.
    #[must_use]
    pub fn segment(mut self, flags: u8, sequence: u32, acknowledgment: u32) -> Self {
        let (source, destination) = match &self.transport {
            Transport::Udp {
                source,
                destination,
                ..
            } => (*source, *destination),
            Transport::Tcp(tcp) => (tcp.source_port, tcp.destination_port),
            Transport::Other(protocol) => panic!("{protocol:?} has no ports"),
        };
        let mut tcp = TcpHeader::new(source, destination, sequence, 0xf000);
        tcp.acknowledgment_number = acknowledgment;
        tcp.fin = flags & flags::FIN != 0;
        tcp.syn = flags & flags::SYN != 0;
        tcp.rst = flags & flags::RST != 0;
        tcp.psh = flags & flags::PSH != 0;
        tcp.ack = flags & flags::ACK != 0;
        tcp.urg = flags & flags::URG != 0;
        tcp.ece = flags & flags::ECE != 0;
        tcp.cwr = flags & flags::CWR != 0;
        self.transport = Transport::Tcp(Box::new(tcp));
        self
    }

    /// The segment that carries this datagram. It has DF; a bit of its window says whether
    /// the datagram had.
    #[must_use]
    pub fn carried(mut self, sequence: u32, acknowledgment: u32, window: u16) -> Self {
        let bit = match &mut self.network {
            Network::V4(ip) if !ip.dont_fragment => {
                ip.dont_fragment = true;
                0x0200
            }
            _ => 0,
        };
        self.segment(flags::DATA, sequence, acknowledgment)
            .window(window | bit)
    }

    /// This segment under the veil of [`VEIL_KEY`]. Its window says whether its datagram is padded.
    ///
    /// # Panics
    ///
    /// If it is no segment.
    #[must_use]
    pub fn veiled(self) -> Self {
        self.veiled_by(VEIL_KEY)
    }

    /// The same with another key.
    ///
    /// # Panics
    ///
    /// If it is no segment.
    #[must_use]
    pub fn veiled_by(mut self, key: VeilKey) -> Self {
        let Transport::Tcp(tcp) = &mut self.transport else {
            panic!("no segment: {self:?}");
        };
        let numbers = (tcp.sequence_number, tcp.acknowledgment_number);
        let is_padded = tcp.window_size & PADDED != 0;
        // Short, or with the last byte of a block of 64 KiB.
        let end = (tcp.sequence_number & 0xffff) as usize + self.payload.len();
        tcp.psh = self.payload.len() < 1200 || end >= 0x1_0000;
        let payload = veiled(key, &self.payload, numbers, is_padded);
        self.payload(payload)
    }

    /// The segment that carries this part of the datagram with this identification: `offset`
    /// units of eight bytes behind its start, `len` of them and so many bytes.
    ///
    /// # Panics
    ///
    /// If the datagram has no such part.
    #[must_use]
    pub fn carried_part(self, id: u32, part: (u16, usize, bool), numbers: (u32, u32, u16)) -> Self {
        let (offset, len, more) = part;
        let (sequence, acknowledgment, window) = numbers;
        let mut whole = self.clone().whole();
        if offset == 0 {
            whole[..8].copy_from_slice(&self.on_the_way());
        }
        let id = match &self.network {
            Network::V4(_) => u32::from(id as u16),
            Network::V6(..) => id,
        };
        let start = usize::from(offset) * 8;
        let [high, low] = (offset << 3 | u16::from(more)).to_be_bytes();
        let header = [&[17, 0, high, low][..], &id.to_be_bytes()].concat();
        self.payload([&header, &whole[start..start + len]].concat())
            .segment(flags::DATA, sequence, acknowledgment)
            .window(window | 0x0100)
    }

    /// This part of the datagram, as a fragment.
    ///
    /// # Panics
    ///
    /// If the datagram has no such part.
    #[must_use]
    pub fn part(mut self, id: u32, (offset, len, more): (u16, usize, bool)) -> Self {
        let start = usize::from(offset) * 8;
        self.payload = self.clone().whole()[start..start + len].to_vec();
        self.transport = Transport::Other(IpNumber::UDP);
        self.fragment_of(id, offset, more)
    }

    /// UDP header and payload.
    fn whole(self) -> Vec<u8> {
        let link_and_ip = match &self.network {
            Network::V4(_) => 34,
            Network::V6(..) => 54,
        };
        self.bytes()[link_and_ip..].to_vec()
    }

    /// The UDP header as a first fragment's is on the way: with the checksum that the datagram has
    /// if all addresses and ports are zero.
    fn on_the_way(&self) -> [u8; 8] {
        let nowhere: SocketAddr = match &self.network {
            Network::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            Network::V6(..) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let mut other = Self::datagram(nowhere, nowhere).payload(self.payload.clone());
        if let (
            Transport::Udp { has_checksum, .. },
            Transport::Udp {
                has_checksum: own, ..
            },
        ) = (&mut other.transport, &self.transport)
        {
            *has_checksum = *own;
        }
        let whole = other.whole();
        whole[..8].try_into().expect("a UDP header")
    }

    /// The payload.
    #[must_use]
    pub fn payload(mut self, payload: impl Into<Vec<u8>>) -> Self {
        self.payload = payload.into();
        self
    }

    /// The window field.
    #[must_use]
    pub fn window(mut self, window: u16) -> Self {
        self.tcp().window_size = window;
        self
    }

    /// The segment with a window that says more, such as [`asking`](xdptun_common::tunnel::window::asking).
    #[must_use]
    pub fn marked(mut self, mark: impl FnOnce(u16) -> u16) -> Self {
        let tcp = self.tcp();
        tcp.window_size = mark(tcp.window_size);
        self
    }

    /// The segment with a sequence number that lies so far ahead.
    #[must_use]
    pub fn sequence_ahead(mut self, by: u32) -> Self {
        let tcp = self.tcp();
        tcp.sequence_number = tcp.sequence_number.wrapping_add(by);
        self
    }

    /// The acknowledgement number.
    #[must_use]
    pub fn acknowledging(mut self, number: u32) -> Self {
        self.tcp().acknowledgment_number = number;
        self
    }

    /// TCP options, a multiple of four bytes.
    #[must_use]
    pub fn options(mut self, options: &[u8]) -> Self {
        self.tcp()
            .set_options_raw(options)
            .expect("at most 40 bytes of options");
        self
    }

    fn tcp(&mut self) -> &mut TcpHeader {
        match &mut self.transport {
            Transport::Tcp(tcp) => tcp,
            other => panic!("not a segment: {other:?}"),
        }
    }

    /// No UDP checksum.
    #[must_use]
    pub fn without_checksum(mut self) -> Self {
        if let Transport::Udp { has_checksum, .. } = &mut self.transport {
            *has_checksum = false;
        }
        self
    }

    /// A UDP length field that need not be true.
    #[must_use]
    pub fn udp_length(mut self, claimed: u16) -> Self {
        if let Transport::Udp { length, .. } = &mut self.transport {
            *length = Some(claimed);
        }
        self
    }

    /// The length of transport header and payload according to the IP header.
    #[must_use]
    pub fn transport_len(mut self, claimed: usize) -> Self {
        self.transport_len = Some(claimed);
        self
    }

    /// The TOS or traffic class octet.
    #[must_use]
    pub fn tos(mut self, tos: u8) -> Self {
        match &mut self.network {
            Network::V4(ip) => {
                ip.dscp = IpDscp::try_new(tos >> 2).expect("six bits");
                ip.ecn = IpEcn::try_new(tos & 3).expect("two bits");
            }
            Network::V6(ip, _) => ip.traffic_class = tos,
        }
        self
    }

    /// The flow label; IPv4 has none.
    ///
    /// # Panics
    ///
    /// If it has more than 20 bits.
    #[must_use]
    pub fn flow_label(mut self, label: u32) -> Self {
        if let Network::V6(ip, _) = &mut self.network {
            ip.flow_label = Ipv6FlowLabel::try_new(label).expect("20 bits");
        }
        self
    }

    /// The time to live or hop limit.
    #[must_use]
    pub fn ttl(mut self, ttl: u8) -> Self {
        match &mut self.network {
            Network::V4(ip) => ip.time_to_live = ttl,
            Network::V6(ip, _) => ip.hop_limit = ttl,
        }
        self
    }

    /// The identification (IPv4) or flow label (IPv6).
    #[must_use]
    pub fn id(mut self, id: u16) -> Self {
        match &mut self.network {
            Network::V4(ip) => ip.identification = id,
            Network::V6(ip, _) => {
                ip.flow_label = Ipv6FlowLabel::try_new(id.into()).expect("sixteen of twenty bits");
            }
        }
        self
    }

    /// The identification; IPv6 has none.
    #[must_use]
    pub const fn identified(mut self, id: u16) -> Self {
        if let Network::V4(ip) = &mut self.network {
            ip.identification = id;
        }
        self
    }

    /// The fields of its IP header that the sender chooses.
    #[must_use]
    pub fn fields(&self) -> IpFields {
        match &self.network {
            Network::V4(ip) => IpFields {
                class: ip.dscp.value() << 2 | ip.ecn.value(),
                hop_limit: ip.time_to_live,
                identification: ip.identification,
                label: 0,
            },
            Network::V6(ip, _) => IpFields {
                class: ip.traffic_class,
                hop_limit: ip.hop_limit,
                identification: 0,
                label: ip.flow_label.value(),
            },
        }
    }

    /// IPv4 that routers may fragment; nothing in IPv6.
    #[must_use]
    pub fn without_df(mut self) -> Self {
        if let Network::V4(ip) = &mut self.network {
            ip.dont_fragment = false;
        }
        self
    }

    /// A fragment that starts at `offset` (in units of eight bytes).
    #[must_use]
    pub fn fragment(self, offset: u16, more: bool) -> Self {
        self.fragment_of(0x1234_5678, offset, more)
    }

    /// A fragment of the datagram with this identification, of which IPv4 has
    /// the low half only.
    #[must_use]
    pub fn fragment_of(mut self, id: u32, offset: u16, more: bool) -> Self {
        match &mut self.network {
            Network::V4(ip) => {
                ip.identification = id as u16;
                ip.dont_fragment = false;
                ip.more_fragments = more;
                ip.fragment_offset = IpFragOffset::try_new(offset).expect("thirteen bits");
            }
            Network::V6(_, extensions) => {
                let [high, low] = (offset << 3 | u16::from(more)).to_be_bytes();
                let body = [&[0, 0, high, low][..], &id.to_be_bytes()].concat();
                extensions.push((IpNumber::IPV6_FRAGMENTATION_HEADER, body));
            }
        }
        self
    }

    /// The key of a fragment's datagram: both addresses, IPv4 as v4-mapped,
    /// the identification in four bytes, IPv4's protocol, and room for the way it
    /// goes, which a row fills in.
    #[must_use]
    pub fn fragmented(&self) -> Fragmented {
        let (source, destination, id, protocol) = match &self.network {
            Network::V4(ip) => (
                Ipv4Addr::from(ip.source).to_ipv6_mapped().octets(),
                Ipv4Addr::from(ip.destination).to_ipv6_mapped().octets(),
                [0; 2].into_iter().chain(ip.identification.to_be_bytes()),
                self.transport().0.0,
            ),
            Network::V6(ip, extensions) => {
                let fragment =
                    |(number, _): &&Extension| *number == IpNumber::IPV6_FRAGMENTATION_HEADER;
                let (_, body) = extensions.iter().find(fragment).expect("a fragment");
                let half = |at: usize| [body[at], body[at + 1]];
                (
                    ip.source,
                    ip.destination,
                    half(4).into_iter().chain(half(6)),
                    0,
                )
            }
        };
        let named = source.into_iter().chain(destination).chain(id);
        let bytes: Vec<u8> = named.chain([protocol, 0, 0, 0]).collect();
        bytes.try_into().expect("40 bytes")
    }

    /// IPv4 options: so many words of bytes that no two are alike.
    #[must_use]
    pub fn ip_options(self, words: usize) -> Self {
        self.v4_options(&payload(words * 4))
    }

    /// These IPv4 options, in whole words.
    #[must_use]
    pub fn v4_options(mut self, options: &[u8]) -> Self {
        if let Network::V4(ip) = &mut self.network {
            ip.options = Ipv4Options::try_from(options).expect("ten words at most");
        }
        self
    }

    /// One more IPv6 extension header of `units` times eight bytes, all of them
    /// one option.
    #[must_use]
    pub fn extension(mut self, number: IpNumber, units: u8) -> Self {
        if let Network::V6(_, extensions) = &mut self.network {
            let mut body = payload(usize::from(units) * 8);
            // The authentication header counts in words (RFC 4302 section 2.2).
            let authentication = number == IpNumber::AUTHENTICATION_HEADER;
            body[1] = if authentication {
                units * 2 - 2
            } else {
                units - 1
            };
            // PadN (RFC 8200 section 4.2) with bytes that are not zero; to a
            // routing header, type 1, nothing left.
            body[2] = 1;
            body[3] = match number {
                IpNumber::IPV6_ROUTE_HEADER => 0,
                _ => units * 8 - 4,
            };
            extensions.push((number, body));
        }
        self
    }

    /// One more 802.1Q tag in the frame.
    #[must_use]
    pub fn vlan(self, id: u16) -> Self {
        self.tag(0x8100, id)
    }

    /// One more tag in the frame, behind those that are there; its type names
    /// the kind: 0x8100 (802.1Q), 0x88a8 (802.1ad).
    #[must_use]
    pub fn tag(mut self, ether_type: u16, id: u16) -> Self {
        self.tags.push([ether_type, id]);
        self
    }

    /// No Ethernet header, as on a TUN device.
    #[must_use]
    pub fn without_link(mut self) -> Self {
        self.link = None;
        self
    }

    /// The station that the frame goes to.
    #[must_use]
    pub fn link_to(mut self, destination: [u8; 6]) -> Self {
        if let Some(link) = &mut self.link {
            link[0] = destination;
        }
        self
    }

    /// The station that the frame comes from.
    #[must_use]
    pub fn link_from(mut self, source: [u8; 6]) -> Self {
        if let Some(link) = &mut self.link {
            link[1] = source;
        }
        self
    }

    /// Padding up to a frame of `len` bytes.
    #[must_use]
    pub fn padded_to(mut self, len: usize) -> Self {
        self.frame_len = len;
        self
    }

    /// The Ethernet header: fourteen zeros if there is none.
    #[must_use]
    pub fn link(&self) -> [u8; 14] {
        let mut link = [0; 14];
        if let Some([destination, source]) = self.link {
            link[..6].copy_from_slice(&destination);
            link[6..12].copy_from_slice(&source);
            link[12..].copy_from_slice(&self.ether_type());
        }
        link
    }

    const fn ether_type(&self) -> [u8; 2] {
        match self.network {
            Network::V4(_) => [0x08, 0x00],
            Network::V6(..) => [0x86, 0xdd],
        }
    }

    /// The finished frame.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut frame = Vec::new();
        if let Some([destination, source]) = self.link {
            frame.extend(destination);
            frame.extend(source);
            frame.extend(
                self.tags
                    .as_flattened()
                    .iter()
                    .flat_map(|n| n.to_be_bytes()),
            );
            frame.extend(self.ether_type());
        }
        let (protocol, transport) = self.transport();
        let transport_len = transport.len() + self.payload.len();
        let transport_len = self.transport_len.unwrap_or(transport_len);
        frame.extend(self.network(protocol, transport_len));
        frame.extend(transport);
        frame.extend(&self.payload);
        // The padding is not zero, so that a program that takes it for data shows.
        while frame.len() < self.frame_len {
            frame.push(0xaa);
        }
        frame
    }

    /// The IP packet as an ICMP error quotes it: its headers up to the transport
    /// header, and `len` bytes from there.
    #[must_use]
    pub fn quote(&self, len: usize) -> Vec<u8> {
        let whole = self.clone().without_link().bytes();
        let (_, transport) = self.transport();
        let after_ip = whole.len() - self.payload.len() - transport.len();
        whole[..after_ip + len].to_vec()
    }

    /// The record that the programs keep of this segment if it left at this tick.
    ///
    /// # Panics
    ///
    /// If it is no segment.
    #[must_use]
    pub fn remembered(&self, tick: u32) -> SentSegment {
        let whole = self.clone().without_link().bytes();
        let (_, transport) = self.transport();
        let at = whole.len() - self.payload.len() - transport.len();
        let tcp: wire::TcpHeader = read_plain(&whole[at..]).expect("a segment");
        let ports = (tcp.source(), tcp.destination());
        let tag = match &self.network {
            Network::V4(_) => tag::<wire::Ipv4Header>(*SECRET, &ip(&whole), ports),
            Network::V6(..) => tag::<wire::Ipv6Header>(*SECRET, &ip(&whole), ports),
        };
        SentSegment {
            sequence: tcp.sequence(),
            tag,
            at: tick,
            len: u16::try_from(whole.len() - at).expect("a segment"),
            checksum: tcp.checksum(),
        }
    }

    fn network(&self, protocol: IpNumber, transport_len: usize) -> Vec<u8> {
        match &self.network {
            Network::V4(ip) => {
                let mut ip = ip.clone();
                ip.protocol = protocol;
                ip.set_payload_len(transport_len).expect("an IPv4 length");
                ip.header_checksum = ip.calc_header_checksum();
                ip.to_bytes().to_vec()
            }
            Network::V6(ip, extensions) => {
                let mut ip = ip.clone();
                let mut body = Vec::new();
                let mut names: Vec<IpNumber> = extensions.iter().map(|(name, _)| *name).collect();
                names.push(protocol);
                ip.next_header = names[0];
                for ((_, extension), next) in extensions.iter().zip(&names[1..]) {
                    body.push(next.0);
                    body.extend(&extension[1..]);
                }
                ip.set_payload_length(body.len() + transport_len)
                    .expect("an IPv6 length");
                [ip.to_bytes().to_vec(), body].concat()
            }
        }
    }

    fn transport(&self) -> (IpNumber, Vec<u8>) {
        match &self.transport {
            Transport::Other(protocol) => (*protocol, Vec::new()),
            Transport::Udp {
                source,
                destination,
                has_checksum,
                length,
            } => {
                let true_length = u16::try_from(UdpHeader::LEN + self.payload.len());
                let mut udp = UdpHeader {
                    source_port: *source,
                    destination_port: *destination,
                    length: length.unwrap_or(true_length.expect("a UDP length")),
                    checksum: 0,
                };
                if *has_checksum {
                    udp.checksum = match &self.network {
                        Network::V4(ip) => {
                            udp.calc_checksum_ipv4_raw(ip.source, ip.destination, &self.payload)
                        }
                        Network::V6(ip, _) => {
                            udp.calc_checksum_ipv6_raw(ip.source, ip.destination, &self.payload)
                        }
                    }
                    .expect("short enough for a checksum");
                }
                (IpNumber::UDP, udp.to_bytes().to_vec())
            }
            Transport::Tcp(tcp) => {
                let mut tcp = tcp.clone();
                tcp.checksum = match &self.network {
                    Network::V4(ip) => {
                        tcp.calc_checksum_ipv4_raw(ip.source, ip.destination, &self.payload)
                    }
                    Network::V6(ip, _) => {
                        tcp.calc_checksum_ipv6_raw(ip.source, ip.destination, &self.payload)
                    }
                }
                .expect("short enough for a checksum");
                (IpNumber::TCP, tcp.to_bytes().to_vec())
            }
        }
    }
}

impl From<Packet> for Vec<u8> {
    fn from(packet: Packet) -> Self {
        packet.bytes()
    }
}

impl From<&Packet> for Vec<u8> {
    fn from(packet: &Packet) -> Self {
        packet.bytes()
    }
}

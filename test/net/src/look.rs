//! The fields of a segment that an observer on the wire sees, and the differences
//! between two segments.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;

use etherparse::{IpHeaders, TcpHeader};
use xdptun_lab::{Frame, Kind};

use crate::packet::TcpPacket;

/// The TCP segments with this port at either end.
///
/// # Panics
///
/// At a segment that its own fields do not give again: then a checksum or a length is
/// wrong, or a reserved bit is set.
pub fn tcp_packets(frames: &[Frame], port: u16) -> Vec<TcpPacket> {
    let all = frames.iter().filter_map(|frame| {
        let packet = TcpPacket::read(Kind::Tap, &frame.bytes).ok()?;
        let ours = [packet.tcp.source_port, packet.tcp.destination_port].contains(&port);
        ours.then_some((frame, packet))
    });
    let checked = all.map(|(frame, packet)| {
        assert_eq!(packet.write(), frame.bytes, "{:?}", packet.tcp);
        packet
    });
    checked.collect()
}

/// The base of a segment's numbers.
#[derive(Debug, Default, Clone, Copy)]
pub struct Base {
    /// For the IPv4 identification.
    pub identification: u16,
    /// For the sequence number.
    pub sequence: u32,
    /// For the acknowledgement number.
    pub acknowledged: u32,
}

impl Base {
    /// The numbers of this segment itself; what it acknowledges is counted from a
    /// number of the peer.
    pub fn own(packet: &TcpPacket, acknowledged: u32) -> Self {
        Self {
            identification: identification(packet),
            sequence: packet.tcp.sequence_number,
            acknowledged,
        }
    }
}

/// Fields with their values as text, in the order in which they are shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Look(Vec<(&'static str, String)>);

impl Look {
    /// Fields that are not those of one segment.
    pub fn with(fields: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        Self(fields.into_iter().collect())
    }

    /// Where no segment came: it has no field but the first.
    pub fn nothing() -> Self {
        Self::with([(FLAGS, "no answer".to_owned())])
    }

    /// All fields of a segment but checksums, ports and the flow label's value. Numbers
    /// are those after `base`.
    pub fn of(packet: &TcpPacket, base: Base) -> Self {
        let mut fields = vec![(FLAGS, flags(&packet.tcp))];
        match &packet.ip {
            IpHeaders::Ipv4(ip, _) => {
                let id = ip.identification.wrapping_sub(base.identification);
                let tos = ip.dscp.value() << 2 | ip.ecn.value();
                fields.extend([
                    ("TOS", format!("{tos:#04x}")),
                    ("DF", ip.dont_fragment.to_string()),
                    ("ID", id.to_string()),
                    ("TTL", ip.time_to_live.to_string()),
                    ("IP options", format!("{:02x?}", ip.options.as_slice())),
                ]);
            }
            IpHeaders::Ipv6(ip, _) => fields.extend([
                ("traffic class", format!("{:#04x}", ip.traffic_class)),
                ("hop limit", ip.hop_limit.to_string()),
            ]),
        }
        let tcp = &packet.tcp;
        let sequence = tcp.sequence_number.wrapping_sub(base.sequence);
        let acknowledged = tcp.acknowledgment_number.wrapping_sub(base.acknowledged);
        let length = packet.write().len() - packet.link.len();
        fields.extend([
            ("length", length.to_string()),
            ("sequence", sequence.to_string()),
            ("acknowledgement", acknowledged.to_string()),
            ("window", tcp.window_size.to_string()),
            ("urgent pointer", tcp.urgent_pointer.to_string()),
            ("options", options(tcp.options.as_slice())),
            ("payload", format!("{:02x?}", packet.payload)),
        ]);
        Self(fields)
    }

    /// The same with one more field.
    pub fn and(mut self, field: &'static str, value: String) -> Self {
        self.0.push((field, value));
        self
    }

    fn get(&self, field: &str) -> &str {
        let found = self.0.iter().find(|(name, _)| *name == field);
        found.map_or("-", |(_, value)| value)
    }

    /// The fields in which two differ. Where only one of them is a segment, no more
    /// than that.
    fn differing(&self, other: &Self) -> Vec<&'static str> {
        let mut fields: Vec<&'static str> = Vec::new();
        for (field, _) in self.0.iter().chain(&other.0) {
            if !fields.contains(field) && self.get(field) != other.get(field) {
                fields.push(field);
            }
        }
        if [self, other].contains(&&Self::nothing()) {
            fields.truncate(1);
        }
        fields
    }
}

/// The first field of every segment.
const FLAGS: &str = "flags";

/// The IPv4 identification; zero for IPv6.
pub fn identification(packet: &TcpPacket) -> u16 {
    match &packet.ip {
        IpHeaders::Ipv4(ip, _) => ip.identification,
        IpHeaders::Ipv6(..) => 0,
    }
}

/// The IPv6 flow label; `None` for IPv4.
pub fn flow_label(packet: &TcpPacket) -> Option<u32> {
    match &packet.ip {
        IpHeaders::Ipv4(..) => None,
        IpHeaders::Ipv6(ip, _) => Some(ip.flow_label.value()),
    }
}

/// The sender's address.
pub fn sender(packet: &TcpPacket) -> IpAddr {
    match &packet.ip {
        IpHeaders::Ipv4(ip, _) => ip.source.into(),
        IpHeaders::Ipv6(ip, _) => ip.source.into(),
    }
}

/// The receiver's address.
pub fn receiver(packet: &TcpPacket) -> IpAddr {
    match &packet.ip {
        IpHeaders::Ipv4(ip, _) => ip.destination.into(),
        IpHeaders::Ipv6(ip, _) => ip.destination.into(),
    }
}

/// Tells zero from the random numbers that another system would have there. One of
/// them is zero now and then, two of a few are not.
pub fn zero_or_not(numbers: impl IntoIterator<Item = u32>) -> String {
    let zeros = numbers.into_iter().filter(|number| *number == 0).count();
    if zeros > 1 { "0" } else { "not 0" }.to_owned()
}

/// The flags in the notation of tcpdump, in the order in which they are given there.
pub fn flags(tcp: &TcpHeader) -> String {
    let all = [
        (tcp.fin, 'F'),
        (tcp.syn, 'S'),
        (tcp.rst, 'R'),
        (tcp.psh, 'P'),
        (tcp.ack, '.'),
        (tcp.urg, 'U'),
        (tcp.ece, 'E'),
        (tcp.cwr, 'W'),
        (tcp.ns, 'e'),
    ];
    all.iter().filter(|(set, _)| *set).map(|(_, c)| c).collect()
}

/// The options in their order, with every byte.
fn options(mut bytes: &[u8]) -> String {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let (text, rest) = match bytes {
            [1, rest @ ..] => ("NOP".to_owned(), rest),
            [2, 4, high, low, rest @ ..] => {
                let mss = u16::from_be_bytes([*high, *low]);
                (format!("MSS {mss}"), rest)
            }
            [3, 3, shift, rest @ ..] => (format!("WS {shift}"), rest),
            [4, 2, rest @ ..] => ("SACK".to_owned(), rest),
            other => (format!("{other:02x?}"), &[][..]),
        };
        all.push(text);
        bytes = rest;
    }
    match all.is_empty() {
        true => "none".to_owned(),
        false => all.join(", "),
    }
}

/// A difference from Linux that is known.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// The kind of segment that has it.
    pub kind: &'static str,
    /// The field.
    pub field: &'static str,
    /// Why it stays.
    pub reason: &'static str,
}

/// Looks compared with those of Linux, and what differed.
#[derive(Debug)]
pub struct Comparison {
    known: &'static [Known],
    /// Kinds of segments that were compared.
    kinds: BTreeSet<&'static str>,
    /// Places in `known` of those that were met.
    met: BTreeSet<usize>,
    /// Kinds and fields that differ without being known.
    differences: Vec<(&'static str, &'static str)>,
    table: String,
}

impl Comparison {
    /// One in which these differences are expected.
    pub fn new(known: &'static [Known]) -> Self {
        Self {
            known,
            kinds: BTreeSet::new(),
            met: BTreeSet::new(),
            differences: Vec::new(),
            table: String::new(),
        }
    }

    /// Compares two looks of one kind of segment; `case` tells where they come from.
    pub fn compare(&mut self, kind: &'static str, case: &str, ours: &Look, linux: &Look) {
        self.kinds.insert(kind);
        let mut title = Some(format!("\n{kind} ({case})\n"));
        for field in ours.differing(linux) {
            let is_it = |known: &Known| known.kind == kind && known.field == field;
            if let Some(place) = self.known.iter().position(is_it) {
                self.met.insert(place);
                continue;
            }
            self.differences.push((kind, field));
            self.table += &title.take().unwrap_or_default();
            let (ours, linux) = (ours.get(field), linux.get(field));
            writeln!(self.table, "    {field:24} {ours:40} {linux}").expect("a string takes all");
        }
    }

    /// Kinds and fields that differ without being known.
    pub fn differences(&self) -> &[(&'static str, &'static str)] {
        &self.differences
    }

    /// Ends it.
    ///
    /// # Panics
    ///
    /// If anything differed that is not known; if a kind of segment was compared and a
    /// difference that is said to be known of it was not there.
    pub fn finish(self) {
        let (count, table) = (self.differences.len(), &self.table);
        let (field, ours, linux) = ("field", "ours", "Linux's");
        assert!(
            self.differences.is_empty(),
            "{count} differences:\n    {field:24} {ours:40} {linux}\n{table}"
        );
        for (place, known) in self.known.iter().enumerate() {
            assert!(
                self.met.contains(&place) || !self.kinds.contains(known.kind),
                "there is no such difference any more: {known:?}"
            );
        }
    }
}

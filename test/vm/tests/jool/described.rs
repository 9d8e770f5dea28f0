//! Packets in words that do not depend on which addresses and ports a translator chose.

use std::net::IpAddr;

use anyhow::Result;
use etherparse::{IpHeaders, IpNumber};
use xdptun_lab::Family;
use xdptun_lab::checksum::{sum, transport_sum};
use xdptun_test_datapath::packet::payload;

use crate::ends::{Ends, PORT};
use crate::errors::{Error, quoted};
use crate::names::{THE_CLIENT, THE_SERVER, name};

/// The hop limit that most packets are sent with.
const HOP_LIMIT: u8 = 64;

/// A packet, taken apart.
pub struct Seen<'a> {
    bytes: &'a [u8],
    ip: IpHeaders,
    protocol: IpNumber,
    data: &'a [u8],
    fragmented: bool,
}

impl<'a> Seen<'a> {
    /// Takes it apart.
    pub fn read(bytes: &'a [u8]) -> Result<Self> {
        let (ip, rest) = IpHeaders::from_slice(bytes)?;
        Ok(Self {
            bytes,
            protocol: rest.ip_number,
            data: rest.payload,
            fragmented: rest.fragmented,
            ip,
        })
    }

    fn family(&self) -> Family {
        match self.ip {
            IpHeaders::Ipv4(..) => Family::V4,
            IpHeaders::Ipv6(..) => Family::V6,
        }
    }

    fn addresses(&self) -> [IpAddr; 2] {
        match &self.ip {
            IpHeaders::Ipv4(ip, _) => [ip.source.into(), ip.destination.into()],
            IpHeaders::Ipv6(ip, _) => [ip.source.into(), ip.destination.into()],
        }
    }

    fn hop_limit(&self) -> u8 {
        match &self.ip {
            IpHeaders::Ipv4(ip, _) => ip.time_to_live,
            IpHeaders::Ipv6(ip, _) => ip.hop_limit,
        }
    }

    /// Whether it has the header behind that of IP.
    fn is_first(&self) -> bool {
        self.part().0 == 0
    }

    /// Where its data are in the whole, and whether more follow.
    fn part(&self) -> (usize, bool) {
        match &self.ip {
            IpHeaders::Ipv4(ip, _) => (
                usize::from(ip.fragment_offset.byte_offset()),
                ip.more_fragments,
            ),
            IpHeaders::Ipv6(_, extensions) => {
                extensions.fragment.as_ref().map_or((0, false), |part| {
                    (
                        usize::from(part.fragment_offset.byte_offset()),
                        part.more_fragments,
                    )
                })
            }
        }
    }
}

/// From where packets are looked at.
pub struct View<'a> {
    /// The family of what was sent.
    pub sent: Family,
    /// Who sent and receives.
    pub ends: &'a Ends,
    /// By how much the hop limit falls.
    pub hops: u8,
    /// Whether the identification of whole packets matters.
    pub identified: bool,
}

/// All that came out.
pub fn all(output: &[Vec<u8>], view: &View<'_>) -> Result<String> {
    if output.is_empty() {
        return Ok("nothing".into());
    }
    let seen = output.iter().map(|packet| Seen::read(packet));
    let seen: Vec<Seen<'_>> = seen.collect::<Result<_>>()?;
    let texts = seen
        .iter()
        .map(|packet| Ok(words(packet, view)?.join(", ")));
    let mut text = texts.collect::<Result<Vec<_>>>()?.join("; ");
    let fragments: Vec<&Seen<'_>> = seen.iter().filter(|packet| packet.fragmented).collect();
    if !fragments.is_empty() {
        text += &together(&fragments);
    }
    Ok(text)
}

/// What the fragments of one packet give.
fn together(fragments: &[&Seen<'_>]) -> String {
    let mut parts: Vec<_> = fragments.iter().map(|one| (one.part(), one.data)).collect();
    parts.sort_by_key(|((offset, _), _)| *offset);
    let mut whole = Vec::new();
    for ((offset, _), data) in &parts {
        if *offset != whole.len() {
            return ", not the whole".into();
        }
        whole.extend_from_slice(data);
    }
    if parts.last().is_none_or(|((_, more), _)| *more) {
        return ", not the whole".into();
    }
    let of_whole = fragments[0];
    let problem = checksum(of_whole, &whole);
    problem.map_or_else(String::new, |problem| format!(", together {problem}"))
}

fn words(packet: &Seen<'_>, view: &View<'_>) -> Result<Vec<String>> {
    let error = if packet.is_first() {
        Error::read(packet.protocol, packet.data)?
    } else {
        None
    };
    let mut words = vec![kind(packet)];
    if packet.family() == view.sent {
        words[0].insert_str(0, "back: ");
        words.push(format!("from {}", answerer(packet, view.ends)));
        words.extend(error.and_then(|error| error.rest(packet.protocol)));
    } else {
        words.push(format!("{} bytes", packet.bytes.len()));
        words.extend(between(packet, view.ends));
        words.extend(wrong_port(packet, view.ends));
        if packet.hop_limit() + view.hops != HOP_LIMIT {
            words.push(format!("hop limit {}", packet.hop_limit()));
        }
        words.extend(fields(packet, view));
        if let Some(error) = error {
            words.extend(error.rest(packet.protocol));
            words.extend(quoted(packet.data, view.ends)?);
        }
    }
    if !packet.fragmented {
        words.extend(checksum(packet, packet.data).map(str::to_owned));
        words.extend(changed(packet));
    }
    Ok(words)
}

/// Its protocol, and what else tells it apart.
fn kind(packet: &Seen<'_>) -> String {
    let is_first = packet.is_first();
    match (packet.protocol, packet.data) {
        (IpNumber::UDP, _) => "UDP".into(),
        (IpNumber::TCP, data) if is_first && data.get(13).is_some_and(|flags| flags & 4 != 0) => {
            "TCP RST".into()
        }
        (IpNumber::TCP, _) => "TCP".into(),
        (IpNumber::ICMP, [kind, code, ..]) if is_first => format!("ICMP {kind}, {code}"),
        (IpNumber::IPV6_ICMP, [kind, code, ..]) if is_first => format!("ICMPv6 {kind}, {code}"),
        (IpNumber::ICMP, _) => "ICMP".into(),
        (IpNumber::IPV6_ICMP, _) => "ICMPv6".into(),
        (protocol, _) => format!("protocol {}", protocol.0),
    }
}

/// Who answers the sender.
fn answerer(packet: &Seen<'_>, ends: &Ends) -> String {
    let name = name(packet.addresses()[0], ends);
    match (packet.family(), &*name) {
        (Family::V4, THE_CLIENT) => "the client's IPv4 address".into(),
        _ => name,
    }
}

/// Who sends it to whom, unless that goes without saying.
fn between(packet: &Seen<'_>, ends: &Ends) -> Vec<String> {
    let [from, to] = packet.addresses().map(|address| name(address, ends));
    let usual = match packet.family() {
        Family::V4 => [THE_CLIENT, THE_SERVER],
        Family::V6 => [THE_SERVER, THE_CLIENT],
    };
    let mut words = Vec::new();
    if from != usual[0] {
        words.push(format!("from {from}"));
    }
    if to != usual[1] {
        words.push(format!("to {to}"));
    }
    words
}

/// The port that it goes to, if that is another than it should be.
fn wrong_port(packet: &Seen<'_>, ends: &Ends) -> Option<String> {
    if !packet.is_first() {
        return None;
    }
    let right = match packet.family() {
        Family::V4 => PORT,
        Family::V6 => ends.port,
    };
    let number = match packet.protocol {
        IpNumber::UDP | IpNumber::TCP => packet.data.get(2..4),
        // The identifier, which is the client's alone.
        IpNumber::IPV6_ICMP if matches!(packet.data, [128 | 129, ..]) => packet.data.get(4..6),
        _ => None,
    }?;
    let number = u16::from_be_bytes([number[0], number[1]]);
    (number != right).then(|| format!("to port {number}"))
}

/// What the IP header tells beside addresses, length and hop limit.
fn fields(packet: &Seen<'_>, view: &View<'_>) -> Vec<String> {
    let mut words = Vec::new();
    let (offset, more) = packet.part();
    match &packet.ip {
        IpHeaders::Ipv4(ip, _) => {
            let tos = packet.bytes[1];
            if tos != 0 {
                words.push(format!("TOS {tos:#04x}"));
            }
            if ip.dont_fragment {
                words.push("DF".into());
            }
            if view.identified || packet.fragmented {
                words.push(identification(ip.identification, view.ends));
            }
            if !ip.options.is_empty() {
                words.push("with options".into());
            }
            if ip.header_checksum != ip.calc_header_checksum() {
                words.push("header checksum wrong".into());
            }
        }
        IpHeaders::Ipv6(ip, extensions) => {
            if ip.traffic_class != 0 {
                words.push(format!("class {:#04x}", ip.traffic_class));
            }
            if ip.flow_label.value() != 0 {
                words.push("a flow label".into());
            }
            if let Some(part) = &extensions.fragment {
                words.push("fragment header".into());
                // The number of IPv4, or none.
                let number = u16::try_from(part.identification).unwrap_or_default();
                words.push(identification(number, view.ends));
            }
        }
    }
    if packet.fragmented {
        let more = if more { " and more" } else { "" };
        words.push(format!("data from {offset}{more}"));
    }
    words
}

fn identification(number: u16, ends: &Ends) -> String {
    match number {
        0 => "ID 0",
        kept if kept == ends.port => "ID kept",
        _ => "another ID",
    }
    .into()
}

/// What is wrong with the checksum of a whole packet.
fn checksum(packet: &Seen<'_>, whole: &[u8]) -> Option<&'static str> {
    let [from, to] = packet.addresses();
    let total = match packet.protocol {
        IpNumber::UDP if whole.get(6..8) == Some(&[0, 0]) => return Some("no checksum"),
        IpNumber::UDP | IpNumber::TCP | IpNumber::IPV6_ICMP => {
            transport_sum(from, to, packet.protocol.0, whole)
        }
        IpNumber::ICMP => sum(whole),
        _ => return None,
    };
    (total != 0xffff).then_some("checksum wrong")
}

/// Whether its data are other than all that is sent here.
fn changed(packet: &Seen<'_>) -> Option<String> {
    let data = match (packet.protocol, packet.data) {
        (IpNumber::UDP, data) | (IpNumber::ICMP, data @ [0 | 8, ..]) => data.get(8..),
        (IpNumber::IPV6_ICMP, data @ [128 | 129, ..]) => data.get(8..),
        (IpNumber::TCP, data) => {
            let header = data.get(12).map(|byte| usize::from(byte >> 4) * 4);
            header.and_then(|header| data.get(header..))
        }
        _ => return None,
    };
    let is_right = data.is_some_and(|data| *data == payload(data.len()));
    (!is_right).then(|| "other data".to_owned())
}

//! An ICMP error beside its translation. It is not translated back: several kinds become one.

use xdptun_lab::checksum;

use crate::fuzz::judge::{Judgement, rule};
use crate::fuzz::reading::Reading;

/// Every rule about an error.
pub fn translated(before: &Reading<'_>, made: &Reading<'_>) -> Judgement {
    let detail = || {
        let [before, made] = [before, made].map(|one| crate::fuzz::hex(one.packet));
        format!("{before}\n{made}")
    };
    rule(
        "the version is the other",
        before.is_v4() != made.is_v4(),
        detail,
    )?;
    let right = is_right(before) == is_right(made);
    rule(
        "the checksum of an error is as right as it was",
        right,
        detail,
    )?;
    let [was, is] = [before, made].map(quoted);
    let is_receiver = |one: &Quoted<'_>, packet: &Reading<'_>| one.source == packet.addresses.1;
    rule(
        "the receiver sent the packet inside",
        is_receiver(&is, made),
        detail,
    )?;
    let ports = [was.ports, is.ports];
    let are_kept = ports[0].is_none() || ports[1].is_none() || ports[0] == ports[1];
    rule("the ports inside are the same", are_kept, detail)
}

/// Whether the checksum of a message is right.
fn is_right(packet: &Reading<'_>) -> bool {
    match packet.is_v4() {
        true => checksum::sum(packet.transport()) == 0xffff,
        false => packet.transport_sum_is_right(),
    }
}

/// A packet inside an error.
struct Quoted<'a> {
    source: std::net::IpAddr,
    /// Of TCP or UDP, right behind the header.
    ports: Option<&'a [u8]>,
}

fn quoted<'a>(packet: &Reading<'a>) -> Quoted<'a> {
    let inner = &packet.transport()[8..];
    match packet.is_v4() {
        true => {
            let source: [u8; 4] = inner[12..16].try_into().expect("four bytes");
            let at = usize::from(inner[0] & 0xf) * 4;
            let is_later = inner[6] & 0x1f != 0 || inner[7] != 0;
            let has_ports = [6, 17].contains(&inner[9]) && !is_later;
            Quoted {
                source: source.into(),
                ports: inner.get(at..at + 4).filter(|_| has_ports),
            }
        }
        false => {
            let source: [u8; 16] = inner[8..24].try_into().expect("16 bytes");
            let has_ports = [6, 17].contains(&inner[6]);
            Quoted {
                source: source.into(),
                ports: inner.get(40..44).filter(|_| has_ports),
            }
        }
    }
}

//! ICMP errors: those that are handed on, and those that are made.

use etherparse::IpNumber;
use xdptun_lab::checksum;

use super::{Judgement, rule, some};
use crate::fuzz::reading::{Reading, read};
use crate::fuzz::rig::Seen;
use crate::fuzz::scene::Scene;

/// Length of an ICMP header in bytes.
const HEADER: usize = 8;

/// An error that came in about a segment of ours was handed on: it is about the
/// datagram now, and as valid as before.
pub fn is_translated(scene: &Scene, seen: &Seen) -> Judgement {
    let (before, after) = (read(&scene.frame), read(&seen.ran.packet));
    let before = some("what is translated is a packet", before.filter(is_icmp))?;
    let after = some(
        "what was translated is an ICMP message",
        after.filter(is_icmp),
    )?;
    rule(
        "a translated error keeps its addresses",
        before.addresses == after.addresses,
        || format!("{:?}", after.addresses),
    )?;
    let right = before.header_sum_is_right() && sum_is_right(&before);
    rule(
        "a translated error is as right as before",
        right == (after.header_sum_is_right() && sum_is_right(&after)),
        || format!("right before: {right}"),
    )?;
    let (was, is) = (quoted(&before), quoted(&after));
    let [was, is] = [was, is].map(Option::unzip);
    let protocols = was.0.zip(is.0);
    rule(
        "a translated error is about a datagram",
        protocols == Some((IpNumber::TCP, IpNumber::UDP)),
        || format!("{protocols:?}"),
    )?;
    rule(
        "a translated error is about the same sockets",
        was.1 == is.1,
        || format!("{:?}, then {:?}", was.1, is.1),
    )
}

/// A datagram that cannot leave was turned into the error that says so.
pub fn tells_sender(scene: &Scene, seen: &Seen) -> Judgement {
    let datagram = some("an error is about a packet", read(&scene.frame))?;
    let error = read(&seen.ran.packet).filter(is_icmp);
    let error = some("what is sent back is an ICMP message", error)?;
    rule(
        "an error is valid",
        error.header_sum_is_right() && sum_is_right(&error),
        || format!("{error:?}"),
    )?;
    rule(
        "an error goes to the sender",
        error.addresses.1 == datagram.addresses.0,
        || format!("{:?}", error.addresses),
    )?;
    // By sockets: options need not be quoted.
    let sockets = quoted(&error);
    let sent = datagram.sockets();
    rule(
        "an error quotes what was sent",
        sockets == Some((IpNumber::UDP, of_datagram(&datagram))),
        || format!("{sockets:x?}, not {sent:?}"),
    )?;
    // RFC 1812 section 4.3.2.3, RFC 4443 section 2.4 (c).
    let longest = if error.is_v4() { 576 } else { 1280 };
    rule("an error is short", error.ip_len() <= longest, || {
        format!("{} bytes", error.ip_len())
    })
}

fn is_icmp(packet: &Reading<'_>) -> bool {
    [IpNumber::ICMP, IpNumber::IPV6_ICMP]
        .iter()
        .any(|number| packet.is_whole(*number))
        && packet.transport().len() >= HEADER
}

/// ICMP's own checksum has no pseudo-header (RFC 792), that of ICMPv6 has
/// (RFC 4443).
fn sum_is_right(packet: &Reading<'_>) -> bool {
    if packet.is_v4() {
        checksum::sum(packet.transport()) == 0xffff
    } else {
        packet.transport_sum_is_right()
    }
}

/// Protocol, and addresses with ports, of the packet that an error quotes.
fn quoted(error: &Reading<'_>) -> Option<(IpNumber, Quoted)> {
    let ip = error.transport().get(HEADER..)?;
    // Only the start of the quoted packet is there, which no strict parser takes.
    let (protocol, addresses, ports) = match ip.first()? >> 4 {
        4 => (*ip.get(9)?, 12..20, usize::from(ip[0] & 0xf) * 4),
        6 => (*ip.get(6)?, 8..40, 40),
        _ => return None,
    };
    Some((
        IpNumber(protocol),
        (
            ip.get(addresses)?.to_vec(),
            *ip.get(ports..)?.first_chunk()?,
        ),
    ))
}

/// The sockets that an error about a datagram names.
fn of_datagram(datagram: &Reading<'_>) -> Quoted {
    let addresses = if datagram.is_v4() { 12..20 } else { 8..40 };
    let ip = &datagram.packet[datagram.l3..];
    let ports = datagram.transport().first_chunk();
    (ip[addresses].to_vec(), *ports.unwrap_or(&[0; 4]))
}

/// The bytes of both addresses and of both ports.
type Quoted = (Vec<u8>, [u8; 4]);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::judge::example::{broken, scene, seen};
    use crate::packet::{Packet, flags, payload};
    use crate::path::{Family, Path};
    use crate::program::Program;

    /// "Too big", about a packet, from `from` to the sender of the packet.
    fn too_big(path: Path, from: std::net::IpAddr, quote: &[u8]) -> Vec<u8> {
        let v4 = path.family() == Family::V4;
        let kind = if v4 { [3, 4] } else { [2, 0] };
        let mut message = [&kind[..], &[0, 0, 0, 0, 5, 0xdc], quote].concat();
        let to = path.local.ip();
        let (number, sum) = if v4 {
            (IpNumber::ICMP, checksum::sum(&message))
        } else {
            let number = IpNumber::IPV6_ICMP;
            let sum = checksum::transport_sum(from, to, number.0, &message);
            (number, sum)
        };
        message[2..4].copy_from_slice(&(!sum).to_be_bytes());
        Packet::other(from, to, number).payload(message).bytes()
    }

    /// Judges with the byte at each of some places changed; what is not broken
    /// by that.
    fn unnoticed(bytes: &[u8], judge: impl Fn(&[u8]) -> Judgement) -> Vec<usize> {
        assert_eq!(broken(judge(bytes)), None);
        let changed = |at: &usize| {
            let mut bytes = bytes.to_vec();
            bytes[*at] ^= 0x10;
            broken(judge(&bytes)).is_none()
        };
        (14..bytes.len()).filter(changed).collect()
    }

    #[test]
    fn an_error_that_is_made_must_be_right_to_its_last_byte() {
        for family in Family::ALL {
            let path = Path::client(family);
            let datagram = path.outbound().payload(payload(1480)).bytes();
            let scene = scene(Program::Egress, datagram.clone(), []);
            let judge = |error: &[u8]| tells_sender(&scene, &seen(&scene, error));
            let quote = &datagram[14..14 + family.header_len() + 20];
            let error = too_big(path, family.peer(), quote);
            // No checksum covers IPv6's class, flow label and hop limit.
            let expected: &[usize] = match family {
                Family::V4 => &[],
                Family::V6 => &[15, 16, 17, 21],
            };
            assert_eq!(unnoticed(&error, judge), expected);
            let long = too_big(path, family.peer(), &datagram[14..]);
            assert_eq!(broken(judge(&long)), Some("an error is short"));
        }
    }

    #[test]
    fn a_translated_error_is_about_a_datagram() {
        for family in Family::ALL {
            let path = Path::client(family);
            let about = |packet: Packet| {
                let quote = packet.payload(payload(9)).bytes();
                too_big(path, family.stranger(), &quote[14..])
            };
            let segment = about(path.outbound().segment(flags::DATA, 1, 2));
            let scene = scene(Program::Ingress, segment.clone(), []);
            let judge = |error: &[u8]| is_translated(&scene, &seen(&scene, error));
            assert_eq!(broken(judge(&about(path.outbound()))), None);
            assert_eq!(
                broken(judge(&segment)),
                Some("a translated error is about a datagram")
            );
            let other = Path::server(family).outbound();
            assert_eq!(
                broken(judge(&about(other))),
                Some("a translated error is about the same sockets")
            );
            let mut damaged = about(path.outbound());
            *damaged.last_mut().expect("not empty") ^= 1;
            assert_eq!(
                broken(judge(&damaged)),
                Some("a translated error is as right as before")
            );
        }
    }
}

//! A packet beside its translation, or beside what came back.

use etherparse::IpNumber;
use xdptun_lab::checksum;

use crate::fuzz::judge::{Judgement, rule};
use crate::fuzz::reading::{Part, Reading};

/// In which ways both may differ.
#[derive(Clone, Copy)]
pub struct Sameness {
    /// The second is the last part of the first, which was a fragment.
    pub is_cut: bool,
    /// It is of the same version again, and goes the other way.
    pub turned: bool,
}

/// What a translation has to keep, beside the transport.
#[derive(Debug, PartialEq, Eq)]
pub struct Header {
    class: u8,
    hop_limit: u8,
    protocol: IpNumber,
    more: bool,
    /// Where it starts in its datagram, in bytes.
    pub offset: usize,
    /// The low half of its identification, if it is a fragment.
    identification: Option<u16>,
    /// The type of an echo, as ICMP has it.
    echo: Option<u8>,
    /// It is UDP that has no checksum.
    pub lacks_checksum: bool,
}

/// Reads it.
pub fn header(packet: &Reading<'_>) -> Header {
    let ip = &packet.packet[packet.l3..];
    let (class, hop_limit) = match packet.is_v4() {
        true => (ip[1], ip[8]),
        false => (ip[0] << 4 | ip[1] >> 4, ip[7]),
    };
    let (offset, more, identification) = fragment(packet);
    let protocol = match packet.protocol() {
        IpNumber::IPV6_ICMP => IpNumber::ICMP,
        other => other,
    };
    let none = packet.transport().get(6..8) == Some(&[0, 0]);
    Header {
        class,
        hop_limit,
        protocol,
        more,
        offset,
        identification: (packet.part != Part::Whole).then_some(identification),
        echo: echo(packet),
        lacks_checksum: none && protocol == IpNumber::UDP && packet.part != Part::Later,
    }
}

fn echo(packet: &Reading<'_>) -> Option<u8> {
    match (packet.protocol(), packet.transport().first()?) {
        (IpNumber::ICMP, kind) => Some(*kind),
        (IpNumber::IPV6_ICMP, 128) => Some(8),
        (IpNumber::IPV6_ICMP, 129) => Some(0),
        _ => None,
    }
}

/// Offset in bytes, whether more follows, identification.
fn fragment(packet: &Reading<'_>) -> (usize, bool, u16) {
    let word = |at: usize| u16::from_be_bytes([packet.packet[at], packet.packet[at + 1]]);
    if packet.is_v4() {
        let field = word(packet.l3 + 6);
        let offset = usize::from(field & 0x1fff) * 8;
        return (offset, field & 0x2000 != 0, word(packet.l3 + 4));
    }
    if packet.part == Part::Whole {
        return (0, false, 0);
    }
    // The header of a fragment is the last before the transport.
    let at = packet.l4 - 8;
    let field = word(at + 2);
    (usize::from(field & !7), field & 1 != 0, word(at + 6))
}

/// Every rule about a packet and its translation.
pub fn same(before: &Reading<'_>, made: &Reading<'_>, how: Sameness) -> Judgement {
    let detail = || {
        let [before, made] = [before, made].map(|one| crate::fuzz::hex(one.packet));
        format!("{before}\n{made}")
    };
    let versions = before.is_v4() == made.is_v4();
    rule(
        "the version is the right one",
        versions == how.turned,
        detail,
    )?;
    if how.turned {
        let turned = (made.addresses.1, made.addresses.0);
        rule(
            "it comes back to its sender",
            before.addresses == turned,
            detail,
        )?;
    }
    let (was, mut is) = (header(before), header(made));
    let lacked = was.lacks_checksum;
    let cut = is.offset.wrapping_sub(was.offset);
    if how.is_cut {
        rule(
            "a part begins later",
            cut > 0 && cut <= before.transport().len(),
            detail,
        )?;
        is.offset = was.offset;
    }
    let (old, new) = (before.transport(), made.transport());
    if how.is_cut {
        is.lacks_checksum = lacked;
        rule("the header is the same", was == is, detail)?;
        return rule(
            "a part has the rest of the bytes",
            old[cut..] == *new,
            detail,
        );
    }
    let becomes_right = lacked && (before.is_v4() || how.turned);
    if becomes_right {
        rule("a datagram gets a checksum", !is.lacks_checksum, detail)?;
        rule("that checksum is right", datagram_is_right(made), detail)?;
        is.lacks_checksum = true;
    }
    rule("the header is the same", was == is, detail)?;
    let fields = fields(before);
    let bare = |bytes: &[u8]| without(bytes, fields);
    rule("the transport is the same", bare(old) == bare(new), detail)?;
    if lacked || before.part == Part::Later {
        return Ok(());
    }
    rule(
        "the checksum is as right as it was",
        deviation(before) == deviation(made),
        detail,
    )
}

/// Bytes of the transport that a translation may change: where, and how many. The type of ICMP is
/// in the [`Header`].
const fn fields(packet: &Reading<'_>) -> &'static [usize] {
    match (packet.part, packet.packet[packet.protocol_at]) {
        (Part::Later, _) => &[],
        (_, 6) => &[16, 17],
        (_, 17) => &[6, 7],
        _ => &[0, 2, 3],
    }
}

fn without(bytes: &[u8], fields: &[usize]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for at in fields {
        if let Some(byte) = bytes.get_mut(*at) {
            *byte = 0;
        }
    }
    bytes
}

/// How far a checksum is from the right one; of a first fragment, from that of the fragment alone.
fn deviation(packet: &Reading<'_>) -> u16 {
    let sum = match packet.protocol() {
        IpNumber::ICMP => checksum::sum(packet.transport()),
        other => {
            let (from, to) = packet.addresses;
            checksum::transport_sum(from, to, other.0, packet.transport())
        }
    };
    // Both zeros are one.
    sum % 0xffff
}

/// Whether the checksum of a datagram is right, over the length that it has itself.
fn datagram_is_right(packet: &Reading<'_>) -> bool {
    let transport = packet.transport();
    let len = usize::from(u16::from_be_bytes([transport[4], transport[5]]));
    let (from, to) = packet.addresses;
    transport
        .get(..len)
        .is_some_and(|datagram| checksum::transport_sum(from, to, 17, datagram) == 0xffff)
}

//! Fragments that left in segments, and segments that were handed on as fragments.

use etherparse::IpNumber;
use xdptun_common::bytes_of;
use xdptun_common::tunnel::state::{Flow, State};
use xdptun_lab::checksum;

use super::segment::{control_bits, whole};
use super::{Judgement, rule, some};
use crate::diff::hexdump;
use crate::fuzz::reading::{Part, Reading, read};
use crate::fuzz::rig::Seen;
use crate::fuzz::scene::Scene;
use crate::kernel::MTU;
use crate::packet::flags;

/// Length of a UDP header, and of what names a part, in bytes.
const UDP: usize = 8;
const NAME: usize = 8;

/// The window of a segment that carries a fragment. The low byte follows what came.
const CARRIES: u16 = 0xf100;

/// The bit of a flow's label that says that its peer takes fragments.
pub const TAKES: u32 = 1 << 31;

/// A first fragment left: of others it is not known whose they are.
pub fn left(scene: &Scene, seen: &Seen) -> Judgement {
    let fragment = some("only packets are carried", read(&scene.frame))?;
    rule(
        "only first fragments of UDP are carried without others",
        fragment.part == Part::First && fragment.protocol() == IpNumber::UDP,
        || format!("{fragment:?}"),
    )?;
    let (segment, tcp) = whole(&seen.ran.packet)?;
    rule(
        "a segment with a fragment fits the MTU",
        !scene.narrow || segment.ip_len() <= usize::from(MTU),
        || format!("{} bytes", segment.ip_len()),
    )?;
    rule(
        "the window says that a segment carries a fragment",
        tcp.window_size() & !0xff == CARRIES && control_bits(&tcp) == flags::DATA,
        || format!("{:#x}", tcp.window_size()),
    )?;
    let expected = [&name(&fragment)[..], &on_the_way(&fragment)].concat();
    rule(
        "a segment names its fragment and has its bytes",
        tcp.payload() == expected,
        || hexdump(&expected, tcp.payload()),
    )?;
    rule(
        "the checksums of a segment with a fragment are right",
        segment.header_sum_is_right() && segment.transport_sum_is_right(),
        || "wrong".to_owned(),
    )?;
    let key = some("a fragment has a flow", fragment.outbound())?;
    rule(
        "the ports of a fragment are those of its segment",
        segment.outbound() == Some(key),
        || format!("{:?}", segment.sockets()),
    )?;
    let before = some("only a flow's fragments are carried", scene.flows.get(&key))?;
    rule(
        "only an established flow's fragments are carried, to a peer that takes them",
        before.state() == State::Established && before.label & TAKES != 0,
        || format!("{before:?}"),
    )?;
    let after = &seen.flows[&key];
    let expected = Flow {
        snd_nxt: before.snd_nxt.wrapping_add(expected.len() as u32),
        tx_packets: before.tx_packets + 1,
        tx_bytes: before.tx_bytes + expected.len() as u64,
        acked: before.rcv_nxt,
        kept_fields: after.kept_fields,
        label: before.label | 1 << 30,
        sent_at: after.sent_at,
        data_at: after.data_at,
        unanswered_at: after.unanswered_at,
        ..*before
    };
    rule(
        "a flow counts each fragment and each byte once",
        bytes_of(&expected) == bytes_of(after),
        || crate::diff::fields(&expected, after),
    )
}

/// A segment was handed on as a fragment.
pub fn arrived(scene: &Scene, seen: &Seen) -> Judgement {
    let segment = some("only packets are restored", read(&scene.frame))?;
    let tcp = some("only whole segments are restored", segment.segment())?;
    let fragment = some("a restored fragment is a packet", read(&seen.ran.packet))?;
    rule(
        "only a segment whose window says so is a fragment",
        tcp.window_size() & !0xff == CARRIES,
        || format!("{:#x}", tcp.window_size()),
    )?;
    rule(
        "a damaged segment is no fragment",
        segment.header_sum_is_right() && segment.transport_sum_is_right(),
        || format!("{segment:?}"),
    )?;
    // The others need one before them.
    rule(
        "only a first fragment is restored without others",
        fragment.part == Part::First && fragment.header_sum_is_right(),
        || format!("{fragment:?}"),
    )?;
    // Two bits are reserved.
    let mut named: [u8; NAME] =
        some("a segment names its part", tcp.payload().first_chunk())?.to_owned();
    (named[0], named[1]) = (IpNumber::UDP.0, 0);
    named[3] &= !6;
    let key = some("a segment has a flow", segment.inbound())?;
    let flow = some("only a flow's segments are restored", scene.flows.get(&key))?;
    let [.., a, b, c, d] = named;
    let renumbered = u32::from_be_bytes([a, b, c, d]).wrapping_add(flow.iss);
    named[4..].copy_from_slice(&renumbered.to_be_bytes());
    if segment.is_v4() {
        named[4..6].fill(0);
    }
    let carried = &tcp.payload()[NAME..];
    let bytes = on_the_way(&fragment);
    rule(
        "a fragment is the part that its segment names",
        name(&fragment) == named,
        || hexdump(&named, &name(&fragment)),
    )?;
    rule(
        "a first fragment has the ports and the bytes of its segment",
        fragment.sockets() == segment.sockets()
            && bytes[4..6] == carried[4..6]
            && bytes[UDP..] == carried[UDP..],
        || hexdump(carried, &bytes),
    )
}

/// The IPv6 fragment header that names this part.
fn name(fragment: &Reading<'_>) -> [u8; NAME] {
    let ip = &fragment.packet[fragment.l3..];
    let [high, low, id @ ..] = if fragment.is_v4() {
        let field = u16::from_be_bytes([ip[6], ip[7]]);
        let [high, low] = (field << 3 | field >> 13 & 1).to_be_bytes();
        [high, low, 0, 0, ip[4], ip[5]]
    } else {
        // The transport follows it.
        let header = &fragment.packet[fragment.l4 - NAME..fragment.l4];
        let [.., a, b, c, d] = *header else {
            return [0; NAME];
        };
        [header[2], header[3] & !6, a, b, c, d]
    };
    let [a, b, c, d] = id;
    [IpNumber::UDP.0, 0, high, low, a, b, c, d]
}

/// A first fragment without what a NAT changes: its ports, and what these and the addresses add to
/// its checksum.
fn on_the_way(fragment: &Reading<'_>) -> Vec<u8> {
    let mut bytes = fragment.transport().to_vec();
    let octets = |address: std::net::IpAddr| match address {
        std::net::IpAddr::V4(v4) => v4.octets().to_vec(),
        std::net::IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let (source, destination) = fragment.addresses;
    let ends = [&octets(source)[..], &octets(destination), &bytes[..4]].concat();
    let checksum = u16::from_be_bytes([bytes[6], bytes[7]]);
    if checksum != 0 {
        // Their sum is taken from what the checksum makes up for, so it is added to the checksum.
        let sum = u32::from(checksum) + u32::from(checksum::sum(&ends));
        let folded = (sum & 0xffff) + (sum >> 16);
        let checksum = match folded as u16 {
            0 => 0xffff,
            other => other,
        };
        bytes[6..8].copy_from_slice(&checksum.to_be_bytes());
    }
    bytes[..4].fill(0);
    bytes
}

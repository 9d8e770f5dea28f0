//! A datagram that left as a segment.

use etherparse::IpNumber;
use xdptun_common::bytes_of;
use xdptun_common::tunnel::state::{KeptFields, State};

use super::segment::{control_bits, whole};
use super::{Judgement, rule, some};
use crate::diff::hexdump;
use crate::fuzz::reading::{Reading, read};
use crate::fuzz::rig::Seen;
use crate::fuzz::scene::Scene;
use crate::kernel::MTU;
use crate::packet::flags;

/// Length of a UDP header in bytes.
const UDP: usize = 8;
/// How much longer a TCP header is.
const GROWTH: usize = 12;

pub fn judge(scene: &Scene, seen: &Seen) -> Judgement {
    let datagram = some("only datagrams are disguised", read(&scene.frame))?;
    rule(
        "only whole datagrams are disguised",
        datagram.is_whole(IpNumber::UDP) && datagram.transport().len() >= UDP,
        || format!("{datagram:?}"),
    )?;
    let (segment, tcp) = whole(&seen.ran.packet)?;
    rule(
        "a segment fits the MTU",
        !scene.narrow || segment.ip_len() <= usize::from(MTU),
        || format!("{} bytes", segment.ip_len()),
    )?;
    let mut head = head(&datagram, IpNumber::TCP, GROWTH.cast_signed());
    let had_no_df = set_df(&datagram, &mut head, true);
    let sent = &segment.packet[..segment.l4.min(head.len())];
    rule(
        "a segment has the IP header of its datagram, and DF",
        same_head(&datagram, &head, sent),
        || hexdump(&head, sent),
    )?;
    rule(
        "the window says whether the datagram had DF",
        (tcp.window_size() & !0xff == WITHOUT_DF) == had_no_df,
        || format!("window {:#x}", tcp.window_size()),
    )?;
    let payload = &datagram.transport()[UDP..];
    rule("the payload is kept", tcp.payload() == payload, || {
        hexdump(payload, tcp.payload())
    })?;
    sums(&datagram, &segment)?;

    let key = some("a datagram has a flow", datagram.outbound())?;
    rule(
        "the ports are kept",
        segment.outbound() == Some(key),
        || format!("{:?}", segment.sockets()),
    )?;
    let before = some(
        "only a flow's datagrams are disguised",
        scene.flows.get(&key),
    )?;
    rule(
        "only an established flow's datagrams are disguised",
        before.state() == State::Established,
        || format!("{:?}", before.state()),
    )?;
    let numbers = (tcp.sequence_number(), tcp.acknowledgment_number());
    rule(
        "a segment carries the flow's numbers",
        numbers == (before.snd_nxt, before.rcv_nxt)
            && control_bits(&tcp) == flags::DATA
            && tcp.options().is_empty(),
        || format!("{numbers:?}, flags {:#x}", control_bits(&tcp)),
    )?;
    // Nothing else of the flow changes, but the times.
    let after = seen.flows[&key];
    let mut expected = *before;
    expected.snd_nxt = before.snd_nxt.wrapping_add(payload.len() as u32);
    expected.acked = before.rcv_nxt;
    expected.tx_packets = before.tx_packets + 1;
    expected.tx_bytes = before.tx_bytes + payload.len() as u64;
    expected.kept_fields =
        KeptFields(before.kept_fields.0 & 0xffff_0000 | class_and_hop_limit(&datagram));
    (expected.sent_at, expected.data_at) = (after.sent_at, after.data_at);
    if before.unanswered_at <= before.received_at {
        expected.unanswered_at = after.sent_at;
    }
    rule(
        "a flow counts each datagram and each byte once",
        bytes_of(&expected) == bytes_of(&after),
        || crate::diff::fields(&expected, &after),
    )
}

/// The window of a segment whose datagram had no DF. The low byte follows what came.
pub const WITHOUT_DF: u16 = 0xf200;

/// Sets or clears DF in the IPv4 header of `packet` that `head` holds (RFC 791 section
/// 3.1); whether that changed it.
pub fn set_df(packet: &Reading<'_>, head: &mut [u8], on: bool) -> bool {
    const DF: u8 = 0x40;
    if !packet.is_v4() {
        return false;
    }
    let flags = &mut head[packet.l3 + 6];
    let before = *flags;
    *flags = if on { before | DF } else { before & !DF };
    *flags != before
}

/// Class without ECN and hop limit, as a flow remembers them.
fn class_and_hop_limit(packet: &Reading<'_>) -> u32 {
    let ip = &packet.packet[packet.l3..];
    let (class, hop_limit) = if packet.is_v4() {
        (ip[1], ip[8])
    } else {
        (ip[0] << 4 | ip[1] >> 4, ip[7])
    };
    u32::from(class & 0xfc) << 8 | u32::from(hop_limit)
}

/// The headers before the transport header around another transport: same but
/// for protocol, length and IPv4 checksum.
pub fn head(packet: &Reading<'_>, protocol: IpNumber, growth: isize) -> Vec<u8> {
    let mut head = packet.packet[..packet.l4].to_vec();
    head[packet.protocol_at] = protocol.0;
    let at = packet.length_at();
    let len = u16::from_be_bytes([head[at], head[at + 1]]);
    let len = len.wrapping_add_signed(growth as i16);
    head[at..at + 2].copy_from_slice(&len.to_be_bytes());
    head
}

/// Whether two heads are equal, the IPv4 checksum apart. `packet` is either.
pub fn same_head(packet: &Reading<'_>, a: &[u8], b: &[u8]) -> bool {
    let sum = if packet.is_v4() {
        packet.l3 + 10..packet.l3 + 12
    } else {
        0..0
    };
    a.len() == b.len() && (0..a.len()).all(|at| sum.contains(&at) || a[at] == b[at])
}

/// Right checksums stay right, wrong ones wrong: damage must stay visible.
fn sums(datagram: &Reading<'_>, segment: &Reading<'_>) -> Judgement {
    let before = datagram.header_sum_is_right();
    rule(
        "the IP header checksum is as right as before",
        before == segment.header_sum_is_right(),
        || format!("right before: {before}"),
    )?;
    let absent = datagram.transport()[6..8] == [0, 0];
    // One of 65,536 wrong ones says what a pending one does, and is settled as such.
    let before = absent || datagram.transport_sum_is_right() || datagram.transport_sum_is_pending();
    rule(
        "the TCP checksum is as right as that of the datagram",
        before == segment.transport_sum_is_right(),
        || format!("right before: {before}"),
    )
}

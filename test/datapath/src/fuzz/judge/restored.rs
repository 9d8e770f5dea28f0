//! A segment that was handed on as a datagram.

use etherparse::IpNumber;

use super::disguised::{WITHOUT_DF, head, same_head, set_df};
use super::{Judgement, rule, some};
use crate::diff::hexdump;
use crate::fuzz::reading::{Reading, read};
use crate::fuzz::rig::Seen;
use crate::fuzz::scene::Scene;

/// Length of a UDP header in bytes.
const UDP: usize = 8;

pub fn judge(scene: &Scene, seen: &Seen) -> Judgement {
    let segment = some("only packets are restored", read(&scene.frame))?;
    let tcp = some("only whole segments are restored", segment.segment())?;
    let datagram = some("what is restored is a packet", read(&seen.ran.packet))?;
    let head_len = tcp.header_slice().len();
    let mut head = head(&segment, IpNumber::UDP, UDP as isize - head_len as isize);
    if tcp.window_size() & !0xff == WITHOUT_DF {
        set_df(&segment, &mut head, false);
    }
    let came = &datagram.packet[..datagram.l4.min(head.len())];
    rule(
        "a datagram has the IP header of its segment, without DF if the window says so",
        same_head(&segment, &head, came),
        || hexdump(&head, came),
    )?;
    let udp = datagram.transport();
    let claimed = udp
        .get(4..6)
        .map(|len| u16::from_be_bytes([len[0], len[1]]));
    rule(
        "a restored datagram knows its length",
        datagram.is_whole(IpNumber::UDP) && claimed.map(usize::from) == Some(udp.len()),
        || format!("{claimed:?} of {}", udp.len()),
    )?;
    rule(
        "the payload of a segment is kept",
        &udp[UDP..] == tcp.payload(),
        || hexdump(tcp.payload(), &udp[UDP..]),
    )?;
    rule(
        "the ports of a segment are kept",
        datagram.sockets() == segment.sockets(),
        || format!("{:?}", datagram.sockets()),
    )?;
    let padding = |frame: &[u8], packet: &Reading<'_>| frame.len() - packet.packet.len();
    let (before, after) = (
        padding(&scene.frame, &segment),
        padding(&seen.ran.packet, &datagram),
    );
    rule("padding stays outside", before == after, || {
        format!("{before} bytes, then {after}")
    })?;
    let (before, after) = (
        segment.header_sum_is_right(),
        datagram.header_sum_is_right(),
    );
    rule(
        "the header checksum is as right as that of the segment",
        before == after,
        || format!("right before: {before}"),
    )?;
    // Zero would say "none", and damage on the way would go unnoticed.
    let is_right = udp[6..8] != [0, 0] && datagram.transport_sum_is_right();
    let before = segment.transport_sum_is_right();
    rule(
        "the UDP checksum is as right as that of the segment",
        before == is_right,
        || format!("right before: {before}"),
    )
}

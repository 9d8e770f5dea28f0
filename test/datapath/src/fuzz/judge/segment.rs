//! A packet that leaves as a TCP segment must be one to its last byte.

use etherparse::TcpSlice;

use super::{Judgement, rule, some};
use crate::fuzz::reading::{Reading, read};
use crate::kernel::MTU;
use crate::packet::flags;

/// Reads a frame that the programs made: a segment, and nothing else.
pub fn whole(frame: &[u8]) -> Judgement<(Reading<'_>, TcpSlice<'_>)> {
    let packet = some("what is sent is an IP packet", read(frame))?;
    let tcp = some("what is sent is a TCP segment", packet.segment())?;
    let padding = frame.len() - packet.packet.len();
    rule("what is sent has no padding", padding == 0, || {
        format!("{padding} bytes")
    })?;
    let [offset, ..] = packet.transport()[12..] else {
        unreachable!("a TCP header has twenty bytes");
    };
    rule(
        "reserved bits and urgent pointer are zero",
        offset & 0xf == 0 && tcp.urgent_pointer() == 0,
        || format!("{offset:#x}, {}", tcp.urgent_pointer()),
    )?;
    let is_right = match control_bits(&tcp) {
        bits if bits & flags::RST != 0 => tcp.window_size() == 0,
        bits if bits & flags::SYN != 0 => tcp.window_size() == first_window(&packet),
        _ => {
            let [high, ..] = tcp.acknowledgment_number().to_be_bytes();
            let [upper, low] = tcp.window_size().to_be_bytes();
            upper >= 0xf0 && low == high
        }
    };
    rule(
        "the window offers what the programs take, or what Linux would",
        is_right,
        || format!("{:#x}", tcp.window_size()),
    )?;
    Ok((packet, tcp))
}

/// The window of Linux's SYN and SYN-ACK: whole segments in 64 KiB.
fn first_window(packet: &Reading<'_>) -> u16 {
    let headers = if packet.is_v4() { 40 } else { 60 };
    let mss = MTU - headers;
    u16::MAX / mss * mss
}

/// As [`whole`], for a segment that the programs made from nothing: checksums
/// are right whatever the packet was before.
pub fn made(frame: &[u8]) -> Judgement<(Reading<'_>, TcpSlice<'_>)> {
    let (packet, tcp) = whole(frame)?;
    rule(
        "the IP header checksum of a control segment is right",
        packet.header_sum_is_right(),
        String::new,
    )?;
    rule(
        "the TCP checksum of a control segment is right",
        packet.transport_sum_is_right(),
        String::new,
    )?;
    rule(
        "a control segment has no payload",
        tcp.payload().is_empty(),
        || format!("{} bytes", tcp.payload().len()),
    )?;
    Ok((packet, tcp))
}

/// The control bits, the low six.
pub fn control_bits(tcp: &TcpSlice<'_>) -> u8 {
    tcp.slice()[13] & 0x3f
}

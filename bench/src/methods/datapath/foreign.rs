//! Packets that are none of ours.

use anyhow::Result;
use etherparse::PacketBuilder;

/// Each packet with its name.
pub fn packets() -> Result<[(&'static str, Vec<u8>); 3]> {
    const OTHER: [u16; 2] = [40_000, 443];
    let payload = [0x5a; 1400];
    // The test runs on the loopback, whose address is zero: the
    // programs would not look at packets for another host.
    let start = || PacketBuilder::ethernet2([2; 6], [0; 6]);
    let ip = || start().ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
    let [from, to] = OTHER;
    let (mut udp, mut tcp, mut echo) = (Vec::new(), Vec::new(), Vec::new());
    ip().udp(from, to).write(&mut udp, &payload)?;
    ip().tcp(from, to, 1, 1000)
        .ack(1)
        .write(&mut tcp, &payload)?;
    ip().icmpv4_echo_request(1, 1)
        .write(&mut echo, &payload[..56])?;
    Ok([
        ("UDP of other ports, 1,400 bytes", udp),
        ("TCP of other ports, 1,400 bytes", tcp),
        ("ICMP echo, 56 bytes", echo),
    ])
}

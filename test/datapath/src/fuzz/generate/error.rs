//! ICMP errors about a packet of a flow.

use etherparse::IpNumber;
use xdptun_common::tunnel::sent::SentSegment;
use xdptun_lab::checksum;

use crate::moment::Moment;
use crate::packet::{Packet, flags};
use crate::path::{Family, Path};
use xdptun_lab::seeded::Random;

/// Types and codes of errors: unreachable (port, too big, filtered), time
/// exceeded, parameter problem; and an echo request, which is none.
const V4: [[u8; 2]; 6] = [[3, 3], [3, 4], [3, 13], [11, 0], [12, 0], [8, 0]];
/// The same (RFC 4443).
const V6: [[u8; 2]; 6] = [[1, 4], [2, 0], [1, 1], [3, 0], [4, 0], [128, 0]];

/// An error about a packet that went the other way; `sent` is that if it was sent indeed.
pub fn quoting(
    random: &mut Random,
    path: Path,
    outbound: bool,
    at: Moment,
    sent: &mut Option<SentSegment>,
) -> Packet {
    let (here, quoted) = if outbound {
        (path, path.inbound())
    } else {
        (path.reversed(), path.outbound())
    };
    let quoted = quoted.payload(random.bytes(100));
    let quoted = if random.once_in(4) {
        quoted
    } else {
        let flow = path.established(at);
        let segment = quoted.segment(flags::DATA, flow.snd_nxt.wrapping_sub(100), flow.rcv_nxt);
        *sent = random
            .once_in(2)
            .then(|| segment.remembered(at.tick().wrapping_sub(100)));
        segment
    };
    let quoted = quoted.bytes();
    let ip = &quoted[14..];
    // RFC 792 asks for eight bytes of the transport header; many quote more.
    let least = path.family().header_len() + 8;
    let enough = random.between(least, ip.len());
    let len = random.pick(&[least, least + 12, ip.len(), enough, enough - least]);
    let (number, kind) = match path.family() {
        Family::V4 => (IpNumber::ICMP, random.pick(&V4)),
        Family::V6 => (IpNumber::IPV6_ICMP, random.pick(&V6)),
    };
    let [_, _, high, low] = random.number().to_be_bytes();
    let mtu = random.pick(&[[0, 0, 0x05, 0xdc], [0, 0, 0x05, 0x00], [0, 0, high, low]]);
    let mut message = [&kind[..], &[0; 2], &mtu, &ip[..len.min(ip.len())]].concat();
    // Sometimes the router in the middle is the sender.
    let from = if random.once_in(2) {
        path.family().stranger()
    } else {
        here.local.ip()
    };
    let to = here.remote.ip();
    let sum = match path.family() {
        Family::V4 => checksum::sum(&message),
        Family::V6 => checksum::transport_sum(from, to, number.0, &message),
    };
    message[2..4].copy_from_slice(&(!sum).to_be_bytes());
    Packet::other(from, to, number).payload(message)
}

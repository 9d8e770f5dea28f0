//! Damage to packets.

use etherparse::IpNumber;
use xdptun_lab::checksum;
use xdptun_lab::seeded::Random;

use crate::fuzz::reading::read;
use crate::path::Family;

/// Where 16-bit fields are, from the start of the IP header: lengths, fragment
/// offset, time to live with protocol, checksums, first bytes of the transport
/// header.
const FIELDS_V4: [usize; 12] = [0, 2, 4, 6, 8, 10, 20, 22, 24, 26, 32, 36];
/// The same for IPv6.
const FIELDS_V6: [usize; 10] = [0, 4, 6, 40, 42, 44, 46, 48, 52, 56];

/// Damages a frame in up to four places, headers most of all.
pub fn inflict(random: &mut Random, frame: &mut Vec<u8>, family: Family) {
    for _ in 0..random.weighted(&[(6, 1), (2, 2), (1, 4)]) {
        once(random, frame, family);
    }
}

/// Gives a segment right checksums again, as those have that a stranger makes.
pub fn mend(frame: &mut [u8]) {
    let Some(packet) = read(frame) else {
        return;
    };
    let (l3, l4, end) = (packet.l3, packet.l4, packet.packet.len());
    let ((source, destination), is_v4) = (packet.addresses, packet.is_v4());
    let is_segment = packet.is_whole(IpNumber::TCP) && end - l4 >= 20;
    if is_v4 {
        frame[l3 + 10..l3 + 12].fill(0);
        let sum = !checksum::sum(&frame[l3..l3 + usize::from(frame[l3] & 0xf) * 4]);
        frame[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
    }
    if is_segment {
        frame[l4 + 16..l4 + 18].fill(0);
        let tcp = IpNumber::TCP.0;
        let sum = !checksum::transport_sum(source, destination, tcp, &frame[l4..end]);
        frame[l4 + 16..l4 + 18].copy_from_slice(&sum.to_be_bytes());
    }
}

fn once(random: &mut Random, frame: &mut Vec<u8>, family: Family) {
    let len = frame.len();
    let reach = if random.once_in(4) { len } else { len.min(90) };
    // Addresses of the link say nothing here.
    let at = random.between(12.min(reach - 1), reach - 1);
    match random.below(9) {
        0 => frame[at] ^= 1 << random.below(8),
        1 => frame[at] = random.byte(),
        2 => frame[at] = random.pick(&[0, 1, 6, 17, 44, 58, 0x45, 0x60, 0x7f, 0x80, 0xff]),
        3 | 4 => {
            let field = match family {
                Family::V4 => random.pick(&FIELDS_V4),
                Family::V6 => random.pick(&FIELDS_V6),
            };
            let value = random.boundary().to_be_bytes();
            if let Some(bytes) = frame.get_mut(14 + field..16 + field) {
                bytes.copy_from_slice(&value);
            }
        }
        5 => frame.truncate(at),
        6 => {
            let more = random.below(80);
            frame.extend(random.bytes(more));
        }
        7 => {
            // A piece of it somewhere else: headers meet as data and data as headers.
            let end = random.between(at, len.min(at + 60));
            let piece = frame[at..end].to_vec();
            let to = random.between(14.min(len), len.min(90));
            let over = (to + piece.len()).min(len);
            let over = if random.once_in(2) { over } else { to };
            frame.splice(to..over, piece);
        }
        _ => {
            let end = random.between(at, len.min(at + 20));
            frame.drain(at..end);
        }
    }
}

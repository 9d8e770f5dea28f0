//! The guesses that count, by the letter of docs/security.md: what an attacker needs so
//! many packets for that one may get through.
//!
//! They are judged with the flow as it is when the packet comes, so that a forged packet
//! that by chance is a right guess is told from one that must be futile.

use etherparse::{IpNumber, TcpSlice};
use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::sent::SentSegment;
use xdptun_common::tunnel::state::Flow;

use crate::fuzz::judge::ingress::{distance, is_cookie, is_recent, is_silent, passed};
use crate::fuzz::judge::segment::control_bits;
use crate::fuzz::reading::{Part, Reading, read};
use crate::moment::Moment;
use crate::packet::flags;

/// "A sequence number within 64 MiB".
const WINDOW: u32 = 1 << 26;
/// "A segment of the last two seconds", in ticks of 2^20 ns.
const TWO_SECONDS: u32 = 1907;
/// "One guess a second counts".
const ONE_SECOND: u32 = 954;

/// Whether a forged packet that comes `now` is a guess that counts.
pub fn counts(frame: &[u8], key: &FlowKey, flow: &Flow, sent: &[SentSegment], now: Moment) -> bool {
    let Some(packet) = read(frame) else {
        return false;
    };
    if let Some(quote) = Quote::of(&packet) {
        return quote.key() == Some(*key) && quote.names_one(flow, sent, now);
    }
    match (packet.segment(), packet.inbound()) {
        (Some(tcp), Some(of)) if of == *key => segment_counts(&tcp, flow, now),
        (Some(tcp), Some(of)) => makes_flow(&tcp, &of, now),
        _ => false,
    }
}

/// Whether a segment of the flow ends it, delivers data or acknowledges something.
fn segment_counts(tcp: &TcpSlice<'_>, flow: &Flow, now: Moment) -> bool {
    let bits = control_bits(tcp);
    let has = |bit| bits & bit != 0;
    let sequence = tcp.sequence_number();
    if has(flags::RST) {
        return sequence == flow.rcv_nxt;
    }
    if has(flags::SYN) || !has(flags::ACK) || !is_recent(tcp.acknowledgment_number(), flow, now) {
        return false;
    }
    if has(flags::FIN) {
        let end = sequence.wrapping_add(tcp.payload().len() as u32);
        // The second one repeats a FIN that came.
        return end == flow.rcv_nxt || end.wrapping_add(1) == flow.rcv_nxt;
    }
    is_silent(flow, now) || distance(sequence, flow.rcv_nxt).unsigned_abs() <= WINDOW
}

/// Whether a segment without a flow names a cookie.
fn makes_flow(tcp: &TcpSlice<'_>, key: &FlowKey, now: Moment) -> bool {
    let bits = control_bits(tcp) & (flags::SYN | flags::FIN | flags::RST | flags::ACK);
    let named = tcp.acknowledgment_number().wrapping_sub(1);
    bits == flags::ACK && is_cookie(named, key, now)
}

/// The packet that an ICMP message quotes.
pub struct Quote<'a> {
    /// Type and code.
    pub kind: (u8, u8),
    /// The packet that it is about, as far as it goes, and where its transport header is.
    packet: &'a [u8],
    transport: usize,
}

impl<'a> Quote<'a> {
    /// That of an ICMP message, or of its first fragment.
    pub fn of(message: &Reading<'a>) -> Option<Self> {
        let number = match message.is_v4() {
            true => IpNumber::ICMP,
            false => IpNumber::IPV6_ICMP,
        };
        if message.protocol() != number || message.part == Part::Later {
            return None;
        }
        let icmp = message.transport();
        let packet = icmp.get(8..)?;
        let transport = match packet.first()? >> 4 {
            4 if message.is_v4() => usize::from(packet[0] & 0xf) * 4,
            6 if !message.is_v4() => 40,
            _ => return None,
        };
        Some(Self {
            kind: (icmp[0], icmp[1]),
            packet: (packet.len() >= transport).then_some(packet)?,
            transport,
        })
    }

    fn is_v4(&self) -> bool {
        self.packet[0] >> 4 == 4
    }

    /// The transport protocol of the quoted packet.
    pub fn protocol(&self) -> IpNumber {
        IpNumber(self.packet[if self.is_v4() { 9 } else { 6 }])
    }

    /// The address that the quoted packet was sent to: 4 or 16 bytes.
    pub fn destination(&self) -> &'a [u8] {
        match self.is_v4() {
            true => &self.packet[16..20],
            false => &self.packet[24..40],
        }
    }

    /// The flow of the quoted packet, if this host sent it.
    pub fn key(&self) -> Option<FlowKey> {
        let word = |at: usize| -> Option<u16> {
            let bytes = self.packet.get(self.transport + at..)?.first_chunk()?;
            Some(u16::from_be_bytes(*bytes))
        };
        let address = |at: usize| -> [u8; 16] {
            let mut address = [0; 16];
            match self.is_v4() {
                true => {
                    address[10..12].fill(0xff);
                    address[12..].copy_from_slice(&self.packet[12 + at * 4..16 + at * 4]);
                }
                false => address.copy_from_slice(&self.packet[8 + at * 16..24 + at * 16]),
            }
            address
        };
        Some(FlowKey::from_parts(
            address(0),
            word(0)?,
            address(1),
            word(2)?,
        ))
    }

    /// Whether it quotes sequence number and length of a segment that left of late, and
    /// its checksum: an error without that counts only if none failed for a second.
    fn names_one(&self, flow: &Flow, sent: &[SentSegment], now: Moment) -> bool {
        let tcp = &self.packet[self.transport..];
        let Some(sequence) = tcp.get(4..).and_then(|bytes| bytes.first_chunk()) else {
            return false;
        };
        let sequence = u32::from_be_bytes(*sequence);
        let length =
            |at: usize| usize::from(u16::from_be_bytes([self.packet[at], self.packet[at + 1]]));
        let len = match self.is_v4() {
            true => length(2).checked_sub(self.transport),
            false => Some(length(4)),
        };
        let checksum = tcp.get(16..).and_then(|bytes| bytes.first_chunk::<2>());
        let is_trusted = passed(now, flow.distrusted_at) >= ONE_SECOND;
        self.protocol() == IpNumber::TCP
            && (checksum.is_some() || is_trusted)
            && sent.iter().any(|segment| {
                segment.sequence == sequence
                    && Some(usize::from(segment.len)) == len
                    && passed(now, segment.at) <= TWO_SECONDS
                    && checksum.is_none_or(|checksum| is_same_sum(*checksum, segment.checksum))
            })
    }
}

/// A sum has two zeros.
fn is_same_sum(a: [u8; 2], b: [u8; 2]) -> bool {
    let zeros = [[0; 2], [0xff; 2]];
    a == b || zeros.contains(&a) && zeros.contains(&b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::icmp::Message;
    use crate::packet::payload;
    use crate::path::{Family, OLDEST_ACK, Path};

    /// What counts of a flow that was just heard of, or not for a while.
    fn guesses(silent: bool, flags: u8, ahead: u32, acknowledged: u32) -> bool {
        let (path, at) = (Path::server(Family::V4), Moment::now());
        let flow = Flow {
            received_at: at.before_ms(if silent { 600 } else { 5 }),
            ..path.established(at)
        };
        let sequence = flow.rcv_nxt.wrapping_add(ahead);
        let acknowledgment = flow.snd_nxt.wrapping_sub(acknowledged);
        let segment = path.inbound().segment(flags, sequence, acknowledgment);
        counts(&segment.bytes(), &path.key(), &flow, &[], at)
    }

    #[test]
    fn a_segment_counts_by_its_numbers() {
        let fin = flags::FIN | flags::ACK;
        let (back, beyond) = (1_u32.wrapping_neg(), 1_u32.wrapping_neg());
        for (flags, ahead, acknowledged, heard, silent) in [
            (flags::RST, 0, 1 << 30, true, true),
            (flags::RST, 1, 0, false, false),
            (fin, 0, 0, true, true),
            (fin, back, 0, true, true),
            (fin, 1, 0, false, false),
            (fin, 0, beyond, false, false),
            (flags::FIN, 0, 0, false, false),
            (flags::SYN, 0, 0, false, false),
            (flags::SYN | flags::ACK, 0, 0, false, false),
            (flags::DATA, 0, 0, true, true),
            (flags::DATA, 0, OLDEST_ACK, true, true),
            (flags::DATA, 0, OLDEST_ACK + 1, false, false),
            (flags::ACK, 0, beyond, false, false),
            (flags::ACK, WINDOW, 0, true, true),
            (flags::ACK, WINDOW + 1, 0, false, true),
            (flags::DATA, 1 << 31, 0, false, true),
            (flags::PSH, 0, 0, false, false),
        ] {
            let found =
                [false, true].map(|is_silent| guesses(is_silent, flags, ahead, acknowledged));
            assert_eq!(
                found,
                [heard, silent],
                "{flags:#x} {ahead:#x} {acknowledged:#x}"
            );
        }
    }

    #[test]
    fn an_error_counts_if_it_quotes_what_was_sent() {
        for family in Family::ALL {
            let (path, at) = (Path::client(family), Moment::now());
            let segment = path.outbound().payload(payload(1000));
            let segment = segment.segment(flags::DATA, 5000, 6);
            let about = |quote, distrusted, age: u32| {
                let message = Message::too_big(family, 1280, quote);
                let message = message.packet(family.stranger(), path.local.ip());
                let flow = Flow {
                    distrusted_at: at.tick().wrapping_sub(distrusted),
                    ..path.established(at)
                };
                let sent = [segment.remembered(at.tick().wrapping_sub(age))];
                counts(&message.bytes(), &path.key(), &flow, &sent, at)
            };
            assert!(about(segment.quote(8), ONE_SECOND, TWO_SECONDS));
            assert!(!about(segment.quote(8), ONE_SECOND - 1, 0), "distrusted");
            assert!(!about(segment.quote(8), ONE_SECOND, TWO_SECONDS + 1), "old");
            assert!(!about(segment.quote(4), ONE_SECOND, 0), "no number");
            assert!(about(segment.quote(18), 0, 0), "with its checksum");
            let mut wrong = segment.quote(18);
            *wrong.last_mut().expect("not empty") ^= 1;
            assert!(!about(wrong, ONE_SECOND, 0), "another checksum");
            for other in [
                segment.clone().sequence_ahead(1),
                segment.clone().payload(payload(999)),
                path.reversed().outbound().segment(flags::DATA, 5000, 6),
            ] {
                assert!(!about(other.quote(8), ONE_SECOND, 0), "{other:?}");
            }
        }
    }
}

//! Counts of the packets on a wire, for transfers too large to keep.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::capture::Frame;
use crate::segment::{Checksum, Content, Header, Packet, Tcp, parse};

/// Bad packets kept as text, enough to see a pattern in a failure message.
const EXAMPLES: usize = 5;

/// Running totals of one wire, seen from one tunnel port.
///
/// The fields up to `rst` count packets that have the port on either end;
/// `bad_checksums` counts every TCP or UDP packet of the wire.
#[derive(Debug, Clone, Default)]
pub struct WireStats {
    port: u16,
    /// All frames.
    pub frames: u64,
    /// UDP datagrams: what a disguised tunnel must not show.
    pub udp_datagrams: u64,
    /// TCP segments.
    pub tcp_segments: u64,
    /// TCP segments with a payload.
    pub data_segments: u64,
    /// Payload bytes of TCP segments and UDP datagrams.
    pub payload_bytes: u64,
    /// TCP segments over IPv4 without DF.
    pub segments_without_df: u64,
    /// Segments with SYN and without ACK.
    pub syn: u64,
    /// Segments with SYN and ACK.
    pub syn_ack: u64,
    /// Segments with FIN.
    pub fin: u64,
    /// Segments with RST.
    pub rst: u64,
    /// Packets whose IPv4 header, TCP or UDP checksum is wrong.
    pub bad_checksums: u64,
    /// Packets whose TCP or UDP checksum was computed and is right.
    pub good_checksums: u64,
    /// Packets whose checksum an offload has yet to write: no verdict.
    pub unready_checksums: u64,
    /// UDP datagrams over IPv4 without a checksum.
    pub absent_checksums: u64,
    /// Fragments of IP packets, whatever they carry.
    pub fragments: u64,
    /// Frames whose headers contradict the frame.
    pub malformed: u64,
    /// The first bad or malformed packets, in words.
    pub examples: Vec<String>,
    /// From each initiator's first SYN to its first ACK after the SYN-ACK.
    pub handshakes: Vec<Duration>,
    opening: HashMap<(SocketAddr, SocketAddr), Opening>,
}

/// A three-way handshake in progress, keyed by (initiator, responder).
#[derive(Debug, Clone)]
struct Opening {
    first_syn: Duration,
    answered: bool,
}

impl WireStats {
    /// Empty totals for a tunnel port.
    pub fn new(port: u16) -> Self {
        Self {
            port,
            ..Self::default()
        }
    }

    /// Totals of frames that were kept.
    pub fn of(port: u16, frames: &[Frame]) -> Self {
        let mut stats = Self::new(port);
        for frame in frames {
            stats.add(frame);
        }
        stats
    }

    /// Takes one frame into account; made for [`crate::Capture::fold`].
    pub fn add(&mut self, frame: &Frame) {
        self.frames += 1;
        match parse(frame) {
            Ok(Content::Transport(packet)) => self.add_packet(frame.time, &packet),
            Ok(Content::Fragment(_)) => self.fragments += 1,
            Ok(Content::Other) => {}
            Err(error) => {
                self.malformed += 1;
                self.keep_example(|| format!("{error:#}: {:02x?}", frame.bytes));
            }
        }
    }

    fn add_packet(&mut self, time: Duration, packet: &Packet<'_>) {
        self.judge(packet);
        if !packet.has_port(self.port) {
            return;
        }
        self.payload_bytes += packet.payload.len() as u64;
        match &packet.header {
            Header::Udp => self.udp_datagrams += 1,
            Header::Tcp(tcp) => {
                self.tcp_segments += 1;
                self.data_segments += u64::from(!packet.payload.is_empty());
                self.segments_without_df += u64::from(packet.without_df);
                self.syn += u64::from(tcp.syn && !tcp.ack);
                self.syn_ack += u64::from(tcp.syn && tcp.ack);
                self.fin += u64::from(tcp.fin);
                self.rst += u64::from(tcp.rst);
                self.follow_handshake(time, packet, tcp);
            }
        }
    }

    fn judge(&mut self, packet: &Packet<'_>) {
        if packet.is_bad() {
            self.bad_checksums += 1;
            self.keep_example(|| packet.to_string());
            return;
        }
        match packet.checksum {
            Checksum::Good => self.good_checksums += 1,
            Checksum::NotReady => self.unready_checksums += 1,
            Checksum::Absent => self.absent_checksums += 1,
            Checksum::Bad => {}
        }
    }

    fn follow_handshake(&mut self, time: Duration, packet: &Packet<'_>, tcp: &Tcp<'_>) {
        let sent = (packet.source, packet.destination);
        let answered = (packet.destination, packet.source);
        match (tcp.syn, tcp.ack) {
            (true, false) => {
                let opening = Opening {
                    first_syn: time,
                    answered: false,
                };
                self.opening.entry(sent).or_insert(opening);
            }
            (true, true) => {
                if let Some(opening) = self.opening.get_mut(&answered) {
                    opening.answered = true;
                }
            }
            (false, true) => {
                if self
                    .opening
                    .get(&sent)
                    .is_some_and(|opening| opening.answered)
                    && let Some(opening) = self.opening.remove(&sent)
                {
                    self.handshakes.push(time.saturating_sub(opening.first_syn));
                }
            }
            (false, false) => {}
        }
    }

    fn keep_example(&mut self, describe: impl FnOnce() -> String) {
        if self.examples.len() < EXAMPLES {
            self.examples.push(describe());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    fn frame(millis: u64, from_client: bool, flags: &str, payload: &[u8]) -> Frame {
        let (source, destination) = if from_client { (1, 2) } else { (2, 1) };
        let (from, to) = if from_client {
            (8000, 9000)
        } else {
            (9000, 8000)
        };
        let mut builder = PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4([10, 0, 0, source], [10, 0, 0, destination], 64)
            .tcp(from, to, 7, 1000);
        for flag in flags.chars() {
            builder = match flag {
                'S' => builder.syn(),
                'F' => builder.fin(),
                'R' => builder.rst(),
                'A' => builder.ack(1),
                other => panic!("no flag {other}"),
            };
        }
        let mut bytes = Vec::new();
        builder.write(&mut bytes, payload).unwrap();
        Frame {
            bytes,
            checksum_ready: true,
            time: Duration::from_millis(millis),
            ..Frame::default()
        }
    }

    #[test]
    fn times_a_handshake_from_the_first_syn() {
        let stats = WireStats::of(
            8000,
            &[
                frame(10, true, "S", b""),
                frame(20, true, "S", b""),
                frame(30, false, "SA", b""),
                frame(35, false, "A", b""),
                frame(40, true, "A", b""),
                frame(50, true, "A", b"data"),
            ],
        );
        assert_eq!(stats.handshakes, [Duration::from_millis(30)]);
        assert_eq!((stats.syn, stats.syn_ack), (2, 1));
        assert_eq!((stats.tcp_segments, stats.data_segments), (6, 1));
        assert_eq!(stats.payload_bytes, 4);
        assert_eq!((stats.good_checksums, stats.bad_checksums), (6, 0));
    }

    #[test]
    fn an_acknowledgement_without_an_answer_ends_no_handshake() {
        let stats = WireStats::of(
            8000,
            &[frame(10, true, "S", b""), frame(20, true, "A", b"")],
        );
        assert!(stats.handshakes.is_empty());
    }

    #[test]
    fn bad_packets_count_on_every_port_and_leave_an_example() {
        let mut bad = frame(0, true, "A", b"data");
        *bad.bytes.last_mut().unwrap() ^= 1;
        let stats = WireStats::of(1, &[bad]);
        assert_eq!(stats.bad_checksums, 1);
        assert_eq!(stats.tcp_segments, 0);
        assert!(stats.examples[0].contains("Bad"), "{:?}", stats.examples);
    }
}

//! The packets that hosts put on the wire.

use std::net::SocketAddr;
use std::ops::Deref;
use std::time::Duration;

use anyhow::Result;
use xdptun_lab::segment::{Checksum, Content, Packet, Tcp, parse};
use xdptun_lab::topology::Router;
use xdptun_lab::{Capture, Frame, Host, Routed, WireStats};

/// Length of an Ethernet header.
const ETHERNET: usize = 14;

/// The segments of a sender that carry data, in their order.
pub fn data_of<'a, 'b>(segments: &'b [Segment<'a>], source: SocketAddr) -> Vec<&'b Segment<'a>> {
    let is_data = |one: &&Segment<'_>| one.source == source && one.is_data();
    segments.iter().filter(is_data).collect()
}

/// Captures of what each host sends, which is the state of a frame after the
/// programs of the sender and before those of the receiver.
#[derive(Debug)]
pub struct Wire(Vec<Capture<Vec<Frame>>>);

impl Wire {
    /// Captures on the interface of every host given.
    pub fn watch(hosts: &[&Host]) -> Result<Self> {
        Self::watch_on(hosts, Host::DEV)
    }

    /// Captures on the interface of that name of every host given.
    pub fn watch_on(hosts: &[&Host], dev: &str) -> Result<Self> {
        let captures = hosts.iter().map(|host| Capture::start(&host.netns, dev));
        Ok(Self(captures.collect::<Result<_>>()?))
    }

    /// How many segments of `port` were sent so far that `wanted` tells.
    pub fn count(&self, port: u16, wanted: impl Fn(&Segment<'_>) -> bool) -> usize {
        let count = |frames: &Vec<Frame>| {
            let sent: Vec<Frame> = frames.iter().filter(|f| f.outgoing).cloned().collect();
            segments(&sent, port).iter().filter(|s| wanted(s)).count()
        };
        self.0.iter().map(|capture| capture.peek(count)).sum()
    }

    /// The first IP packet of `port` that `wanted` tells, as it was sent.
    pub fn first_packet(
        &self,
        port: u16,
        wanted: impl Fn(&Segment<'_>) -> bool,
    ) -> Option<Vec<u8>> {
        let find = |frames: &Vec<Frame>| {
            let mut sent = frames.iter().filter(|frame| frame.outgoing);
            sent.find_map(|frame| {
                let found = segments(std::slice::from_ref(frame), port);
                let segment = found.first().filter(|segment| wanted(segment))?;
                let packet = &frame.bytes[ETHERNET..ETHERNET + segment.ip_length];
                Some(packet.to_vec())
            })
        };
        self.0.iter().find_map(|capture| capture.peek(find))
    }

    /// All frames the hosts sent, in the order of time.
    pub fn stop(self) -> Result<Vec<Frame>> {
        let mut sent = Vec::new();
        for capture in self.0 {
            sent.extend(capture.stop()?.into_iter().filter(|frame| frame.outgoing));
        }
        sent.sort_by_key(|frame| frame.time);
        Ok(sent)
    }
}

/// Captures on both sides of every router of a network, whose hosts complete
/// their checksums.
#[derive(Debug)]
pub struct Passage(Vec<(String, Capture<Vec<Frame>>)>);

impl Passage {
    /// Starts them, from the client's side to the server's.
    pub fn watch(net: &Routed) -> Result<Self> {
        let sides = net.routers().zip(1..).flat_map(|(router, number)| {
            [Router::lan(0), Router::WAN.to_owned()].map(|dev| (router, number, dev))
        });
        let captures = sides.map(|(router, number, dev)| {
            let capture = Capture::start(&router.netns, &dev)?;
            Ok((format!("{dev} of router {number}"), capture))
        });
        Ok(Self(captures.collect::<Result<_>>()?))
    }

    /// The frames that have passed on the client's side so far.
    pub fn peek<R>(&self, look: impl FnOnce(&[Frame]) -> R) -> R {
        self.0[0].1.peek(|frames| look(frames))
    }

    /// The packets of a port on every side that were sent after a time since
    /// the epoch, as one line each.
    pub fn describe(&self, port: u16, after: Duration) -> String {
        let sides = self.0.iter().map(|(name, capture)| {
            let lines = capture.peek(|frames| {
                let mut all = packets(frames, port);
                all.retain(|packet| packet.time >= after);
                for packet in &mut all {
                    packet.time -= after;
                }
                describe(&all)
            });
            format!("\n{name}:{lines}")
        });
        sides.collect()
    }

    /// All frames of every side with its name.
    ///
    /// # Panics
    ///
    /// If a side saw a datagram of `port`, a fragment, or a packet whose
    /// checksum is not there or wrong.
    pub fn stop(self, port: u16) -> Result<Vec<(String, Vec<Frame>)>> {
        let mut sides = Vec::new();
        for (name, capture) in self.0 {
            let frames = capture.stop()?;
            let stats = WireStats::of(port, &frames);
            let faults = [
                stats.udp_datagrams,
                stats.fragments,
                stats.malformed,
                stats.bad_checksums,
                stats.unready_checksums,
            ];
            assert_eq!(faults, [0; 5], "{name}: {stats:#?}");
            sides.push((name, frames));
        }
        Ok(sides)
    }
}

/// A packet of the observed port, with the time it was sent.
#[derive(Debug, Clone)]
pub struct Segment<'a> {
    /// Since the epoch.
    pub time: Duration,
    /// The packet.
    pub packet: Packet<'a>,
}

impl<'a> Deref for Segment<'a> {
    type Target = Packet<'a>;

    fn deref(&self) -> &Self::Target {
        &self.packet
    }
}

/// Every TCP or UDP packet with the port at either end.
///
/// # Panics
///
/// At a frame that contradicts itself, and at any fragment.
pub fn packets(frames: &[Frame], port: u16) -> Vec<Segment<'_>> {
    let parsed = frames.iter().map(|frame| match parse(frame) {
        Ok(Content::Transport(packet)) => Some(Segment {
            time: frame.time,
            packet,
        }),
        Ok(Content::Other) => None,
        Ok(Content::Fragment(protocol)) => panic!("a fragment of protocol {protocol}: {frame:?}"),
        Err(error) => panic!("{error:#}: {frame:?}"),
    });
    parsed
        .flatten()
        .filter(|packet| packet.has_port(port))
        .collect()
}

/// Every segment with the port at either end; each must be TCP with final and
/// correct checksums.
///
/// # Panics
///
/// At the first packet that is not.
pub fn segments(frames: &[Frame], port: u16) -> Vec<Segment<'_>> {
    let segments = packets(frames, port);
    for segment in &segments {
        assert!(
            segment.packet.tcp().is_some(),
            "undisguised: {}",
            segment.packet
        );
        assert_eq!(segment.checksum, Checksum::Good, "{}", segment.packet);
        assert_eq!(segment.ip_checksum, Checksum::Good, "{}", segment.packet);
        assert_eq!(segment.header().urgent, 0, "{}", segment.packet);
    }
    segments
}

impl Segment<'_> {
    /// The TCP fields of a packet from [`segments`].
    pub fn header(&self) -> &Tcp<'_> {
        self.packet.tcp().expect("`segments` lets only TCP pass")
    }

    /// The flags in the notation of tcpdump: `S`, `S.`, `P.`, `.`, `F.`, `R`.
    pub fn flags(&self) -> String {
        let tcp = self.header();
        let all = [
            (tcp.syn, 'S'),
            (tcp.fin, 'F'),
            (tcp.rst, 'R'),
            (tcp.psh, 'P'),
            (tcp.ack, '.'),
        ];
        all.iter().filter(|(on, _)| *on).map(|(_, c)| c).collect()
    }

    /// Whether it carries a datagram.
    pub fn is_data(&self) -> bool {
        // Under a veil, long ones have no PSH.
        self.flags() == "P." || self.flags() == "." && !self.payload.is_empty()
    }

    /// The sequence number that follows this segment.
    pub fn end(&self) -> u32 {
        let tcp = self.header();
        let length = u32::try_from(self.payload.len()).expect("a payload fits 16 bits");
        let flags = u32::from(tcp.syn) + u32::from(tcp.fin);
        tcp.seq.wrapping_add(length).wrapping_add(flags)
    }
}

/// How far `a` lies after `b` on the circle of sequence numbers.
pub fn distance(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b).cast_signed()
}

/// The segments as one line each, for messages.
pub fn describe(segments: &[Segment<'_>]) -> String {
    let mut text = String::new();
    for segment in segments {
        text += &format!("\n    {:?} {}", segment.time, segment.packet);
    }
    text
}

/// The options of a SYN.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct SynOptions {
    /// Maximum segment size.
    pub mss: Option<u16>,
    /// SACK permitted.
    pub sack_permitted: bool,
    /// Window scale.
    pub window_scale: Option<u8>,
}

/// Reads option bytes (RFC 9293 section 3.1).
///
/// # Panics
///
/// At an option that is cut off or unknown.
pub fn syn_options(mut bytes: &[u8]) -> SynOptions {
    let mut options = SynOptions::default();
    loop {
        bytes = match bytes {
            [] | [0, ..] => return options,
            [1, rest @ ..] => rest,
            [2, 4, high, low, rest @ ..] => {
                options.mss = Some(u16::from_be_bytes([*high, *low]));
                rest
            }
            [3, 3, shift, rest @ ..] => {
                options.window_scale = Some(*shift);
                rest
            }
            [4, 2, rest @ ..] => {
                options.sack_permitted = true;
                rest
            }
            other => panic!("strange options {other:?}"),
        };
    }
}

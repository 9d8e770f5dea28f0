//! Packets that scanners send to identify a port, and the answers.

use std::net::{IpAddr, SocketAddr};

use anyhow::Result;
use etherparse::{
    IpEcn, IpHeaders, IpNumber, Ipv4Extensions, Ipv4Header, Ipv6Extensions, Ipv6Header, TcpHeader,
};
use xdptun_lab::{Capture, Family, Frame, Host, burst, link, wait};

use crate::LIMIT;
use crate::look::{receiver, tcp_packets};
use crate::packet::TcpPacket;
use crate::raw;

const MSS: &[u8] = &[2, 4, 5, 180];
const SACK: &[u8] = &[4, 2];
const SCALE: &[u8] = &[3, 3, 7];
const TIMESTAMPS: &[u8] = &[8, 10, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
const NOP: &[u8] = &[1];
const END: &[u8] = &[0];

/// ECN-capable transport, RFC 3168 section 5.
const ECT: u8 = 2;

/// A station that there is not, so that nothing answers what is sent to it.
const NOBODY: [u8; 6] = [2, 0, 0, 0, 0, 0x99];

/// One segment to a port.
#[derive(Debug, Clone)]
pub struct Probe {
    /// Its name.
    pub name: String,
    /// Its flags in the notation of tcpdump.
    flags: &'static str,
    options: Vec<u8>,
    payload: &'static [u8],
    window: u16,
    urgent: u16,
    dont_fragment: bool,
    ecn: u8,
    /// Whether the first of the reserved bits is set.
    reserved: bool,
}

impl Probe {
    /// A segment with nothing but flags.
    fn bare(name: &str, flags: &'static str) -> Self {
        Self {
            name: name.to_owned(),
            flags,
            options: Vec::new(),
            payload: b"",
            window: 64240,
            urgent: 0,
            dont_fragment: true,
            ecn: 0,
            reserved: false,
        }
    }

    /// A SYN with these options.
    fn syn(name: &str, options: &[&[u8]]) -> Self {
        Self::bare(name, "S").options(options)
    }

    fn options(mut self, options: &[&[u8]]) -> Self {
        self.options = options.concat();
        self
    }

    fn payload(mut self, payload: &'static [u8]) -> Self {
        self.payload = payload;
        self
    }

    fn window(mut self, window: u16) -> Self {
        self.window = window;
        self
    }

    fn has(&self, flag: char) -> bool {
        self.flags.contains(flag)
    }

    /// The IP packet; `number` makes its sequence and acknowledgement numbers its own.
    fn packet(&self, from: SocketAddr, to: SocketAddr, number: u16) -> Vec<u8> {
        let mut tcp = TcpHeader::new(
            from.port(),
            to.port(),
            0x1234_0000 | u32::from(number),
            self.window,
        );
        tcp.acknowledgment_number = 0x5678_0000 | u32::from(number);
        (tcp.fin, tcp.syn, tcp.rst) = (self.has('F'), self.has('S'), self.has('R'));
        (tcp.psh, tcp.ack, tcp.urg) = (self.has('P'), self.has('.'), self.has('U'));
        (tcp.ece, tcp.cwr, tcp.ns) = (self.has('E'), self.has('W'), self.has('e'));
        tcp.urgent_pointer = self.urgent;
        tcp.set_options_raw(&self.options).expect("ten words");
        let packet = TcpPacket {
            link: Vec::new(),
            ip: self.ip(from.ip(), to.ip()),
            tcp,
            payload: self.payload.to_vec(),
        };
        let header = packet.ip.header_len();
        let mut bytes = packet.write();
        if self.reserved {
            reserve(&mut bytes[header..]);
        }
        bytes
    }

    fn ip(&self, from: IpAddr, to: IpAddr) -> IpHeaders {
        match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let (from, to) = (from.octets(), to.octets());
                let mut ip = Ipv4Header::new(0, 64, IpNumber::TCP, from, to).expect("no payload");
                ip.dont_fragment = self.dont_fragment;
                ip.ecn = IpEcn::try_new(self.ecn).expect("two bits");
                IpHeaders::Ipv4(ip, Ipv4Extensions::default())
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let ip = Ipv6Header {
                    traffic_class: self.ecn,
                    next_header: IpNumber::TCP,
                    hop_limit: 64,
                    source: from.octets(),
                    destination: to.octets(),
                    ..Ipv6Header::default()
                };
                IpHeaders::Ipv6(ip, Ipv6Extensions::default())
            }
            _ => panic!("{from} and {to} are of two families"),
        }
    }
}

/// Sets the first reserved bit of a TCP segment, and its checksum for that.
fn reserve(segment: &mut [u8]) {
    const BIT: u8 = 8;
    segment[12] |= BIT;
    let before = u16::from_be_bytes([segment[16], segment[17]]);
    let (sum, carry) = (!before).overflowing_add(u16::from(BIT) << 8);
    let after = !(sum + u16::from(carry));
    segment[16..18].copy_from_slice(&after.to_be_bytes());
}

/// SYNs with all kinds of options, flags and data.
pub fn syns() -> Vec<Probe> {
    let usual: &[&[u8]] = &[MSS, NOP, NOP, SACK, NOP, SCALE];
    let flags = |name, flags| Probe::bare(name, flags).options(usual);
    let ect = |probe: Probe| Probe { ecn: ECT, ..probe };
    vec![
        Probe::syn("SYN", &[]),
        Probe::syn("MSS", &[MSS]),
        Probe::syn("MSS of a large link", &[&[2, 4, 0x23, 0]]),
        Probe::syn("MSS 0", &[&[2, 4, 0, 0]]),
        Probe::syn("MSS, WS", &[MSS, NOP, SCALE]),
        Probe::syn("WS", &[NOP, SCALE]),
        Probe::syn("WS 0", &[MSS, NOP, &[3, 3, 0]]),
        Probe::syn("WS beyond 14", &[MSS, NOP, &[3, 3, 200]]),
        Probe::syn("SACK", &[NOP, NOP, SACK]),
        Probe::syn("MSS, SACK", &[MSS, NOP, NOP, SACK]),
        Probe::syn("SACK, WS", &[NOP, NOP, SACK, NOP, SCALE]),
        Probe::syn("MSS, SACK, WS", usual),
        Probe::syn("another order", &[NOP, SCALE, SACK, NOP, NOP, MSS]),
        Probe::syn("no NOP", &[SACK, SCALE, MSS]),
        Probe::syn("timestamps", &[MSS, SACK, TIMESTAMPS, NOP, SCALE]),
        Probe::syn("timestamps alone", &[NOP, NOP, TIMESTAMPS]),
        Probe::syn("MSS twice", &[MSS, &[2, 4, 2, 0], NOP, NOP, SACK]),
        Probe::syn("MSS, end, WS", &[MSS, END, SCALE]),
        Probe::syn("end first", &[END, MSS, SCALE]),
        Probe::syn("SACK of length 0", &[MSS, &[4, 0], SCALE]),
        Probe::syn("SACK of length 1", &[MSS, &[4, 1], SCALE]),
        Probe::syn("SACK of length 3", &[MSS, &[4, 3, 0], SCALE]),
        Probe::syn("WS of length 4", &[MSS, &[3, 4, 7, 0], SACK]),
        Probe::syn("MSS of length 3", &[&[2, 3, 5], SACK, SCALE]),
        Probe::syn("MSS beyond the end", &[SACK, SCALE, NOP, NOP, &[2]]),
        Probe::syn("WS longer than the header", &[MSS, SACK, NOP, &[3, 40]]),
        Probe::syn("unknown", &[MSS, &[77, 5, 1, 2, 3], SACK, NOP, SCALE]),
        Probe::syn("unknown, beyond the end", &[MSS, SACK, SCALE, &[77, 90, 0]]),
        Probe::syn("Fast Open", &[MSS, SACK, SCALE, NOP, &[34, 2]]),
        Probe::syn("forty bytes of NOP", &[&[1; 40]]),
        flags("ECE, CWR", "SEW"),
        ect(flags("ECE, CWR, ECT", "SEW")),
        flags("ECE", "SE"),
        flags("CWR", "SW"),
        flags("ECE, CWR, AE", "SEWe"),
        flags("PSH", "SP"),
        Probe {
            urgent: 1,
            ..flags("URG", "SU")
        },
        flags("data", "S").payload(b"GET / HTTP/1.1\r\n\r\n"),
        Probe::bare("data, no options", "SP").payload(b"x"),
        flags("window 0", "S").window(0),
        Probe {
            reserved: true,
            ..flags("reserved bit", "S")
        },
        Probe {
            dont_fragment: false,
            ..flags("without DF", "S")
        },
    ]
}

/// Segments of a connection that there is not.
pub fn strays() -> Vec<Probe> {
    let bare = Probe::bare;
    vec![
        bare("ACK", "."),
        bare("ACK with window 0", ".").window(0),
        bare("ACK with timestamps", ".").options(&[NOP, NOP, TIMESTAMPS]),
        bare("SYN|ACK", "S."),
        bare("SYN|ACK with options", "S.").options(&[MSS, NOP, NOP, SACK, NOP, SCALE]),
        bare("FIN|ACK", "F."),
        bare("PSH|ACK with data", "P.").payload(b"datagram"),
        bare("PSH|ACK", "P."),
        bare("FIN|PSH|ACK with data", "FP.").payload(b"datagram"),
        bare("FIN|SYN|ACK", "FS."),
        bare("URG|ACK", ".U"),
        bare("ACK, ECE", ".E"),
        bare("RST", "R"),
        bare("RST|ACK", "R."),
        bare("RST|SYN", "SR"),
        bare("RST|FIN", "FR"),
        bare("NULL", ""),
        bare("NULL with data", "").payload(b"datagram"),
        bare("PSH with data", "P").payload(b"datagram"),
        bare("URG", "U"),
        bare("FIN", "F"),
        bare("FIN with data", "F").payload(b"datagram"),
        bare("FIN|PSH", "FP"),
        bare("Xmas", "FPU"),
        bare("SYN|FIN", "FS"),
        bare("SYN|FIN|PSH|URG", "FSPU"),
        bare("all flags", "FSRP.UEW"),
    ]
}

/// The probes that nmap sends to an open port to identify the operating system
/// (<https://nmap.org/book/osdetect-methods.html>).
pub fn nmap() -> Vec<Probe> {
    let scale = |shift| [3, 3, shift];
    let mss = |mss: u16| [[2, 4], mss.to_be_bytes()].concat();
    let (wide, time) = (scale(10), TIMESTAMPS);
    let sequence: [(u16, &[&[u8]]); 6] = [
        (1, &[&wide, NOP, &mss(1460), time, SACK]),
        (63, &[&mss(1400), &scale(0), SACK, time, END]),
        (4, &[time, NOP, NOP, &scale(5), NOP, &mss(640)]),
        (4, &[SACK, time, &wide, END]),
        (16, &[&mss(536), SACK, time, &wide, END]),
        (512, &[&mss(265), SACK, time]),
    ];
    let sequence = sequence.iter().zip(1..).map(|((window, options), number)| {
        Probe::syn(&format!("SEQ packet {number}"), options).window(*window)
    });
    let ecn = [&wide, NOP, &mss(1460), SACK, NOP, NOP];
    let last = [&wide, NOP, &mss(265), time, SACK];
    let rest = [
        Probe {
            urgent: 0xf7f5,
            reserved: true,
            ..Probe::bare("ECN", "SEW").options(&ecn).window(3)
        },
        Probe::bare("T2", "").options(&last).window(128),
        Probe {
            dont_fragment: false,
            ..Probe::bare("T3", "FSPU").options(&last).window(256)
        },
        Probe::bare("T4", ".").options(&last).window(1024),
    ];
    sequence.chain(rest).collect()
}

/// The answers to each probe to a port.
pub type Answers = Vec<(Probe, Vec<TcpPacket>)>;

/// The first source port of a scan; each probe has one of its own.
pub const FIRST_PORT: u16 = 20_000;

/// Sends probes to ports of `target` from an address that no host has, behind the
/// programs of the host `at`; the answers of each port.
///
/// All of these ports must answer SYNs.
pub fn scan<const N: usize>(
    [at, target]: [&Host; 2],
    stranger: IpAddr,
    ports: [u16; N],
    probes: &[Probe],
) -> Result<[Answers; N]> {
    let family = match stranger {
        IpAddr::V4(_) => Family::V4,
        IpAddr::V6(_) => Family::V6,
    };
    introduce(target, stranger)?;
    let station = link::ethernet_address(&target.netns, Host::DEV)?;
    let marker = Probe::syn("the last", &[MSS]);
    let mut frames = Vec::new();
    for (probe, number) in probes.iter().chain([&marker]).zip(0..) {
        let from = SocketAddr::new(stranger, FIRST_PORT + number);
        for port in ports {
            let packet = probe.packet(from, target.socket(family, port), number);
            frames.push(raw::frame([station, NOBODY], &packet));
        }
    }
    let last = FIRST_PORT + u16::try_from(probes.len())?;
    let capture = Capture::start(&target.netns, Host::DEV)?;
    // On one CPU, and so in their order: what the last is answered after has been
    // answered, or will not be.
    burst::send_together(&at.netns, Host::DEV, &frames)?;
    wait::until(LIMIT, "answers to the last probe", || {
        ports.iter().all(|port| {
            let answered = |frames: &Vec<Frame>| !answers(frames, stranger, *port, last).is_empty();
            capture.peek(answered)
        })
    })?;
    let frames = capture.stop()?;
    Ok(ports.map(|port| {
        let answered = probes.iter().zip(FIRST_PORT..);
        answered
            .map(|(probe, from)| (probe.clone(), answers(&frames, stranger, port, from)))
            .collect()
    }))
}

/// Tells a host where an address is that no host has.
pub fn introduce(host: &Host, stranger: IpAddr) -> Result<()> {
    let station = NOBODY.map(|byte| format!("{byte:02x}")).join(":");
    let address = stranger.to_string();
    let entry = ["neigh", "replace", &address, "lladdr", &station];
    let place = ["nud", "permanent", "dev", Host::DEV];
    host.netns.run("ip", [&entry[..], &place].concat())?;
    Ok(())
}

/// The packets sent from one port to a port of a stranger.
fn answers(frames: &[Frame], stranger: IpAddr, from: u16, to: u16) -> Vec<TcpPacket> {
    let sent: Vec<Frame> = frames.iter().filter(|f| f.outgoing).cloned().collect();
    let mut packets = tcp_packets(&sent, from);
    packets.retain(|packet| receiver(packet) == stranger && packet.tcp.destination_port == to);
    packets
}

//! Ingress and XDP: a segment of an established flow becomes the datagram again.

use xdptun_common::tunnel::outcome::Outcome;
use xdptun_common::tunnel::state::Flow;
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::{Case, Family, Moment, Packet, Path, Program, Row, check, flags, row};

use crate::effects::received;
use crate::{datapath, largest, lengths, paths};

/// The next segment of the flow that carries the datagram.
pub fn segment(flow: &Flow, datagram: &Packet) -> Packet {
    let datagram = datagram.clone();
    datagram.carried(flow.rcv_nxt, flow.snd_nxt, 0xf000)
}

/// The segment that carries the datagram is turned back into it.
pub fn restores(program: Program, at: Moment, path: Path, datagram: &Packet, len: usize) -> Case {
    let flow = path.established(at);
    Case::new(program, segment(&flow, datagram))
        .flow(path.key(), flow)
        .passes_as(datagram)
        .counts(Outcome::RxRestored)
        .changes(path.key(), |flow| received(flow, at, len))
}

/// The rows that tc and XDP share.
fn shared(program: Program) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        // XDP takes what fits the MTU: longer is merged, or jumbo.
        let longer = (!program.is_xdp()).then_some(3000);
        for len in lengths().chain([largest(path.family())]).chain(longer) {
            rows.push(row(format!("{path:?}, {len} bytes"), move |at| {
                restores(
                    program,
                    at,
                    path,
                    &path.inbound().payload(payload(len)),
                    len,
                )
            }));
        }
    }
    for family in Family::ALL {
        let path = Path::server(family);
        let plain = path.inbound().payload(payload(77));
        for (name, datagram) in [
            ("TOS and ECN", plain.clone().tos(0x2b)),
            ("TTL 1", plain.clone().ttl(1)),
            ("ID", plain.clone().id(0x1234)),
            ("no DF", plain.clone().without_df()),
            ("all", plain.tos(0xff).ttl(255).id(0xffff).without_df()),
        ] {
            rows.push(row(format!("{family:?} {name}"), move |at| {
                restores(program, at, path, &datagram, 77)
            }));
        }
    }
    rows.extend(padded(program));
    rows.extend(damaged(program));
    rows.extend(checksum_of_zero(program));
    rows.extend(other_fields(program));
    rows.extend(df(program));
    rows
}

/// Padding is no data: the datagram's length is the segment's by IP's word. It
/// stays behind the datagram, where the stack cuts it off.
fn padded(program: Program) -> impl Iterator<Item = Row> {
    let table = (0..6)
        .map(|len| (Family::V4, len, 60))
        .chain([(Family::V4, 100, 400), (Family::V6, 5, 90)]);
    table.map(move |(family, len, frame)| {
        let name = format!("{family:?}, {len} bytes in a frame of {frame}");
        row(name, move |at| {
            let path = Path::client(family);
            let datagram = path.inbound().payload(payload(len));
            let flow = path.established(at);
            let padded = segment(&flow, &datagram).padded_to(frame);
            restores(program, at, path, &datagram, len)
                .meets(padded)
                .passes_as(datagram.padded_to(frame - 12))
        })
    })
}

/// The program does not verify the checksum, so what was damaged on the way must
/// have a wrong one after it as well, for the UDP stack to find.
fn damaged(program: Program) -> impl Iterator<Item = Row> {
    Family::ALL.into_iter().flat_map(move |family| {
        [1, 64, 999].map(|len| {
            row(format!("{family:?}, {len} bytes, damaged"), move |at| {
                let path = Path::client(family);
                let datagram = path.inbound().payload(payload(len));
                let damage = |packet: &Packet| {
                    let mut bytes = packet.bytes();
                    *bytes.last_mut().expect("payload") ^= 0x80;
                    bytes
                };
                let flow = path.established(at);
                restores(program, at, path, &datagram, len)
                    .meets(damage(&segment(&flow, &datagram)))
                    .passes_as(damage(&datagram))
            })
        })
    })
}

/// A UDP checksum of zero is sent as 0xffff (RFC 768), and a TCP checksum of
/// zero is one like any other.
fn checksum_of_zero(program: Program) -> impl Iterator<Item = Row> {
    let table = Family::ALL
        .into_iter()
        .flat_map(|family| [2, 3, 500].map(|len| [(family, len, true), (family, len, false)]));
    table.flatten().map(move |(family, len, udp)| {
        let name = if udp { "UDP" } else { "TCP" };
        row(format!("{family:?}, {len} bytes, {name} checksum zero"), {
            move |at| {
                let path = Path::client(family);
                let flow = path.established(at);
                let with_word = |word: [u8; 2]| {
                    let mut payload = payload(len);
                    payload[..2].copy_from_slice(&word);
                    path.inbound().payload(payload)
                };
                let field = |datagram: &Packet| {
                    let transport = 14 + family.header_len();
                    let (bytes, at) = if udp {
                        (datagram.bytes(), transport + 6)
                    } else {
                        (segment(&flow, datagram).bytes(), transport + 16)
                    };
                    [bytes[at], bytes[at + 1]]
                };
                let datagram = with_word(field(&with_word([0; 2])));
                let zero = if udp { [0xff; 2] } else { [0; 2] };
                assert_eq!(field(&datagram), zero);
                restores(program, at, path, &datagram, len)
            }
        })
    })
}

/// The segment's other fields are not checked, but are in the checksum. (Of the
/// window, [`df`] looks at a bit.)
fn other_fields(program: Program) -> impl Iterator<Item = Row> {
    let table: [(&str, u8, u16); 5] = [
        ("no PSH", flags::ACK, 0xf000),
        ("window 0", flags::DATA, 0),
        ("window 65535", flags::DATA, 0xffff),
        ("URG", flags::DATA | flags::URG, 1),
        ("ECE and CWR", flags::DATA | flags::ECE | flags::CWR, 7),
    ];
    table.into_iter().map(move |(name, flags, window)| {
        row(name, move |at| {
            let path = Path::client(Family::V6);
            let flow = path.established(at);
            let datagram = path.inbound().payload(payload(55));
            let segment = datagram.clone().segment(flags, flow.rcv_nxt, flow.snd_nxt);
            restores(program, at, path, &datagram, 55).meets(segment.window(window))
        })
    })
}

/// A datagram has no DF if the window of its segment says so, or if the segment has none, as
/// that of an older xdptun, which leaves DF as it is. Windows that are not ours say nothing.
fn df(program: Program) -> impl Iterator<Item = Row> {
    let path = Path::client(Family::V4);
    let with = path.inbound().payload(payload(9));
    let without = with.clone().without_df();
    let table = [
        ("both with", &with, 0xf0ff, &with),
        ("the window without", &with, 0xf2ff, &without),
        ("the segment without", &without, 0xf000, &without),
        ("both without", &without, 0xf200, &without),
        ("window 0x0200", &with, 0x0200, &with),
        ("window 0xffff", &with, 0xffff, &with),
        ("window 0xf700", &with, 0xf700, &with),
        ("window 0xf300", &with, 0xf300, &with),
    ];
    table
        .map(|(name, sent, window, datagram)| {
            let (sent, datagram) = (sent.clone(), datagram.clone());
            row(format!("DF, {name}"), move |at| {
                let flow = path.established(at);
                let segment = sent
                    .clone()
                    .segment(flags::DATA, flow.rcv_nxt, flow.snd_nxt);
                restores(program, at, path, &datagram, 9).meets(segment.window(window))
            })
        })
        .into_iter()
}

#[test]
fn by_tc() {
    check(&mut datapath(), shared(Program::Ingress));
}

#[test]
fn by_xdp() {
    for program in Program::XDP {
        check(&mut datapath(), shared(program));
    }
}

/// A middlebox may insert options. XDP leaves such a segment to tc.
#[test]
fn with_tcp_options() {
    let mut rows: Vec<Row> = Vec::new();
    for family in Family::ALL {
        for words in 1..=10 {
            for len in [0, 1, 2, 31, 1400] {
                let case = move |at, program| {
                    let path = Path::client(family);
                    let flow = path.established(at);
                    let datagram = path.inbound().payload(payload(len));
                    let options: Vec<u8> = payload(words * 4);
                    restores(program, at, path, &datagram, len)
                        .meets(segment(&flow, &datagram).options(&options))
                };
                let name = format!("{family:?} {words} words, {len} bytes");
                rows.push(row(name, move |at| case(at, Program::Ingress)));
            }
        }
    }
    check(&mut datapath(), rows);
}

/// When an acknowledgement is due but cannot be sent, the datagram is still
/// good; and a mark that was there stays.
#[test]
fn although_its_acknowledgement_is_lost() {
    let mut rows: Vec<Row> = Vec::new();
    for (name, unacknowledged, sent_ms) in [("by bytes", 262_144 - 200, 0), ("by time", 0, 480)] {
        for path in paths() {
            rows.push(row(format!("{path:?}, due {name}"), move |at| {
                let mut flow = path.established(at);
                flow.acked = flow.rcv_nxt.wrapping_sub(unacknowledged);
                flow.sent_at = at.before_ms(sent_ms);
                let datagram = path.inbound().payload(payload(200));
                restores(Program::Ingress, at, path, &datagram, 200)
                    .marked(0x1234)
                    .flow(path.key(), flow)
                    .changes(path.key(), |flow| received(flow, at, 200))
            }));
        }
    }
    check(&mut datapath(), rows);
}

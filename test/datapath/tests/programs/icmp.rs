//! Ingress: ICMP errors about our segments become errors about the datagrams.

use xdptun_common::counter::Outcome;
use xdptun_common::flow::{Flow, State};
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::path::{OTHER, OWNED};
use xdptun_test_datapath::{
    Case, Family, Message, Moment, Packet, Path, Program, Row, check, flags, row,
};

use crate::effects::in_state;
use crate::{datapath, options, paths};

/// How far back a sequence number may lie.
const WINDOW: u32 = 1 << 24;
/// Payload bytes of the datagram that the errors are about.
const LEN: usize = 100;

/// The datagram as its socket sent it, but for the checksum: without one. Some
/// routers were passed.
fn datagram(path: Path) -> Packet {
    let datagram = path.outbound().payload(payload(LEN));
    datagram.tos(0x48).ttl(57).id(0x0102).without_checksum()
}

/// The last segment of the flow.
fn last_segment(path: Path, flow: &Flow) -> Packet {
    let sequence = flow.snd_nxt.wrapping_sub(LEN as u32);
    datagram(path).segment(flags::DATA, sequence, flow.rcv_nxt)
}

/// A message from a router on the way, about what `quote` holds.
fn message(path: Path, (kind, code, rest): (u8, u8, u32), body: Vec<u8>) -> Packet {
    let message = Message {
        kind,
        code,
        rest,
        body,
    };
    let router = path.family().stranger();
    message
        .packet(router, path.local.ip())
        .tos(0xc0)
        .ttl(250)
        .id(0x7777)
        .may_fragment()
}

/// "Host unreachable" or "address unreachable".
fn unreachable(family: Family) -> (u8, u8, u32) {
    match family {
        Family::V4 => (3, 1, 0),
        Family::V6 => (1, 3, 0),
    }
}

/// An unreachable destination, told about the packet that `quote` holds.
fn about(path: Path, quote: Vec<u8>) -> Packet {
    message(path, unreachable(path.family()), quote)
}

/// The same, told about the datagram.
fn about_datagram(path: Path) -> Packet {
    about(path, datagram(path).quote(8))
}

/// The message about a segment of the flow becomes `expected`.
fn becomes(path: Path, flow: Flow, arrived: Packet, expected: &Packet) -> Case {
    Case::ingress(arrived)
        .flow(path.key(), flow)
        .passes_as(expected)
        .counts(Outcome::RxIcmp)
}

/// The plain case.
pub fn about_data(at: Moment, path: Path) -> Case {
    let flow = path.established(at);
    let arrived = about(path, last_segment(path, &flow).quote(20));
    becomes(path, flow, arrived, &about_datagram(path))
}

/// Type and code, the second half of the header, and what becomes of that.
fn errors(family: Family) -> Vec<(u8, u8, u32, u32)> {
    let mut table = Vec::new();
    // What a router may put there: RFC 4884 counts words of the quote.
    match family {
        Family::V4 => {
            let unreachable = (0..=15).filter(|code| *code != 4);
            table.extend(unreachable.map(|code| (3, code, 0x0011_1234, 0)));
            for (upper, mtu, less) in [
                (0, 0, 0),
                (0, 11, 0),
                (0, 12, 0),
                (0, 13, 1),
                (0, 1280, 1268),
                (0, 1500, 1488),
                (0x0011_0000, 1500, 1488),
                (0, 65535, 65523),
            ] {
                table.push((3, 4, upper | mtu, less));
            }
            table.extend((0..=1).map(|code| (11, code, 0x0011_0000, 0)));
            table.extend((0..=2).map(|code| (12, code, 0x1411_0000, 0x1400_0000)));
        }
        Family::V6 => {
            table.extend((0..=8).map(|code| (1, code, 0x1100_0000, 0)));
            for (mtu, less) in [
                (1280, 1280),
                (1292, 1280),
                (1293, 1281),
                (1500, 1488),
                (65535, 65523),
                (u32::MAX, u32::MAX - 12),
            ] {
                table.push((2, 0, mtu, less));
            }
            table.extend((0..=1).map(|code| (3, code, 0x1100_0000, 0)));
            table.extend((0..=3).map(|code| (4, code, 6, 6)));
        }
    }
    table
}

/// Every error that there is, to either end that owns the port.
pub fn each_type_and_code() -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        for (kind, code, rest, expected) in errors(path.family()) {
            let name = format!("{path:?}, type {kind}, code {code}, {rest:#x}");
            rows.push(row(name, move |at| {
                let flow = path.established(at);
                let quote = last_segment(path, &flow).quote(20 + LEN);
                let expected = message(path, (kind, code, expected), datagram(path).quote(8));
                let arrived = message(path, (kind, code, rest), quote);
                becomes(path, flow, arrived, &expected)
            }));
        }
    }
    rows
}

#[test]
fn errors_are_about_the_datagram() {
    check(&mut datapath(), each_type_and_code());
}

/// The packet passes untouched.
fn untouched(name: &str, path: Path, packet: impl Fn(&Flow) -> Packet + Send + 'static) -> Row {
    row(format!("{path:?}, {name}"), move |at| {
        let flow = path.established(at);
        Case::ingress(packet(&flow)).flow(path.key(), flow)
    })
}

/// Types that tell of no error, although they hold what an error would quote.
#[test]
fn messages_that_are_no_errors() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        let kinds: &[u8] = match path.family() {
            Family::V4 => &[0, 1, 2, 4, 5, 8, 9, 10, 13, 14, 17, 18, 30, 42, 255],
            Family::V6 => &[0, 5, 100, 127, 128, 129, 133, 134, 135, 136, 137, 143, 255],
        };
        for kind in kinds.iter().copied() {
            rows.push(untouched(&format!("type {kind}"), path, move |flow| {
                message(
                    path,
                    (kind, 0, 0x0001_0002),
                    last_segment(path, flow).quote(20),
                )
            }));
        }
    }
    check(&mut datapath(), rows);
}

#[test]
fn errors_about_something_else() {
    type Quoted = fn(Path, &Flow) -> Vec<u8>;
    let table: [(&str, Quoted); 8] = [
        ("nothing", |_, _| Vec::new()),
        ("a datagram", |path, _| datagram(path).quote(8 + LEN)),
        ("a segment to us", |path, flow| {
            let segment = path.inbound().segment(flags::DATA, flow.snd_nxt, 1);
            segment.quote(20)
        }),
        ("a later fragment", |path, flow| {
            last_segment(path, flow).fragment(8, true).quote(20)
        }),
        ("another version", |path, flow| {
            let mut quote = last_segment(path, flow).quote(20);
            quote[0] ^= 0x20;
            quote
        }),
        ("another port", |path, flow| {
            let path = Path::new(path.family(), 53, OTHER);
            last_segment(path, flow).quote(20)
        }),
        ("another flow", |path, flow| {
            let path = Path::new(path.family(), OWNED, OWNED);
            last_segment(path, flow).quote(20)
        }),
        ("a flow with another host", |path, flow| {
            let path = Path::with_stranger(path.family());
            last_segment(path, flow).quote(20)
        }),
    ];
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        for (name, quoted) in table {
            rows.push(untouched(name, path, move |flow| {
                about(path, quoted(path, flow))
            }));
        }
    }
    check(&mut datapath(), rows);
}

/// IPv6 knows no such MTU: hosts ignore the message, and must not take it for one
/// that names more.
#[test]
fn an_impossible_mtu_is_left_to_the_stack() {
    let paths = paths().filter(|path| path.family() == Family::V6);
    let rows = paths.flat_map(|path| {
        [0, 12, 1268, 1279].map(|mtu| {
            untouched(&format!("MTU {mtu}"), path, move |flow| {
                message(path, (2, 0, mtu), last_segment(path, flow).quote(20))
            })
        })
    });
    check(&mut datapath(), rows);
}

/// An ICMP message in an odd packet, and where no message of ours can come by.
#[test]
fn messages_that_are_not_looked_into() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        let arrives = move |flow: &Flow| about(path, last_segment(path, flow).quote(20));
        rows.push(untouched("options", path, move |flow| {
            arrives(flow).ip_options(3).extension(0.into(), 1)
        }));
        rows.push(untouched("first fragment", path, move |flow| {
            arrives(flow).fragment(0, true)
        }));
        rows.push(untouched("behind a tag", path, move |flow| {
            arrives(flow).vlan(7)
        }));
        for program in [Program::Egress, Program::FastIn, Program::FastFrags] {
            rows.push(row(format!("{path:?} by {program:?}"), move |at| {
                let flow = path.established(at);
                Case::new(program, arrives(&flow)).flow(path.key(), flow)
            }));
        }
    }
    check(&mut datapath(), rows);
}

/// RFC 792 promises eight bytes of the segment; the sequence number is the last
/// four of them.
#[test]
fn each_length_of_the_quote() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        for len in (0..=12).chain([19, 20, 21, 28, 20 + LEN]) {
            rows.push(row(format!("{path:?}, {len} bytes"), move |at| {
                let flow = path.established(at);
                let arrived = about(path, last_segment(path, &flow).quote(len));
                if len < 8 {
                    return Case::ingress(arrived).flow(path.key(), flow);
                }
                becomes(path, flow, arrived, &about_datagram(path))
            }));
        }
        rows.push(row(format!("{path:?}, padded"), move |at| {
            let case = about_data(at, path);
            let flow = path.established(at);
            let arrived = about(path, last_segment(path, &flow).quote(20));
            case.meets(arrived.padded_to(300))
        }));
        rows.push(row(format!("{path:?}, marked"), move |at| {
            about_data(at, path).marked(0x1234)
        }));
    }
    check(&mut datapath(), rows);
}

/// The message gets a new checksum, so damage must be found before.
#[test]
fn a_damaged_message_is_left_to_the_stack() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        let header = 14 + path.family().header_len();
        let last = header + 8 + path.family().header_len() + 60;
        // The checksum, the second half, and the quote's first and last byte
        // that do not tell whose it is.
        for at_byte in [header + 2, header + 7, header + 9, last] {
            rows.push(row(format!("{path:?}, byte {at_byte}"), move |at| {
                let flow = path.established(at);
                let mut arrived = about(path, last_segment(path, &flow).quote(61)).bytes();
                arrived[at_byte] ^= 4;
                Case::ingress(arrived).flow(path.key(), flow)
            }));
        }
    }
    check(&mut datapath(), rows);
}

/// What stood before the segment is not quoted, and not needed.
#[test]
fn quotes_with_options() {
    let mut rows: Vec<Row> = Vec::new();
    for family in Family::ALL {
        let path = Path::server(family);
        let all = options::carried(family).into_iter();
        for options in all.chain(options::refused(family)) {
            for len in [7, 8, 20] {
                let name = format!("{options:?}, {len} bytes");
                let options = options.clone();
                rows.push(row(name, move |at| {
                    let flow = path.established(at);
                    let quoted = options.on(last_segment(path, &flow));
                    let arrived = about(path, quoted.quote(len));
                    if len < 8 {
                        return Case::ingress(arrived).flow(path.key(), flow);
                    }
                    becomes(path, flow, arrived, &about_datagram(path))
                }));
            }
        }
        rows.push(row(format!("{family:?}, TCP options"), move |at| {
            let flow = path.established(at);
            let quoted = last_segment(path, &flow).payload([]).options(&[1; 12]);
            let expected = datagram(path).payload(payload(12)).quote(8);
            becomes(
                path,
                flow,
                about(path, quoted.quote(32)),
                &about(path, expected),
            )
        }));
        rows.push(row(format!("{family:?}, a first fragment"), move |at| {
            let flow = path.established(at);
            let quoted = last_segment(path, &flow).fragment(0, true);
            let expected = match family {
                Family::V4 => datagram(path).fragment(0, true),
                Family::V6 => datagram(path),
            };
            let expected = about(path, expected.quote(8));
            becomes(path, flow, about(path, quoted.quote(20)), &expected)
        }));
        rows.push(row(format!("{family:?}, shorter than its header"), {
            move |at| {
                let flow = path.established(at);
                let quoted = last_segment(path, &flow).transport_len(11);
                let expected = datagram(path).transport_len(0).udp_length(0);
                let expected = about(path, expected.quote(8));
                becomes(path, flow, about(path, quoted.quote(20)), &expected)
            }
        }));
    }
    check(&mut datapath(), rows);
}

/// RFC 5927 section 4.1: who has not seen the flow cannot know its numbers.
#[test]
fn only_numbers_that_were_sent_lately_count() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        // Sequence numbers from the next one, or from the SYN's.
        let opening: &[(u32, bool)] = &[(0, true), (1, false), (u32::MAX, false)];
        let open: &[(u32, bool)] = &[
            (0, true),
            (u32::MAX, true),
            (WINDOW.wrapping_neg(), true),
            ((WINDOW + 1).wrapping_neg(), false),
            (1, false),
            (1 << 31, false),
        ];
        for (state, numbers) in [
            (State::SynSent, opening),
            (State::SynReceived, opening),
            (State::Established, open),
            (State::FinSent, open),
            (State::Closed, open),
        ] {
            for (ahead, counts) in numbers.iter().copied() {
                let name = format!("{path:?} {state:?} {ahead:#x} ahead");
                rows.push(row(name, move |at| {
                    let flow = in_state(path.established(at), state);
                    let from = match state {
                        State::SynSent | State::SynReceived => flow.iss,
                        _ => flow.snd_nxt,
                    };
                    let quoted = datagram(path).segment(flags::DATA, from.wrapping_add(ahead), 1);
                    let arrived = about(path, quoted.quote(8));
                    if counts {
                        becomes(path, flow, arrived, &about_datagram(path))
                    } else {
                        let case = Case::ingress(arrived).flow(path.key(), flow);
                        case.drops(Outcome::RxDropIcmp)
                    }
                }));
            }
        }
        rows.push(row(format!("{path:?}, the SYN itself"), move |at| {
            let flow = path.opening(at);
            let syn = path.control(at, flags::SYN, flow.iss, 0);
            // It has twelve bytes of options, and twelve bytes are taken off.
            let datagram = path.outbound().payload(payload(12)).without_checksum();
            let arrived = about(path, syn.quote(32));
            becomes(path, flow, arrived, &about(path, datagram.quote(8)))
        }));
    }
    check(&mut datapath(), rows);
}

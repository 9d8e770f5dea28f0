//! Ingress: ICMP errors about our segments become errors about the datagrams, if they
//! prove that their sender saw one.

use xdptun_common::tunnel::config::Request;
use xdptun_common::tunnel::outcome::Outcome;
use xdptun_common::tunnel::sent::{DISTRUST, LIFETIME};
use xdptun_common::tunnel::state::{Flow, State};
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::path::{OTHER, OWNED};
use xdptun_test_datapath::{
    Case, Config, Datapath, Family, Message, Moment, Packet, Path, Program, Row, check, flags, row,
};

use crate::effects::in_state;
use crate::{datapath, options, paths};

/// Payload bytes of the datagram that the errors are about.
const LEN: usize = 1400;

/// The datagram as its socket sent it, but without a checksum, and after some routers.
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
        .without_df()
}

/// "Host unreachable" or "address unreachable".
fn unreachable(family: Family) -> (u8, u8, u32) {
    match family {
        Family::V4 => (3, 1, 0),
        Family::V6 => (1, 3, 0),
    }
}

/// "Fragmentation needed" or "packet too big".
fn too_big(path: Path, mtu: u32) -> (u8, u8, u32) {
    match path.family() {
        Family::V4 => (3, 4, mtu),
        Family::V6 => (2, 0, mtu),
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

/// The message about the flow's last segment becomes `expected`.
fn becomes(at: Moment, path: Path, flow: Flow, arrived: Packet, expected: &Packet) -> Case {
    Case::ingress(arrived)
        .flow(path.key(), flow)
        .left(&last_segment(path, &flow), at, 0)
        .passes_as(expected)
        .counts(Outcome::RxIcmp)
}

/// The message about the flow proves nothing.
fn refused(at: Moment, path: Path, flow: Flow, arrived: Packet) -> Case {
    Case::ingress(arrived)
        .flow(path.key(), flow)
        .left(&last_segment(path, &flow), at, 0)
        .drops(Outcome::RxDropIcmp)
        .changes(path.key(), |flow| flow.distrusted_at = at.tick())
}

/// The message proves that its sender saw a segment, but is of no use.
fn dropped(at: Moment, path: Path, flow: Flow, arrived: Packet) -> Case {
    Case::ingress(arrived)
        .flow(path.key(), flow)
        .left(&last_segment(path, &flow), at, 0)
        .drops(Outcome::RxDropIcmp)
}

/// The plain case.
pub fn about_data(at: Moment, path: Path) -> Case {
    let flow = path.established(at);
    let arrived = about(path, last_segment(path, &flow).quote(20));
    becomes(at, path, flow, arrived, &about_datagram(path))
}

/// Type and code, the second half of the header, and what becomes of that if anything
/// does.
fn errors(family: Family) -> Vec<(u8, u8, u32, Option<u32>)> {
    let mut table = Vec::new();
    // A router may put this there: RFC 4884 counts words of the quote.
    match family {
        Family::V4 => {
            let unreachable = (0..=15).filter(|code| *code != 4);
            table.extend(unreachable.map(|code| (3, code, 0x0011_1234, Some(0))));
            for (upper, mtu, less) in [
                (0, 0, Some(0)),
                (0, 11, Some(0)),
                (0, 12, Some(0)),
                (0, 13, Some(1)),
                (0, 1280, Some(1268)),
                (0x0011_0000, 1439, Some(1427)),
                // The segment has 1,440 bytes: it would have passed.
                (0, 1440, None),
                (0, 1500, None),
                (0x0011_0000, 65535, None),
            ] {
                table.push((3, 4, upper | mtu, less));
            }
            table.extend((0..=1).map(|code| (11, code, 0x0011_0000, Some(0))));
            table.extend((0..=2).map(|code| (12, code, 0x1411_0000, Some(0x1400_0000))));
        }
        Family::V6 => {
            table.extend((0..=8).map(|code| (1, code, 0x1100_0000, Some(0))));
            for (mtu, less) in [
                (1280, Some(1280)),
                (1292, Some(1280)),
                (1293, Some(1281)),
                (1459, Some(1447)),
                // The segment has 1,460 bytes.
                (1460, None),
                (u32::MAX, None),
            ] {
                table.push((2, 0, mtu, less));
            }
            table.extend((0..=1).map(|code| (3, code, 0x1100_0000, Some(0))));
            table.extend((0..=3).map(|code| (4, code, 6, Some(6))));
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
                let arrived = message(path, (kind, code, rest), quote);
                let Some(expected) = expected else {
                    return refused(at, path, flow, arrived);
                };
                let expected = message(path, (kind, code, expected), datagram(path).quote(8));
                becomes(at, path, flow, arrived, &expected)
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
        Case::ingress(packet(&flow))
            .flow(path.key(), flow)
            .knows(path.remote.ip())
    })
}

/// Types that tell of no error, although they hold what an error would quote; and those
/// that a host of today ignores, or that no UDP socket has any use for.
#[test]
fn messages_that_are_no_errors() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        let (others, ignored): (&[u8], &[u8]) = match path.family() {
            Family::V4 => (&[0, 1, 2, 8, 9, 10, 13, 14, 17, 18, 30, 42, 255], &[4, 5]),
            Family::V6 => (
                &[128, 129, 133, 134, 135, 136, 137, 143, 255],
                &[0, 5, 100, 127],
            ),
        };
        let arrives = move |kind, flow: &Flow| {
            let quote = last_segment(path, flow).quote(20);
            message(path, (kind, 0, 0x0001_0002), quote)
        };
        for kind in others.iter().copied() {
            rows.push(untouched(&format!("type {kind}"), path, move |flow| {
                arrives(kind, flow)
            }));
        }
        for kind in ignored.iter().copied() {
            rows.push(row(format!("{path:?}, type {kind}"), move |at| {
                let flow = path.established(at);
                dropped(at, path, flow, arrives(kind, &flow))
            }));
        }
    }
    check(&mut datapath(), rows);
}

#[test]
fn errors_about_something_else() {
    type Quoted = fn(Path, &Flow) -> Vec<u8>;
    let table: [(&str, Quoted); 5] = [
        ("nothing", |_, _| Vec::new()),
        ("a segment to us", |path, flow| {
            let segment = path.inbound().segment(flags::DATA, flow.snd_nxt, 1);
            segment.quote(20)
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

/// Types and codes by which a host changes how it sends, or gives up.
fn kinds(family: Family) -> &'static [(u8, u8, u32)] {
    match family {
        Family::V4 => &[
            (3, 4, 0),
            (3, 4, 576),
            (3, 4, 1400),
            (3, 0, 0),
            (3, 1, 0),
            (3, 2, 0),
            (3, 3, 0),
            (3, 13, 0),
            (4, 0, 0),
            (5, 0, 0x0a00_0063),
            (5, 1, 0x0a00_0063),
            (11, 0, 0),
            (12, 0, 0x1400_0000),
        ],
        Family::V6 => &[
            (2, 0, 0),
            (2, 0, 1280),
            (2, 0, 1400),
            (1, 0, 0),
            (1, 3, 0),
            (1, 4, 0),
            (3, 0, 0),
            (4, 0, 6),
            (100, 0, 0),
        ],
    }
}

/// No datagram of an owned port leaves as one: what quotes it is forged, however odd the
/// quote is, and whether or not there is a flow. About those that leave bare it counts.
#[test]
fn errors_that_quote_a_datagram() {
    type Odd = fn(Path) -> Vec<u8>;
    let quotes: [(&str, Odd); 6] = [
        ("eight bytes", |path| datagram(path).quote(8)),
        ("all of it", |path| datagram(path).quote(8 + LEN)),
        ("no length", |path| {
            let mut quote = datagram(path).quote(8);
            let at = if path.family() == Family::V4 { 2 } else { 4 };
            quote[at..at + 2].fill(0);
            quote
        }),
        ("another version", |path| {
            let mut quote = datagram(path).quote(8);
            quote[0] ^= 0x20;
            quote
        }),
        ("options", |path| {
            let datagram = datagram(path).ip_options(3).extension(60.into(), 1);
            datagram.quote(8)
        }),
        ("a first fragment", |path| {
            datagram(path).fragment(0, true).quote(8)
        }),
    ];
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        for (kind, (name, quote)) in kinds(path.family())
            .iter()
            .flat_map(|kind| quotes.map(|quote| (*kind, quote)))
        {
            let arrived = message(path, kind, quote(path));
            let name = format!("{path:?}, {kind:?}, {name}");
            rows.push(row(format!("{name}, a flow"), {
                let arrived = arrived.clone();
                move |at| {
                    Case::ingress(&arrived)
                        .flow(path.key(), path.established(at))
                        .drops(Outcome::RxDropIcmp)
                }
            }));
            rows.push(row(format!("{name}, no flow"), {
                let arrived = arrived.clone();
                move |_| Case::ingress(&arrived).drops(Outcome::RxDropIcmp)
            }));
            // A message that `egress` makes is recognised by its mark, which is then removed.
            rows.push(row(format!("{name}, our own"), move |_| {
                Case::ingress(&arrived)
                    .marked(Request::OwnError.mark())
                    .unmarks()
            }));
            let bare = Path::new(path.family(), 53, OTHER);
            let arrived = message(bare, kind, quote(bare));
            rows.push(row(format!("{name}, another port"), move |_| {
                Case::ingress(&arrived)
            }));
        }
        // IPv4's kernel looks at the ports wherever the fragment lay.
        let later = about(path, datagram(path).fragment(8, true).quote(8));
        rows.push(row(
            format!("{path:?}, a later fragment"),
            move |_| match path.family() {
                Family::V4 => Case::ingress(&later).drops(Outcome::RxDropIcmp),
                Family::V6 => Case::ingress(&later),
            },
        ));
    }
    check(&mut datapath(), rows);
}

/// A host applies an MTU or a redirect to all that it sends to an address, whatever the
/// message quotes: a ping that never was is enough. With a flow to that address only a
/// proof counts; the kernel has none for these.
#[test]
fn routes_to_peers_are_not_changed_by_anything_else() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        let (local, remote) = (path.local.ip(), path.remote.ip());
        let ping: u8 = if path.family() == Family::V4 { 0 } else { 128 };
        let number = if path.family() == Family::V4 { 1 } else { 58 };
        let quotes = [
            (
                "a ping",
                Packet::other(local, remote, number.into()).payload([ping, 0, 0, 0, 0, 0, 0, 0]),
            ),
            (
                "GRE",
                Packet::other(local, remote, 47.into()).payload([0; 8]),
            ),
            (
                "another port",
                Path::new(path.family(), 53, OTHER).outbound(),
            ),
        ];
        for (name, quote) in quotes {
            for kind in kinds(path.family()).iter().copied() {
                let changes = matches!(
                    (path.family(), kind.0, kind.1),
                    (Family::V4, 3, 4) | (Family::V4, 5, _) | (Family::V6, 2, _)
                );
                let arrived = message(path, kind, quote.quote(8));
                let name = format!("{path:?}, {name}, {kind:?}");
                rows.push(row(format!("{name}, to a peer"), {
                    let arrived = arrived.clone();
                    move |_| {
                        let case = Case::ingress(&arrived).knows(remote);
                        if changes {
                            case.drops(Outcome::RxDropIcmp)
                        } else {
                            case
                        }
                    }
                }));
                rows.push(row(format!("{name}, to another host"), move |_| {
                    Case::ingress(&arrived).knows(path.family().stranger())
                }));
            }
        }
    }
    // The kernel does not ask a redirect for a possible header length.
    for words in 0..5 {
        let path = Path::server(Family::V4);
        let ping = Packet::other(path.local.ip(), path.remote.ip(), 1.into());
        let mut quote = ping.payload([0; 8]).quote(8);
        quote[0] = 0x40 | words;
        let arrived = message(path, (5, 1, 0x0a00_0063), quote);
        rows.push(row(format!("a redirect about {words} words"), move |_| {
            Case::ingress(&arrived).drops(Outcome::RxDropIcmp)
        }));
    }
    check(&mut datapath(), rows);
}

/// IPv6 knows no such MTU: hosts ignore the message, and must not take it for one
/// that names more.
#[test]
fn an_impossible_mtu_counts_for_nothing() {
    let paths = paths().filter(|path| path.family() == Family::V6);
    let rows = paths.flat_map(|path| {
        [0, 12, 1268, 1279].map(|mtu| {
            row(format!("{path:?}, MTU {mtu}"), move |at| {
                let flow = path.established(at);
                let quote = last_segment(path, &flow).quote(20);
                dropped(at, path, flow, message(path, (2, 0, mtu), quote))
            })
        })
    });
    check(&mut datapath(), rows);
}

/// An ICMP message in an odd packet, and where no message of ours can come by.
#[test]
fn messages_in_odd_packets() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        let arrives = move |flow: &Flow| about(path, last_segment(path, flow).quote(20));
        let with_options = |packet: Packet| packet.ip_options(3).extension(60.into(), 1);
        rows.push(row(format!("{path:?}, options"), move |at| {
            let flow = path.established(at);
            let arrived = with_options(arrives(&flow));
            // They are not kept.
            becomes(at, path, flow, arrived, &about_datagram(path))
        }));
        let forged = about(path, datagram(path).quote(8));
        for (name, packet) in [
            ("options", with_options(forged.clone())),
            ("first fragment", forged.clone().fragment(0, true)),
            ("fragment of eight bytes", {
                let fragment = forged.clone().fragment(0, true);
                fragment.payload(vec![if path.family() == Family::V4 { 3 } else { 1 }; 8])
            }),
        ] {
            rows.push(row(format!("{path:?}, forged, {name}"), move |_| {
                Case::ingress(&packet).drops(Outcome::RxDropIcmp)
            }));
        }
        let ping = if path.family() == Family::V4 { 8 } else { 128 };
        let ping = message(path, (ping, 0, 0), vec![0; 1000]);
        rows.push(row(
            format!("{path:?}, first fragment of a ping"),
            move |_| Case::ingress(ping.clone().fragment(0, true)),
        ));
        rows.push(untouched("behind a tag", path, move |flow| {
            arrives(flow).vlan(7)
        }));
        for program in [Program::Egress, Program::Xdp, Program::XdpFrags] {
            rows.push(row(format!("{path:?} by {program:?}"), move |at| {
                let flow = path.established(at);
                Case::new(program, arrives(&flow)).flow(path.key(), flow)
            }));
        }
    }
    check(&mut datapath(), rows);
}

/// The kernel follows any number of extension headers, and asks for no length of what
/// begins with hop-by-hop options: an error that lowers the path MTU, or a datagram of an
/// owned port, must not pass behind either, from any sender, with a flow or without.
#[test]
fn nothing_hides_behind_headers_without_end() {
    let path = Path::server(Family::V6);
    let ping = Packet::other(path.local.ip(), path.remote.ip(), 58.into());
    let quote = ping.payload([128, 0, 0, 0, 0, 0, 0, 0]).quote(8);
    let packets = [
        ("ICMP", message(path, (2, 0, 1280), quote)),
        ("UDP", path.inbound()),
        ("TCP", path.inbound().segment(flags::SYN, 1, 0)),
    ];
    let mut rows: Vec<Row> = Vec::new();
    for (name, packet) in packets {
        let many = (0..9).fold(packet.clone(), |packet, _| packet.extension(60.into(), 1));
        rows.push(row(format!("{name} behind nine headers"), move |_| {
            Case::ingress(&many).drops(Outcome::RxDropChain)
        }));
        for first in [0, 60] {
            let mut bytes = packet.clone().extension(first.into(), 1).bytes();
            bytes[18..20].fill(0);
            rows.push(row(format!("{name} without length, {first}"), move |_| {
                Case::ingress(bytes.clone()).drops(Outcome::RxDropChain)
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
        for len in (0..=19).chain([20, 21, 28, 20 + LEN]) {
            rows.push(row(format!("{path:?}, {len} bytes"), move |at| {
                let flow = path.established(at);
                let arrived = about(path, last_segment(path, &flow).quote(len));
                match len {
                    0..=3 => Case::ingress(arrived).flow(path.key(), flow),
                    4..=7 => refused(at, path, flow, arrived),
                    _ => becomes(at, path, flow, arrived, &about_datagram(path)),
                }
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
fn a_damaged_message_counts_for_nothing() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        let header = 14 + path.family().header_len();
        let last = header + 8 + path.family().header_len() + 60;
        // The checksum, the second half, and the quote's last byte.
        for at_byte in [header + 2, header + 7, last] {
            rows.push(row(format!("{path:?}, byte {at_byte}"), move |at| {
                let flow = path.established(at);
                let mut arrived = about(path, last_segment(path, &flow).quote(61)).bytes();
                arrived[at_byte] ^= 4;
                let case = Case::ingress(arrived).flow(path.key(), flow);
                case.left(&last_segment(path, &flow), at, 0)
                    .drops(Outcome::RxDropIcmp)
            }));
        }
    }
    check(&mut datapath(), rows);
}

/// Headers before the segment are not quoted, and not needed.
#[test]
fn quotes_with_options() {
    let mut rows: Vec<Row> = Vec::new();
    for family in Family::ALL {
        let path = Path::server(family);
        let all = options::carried(family).into_iter();
        for options in all.chain(options::refused(family)) {
            for len in [8, 18, 20] {
                let name = format!("{options:?}, {len} bytes");
                let options = options.clone();
                rows.push(row(name, move |at| {
                    let flow = path.established(at);
                    let quoted = options.on(last_segment(path, &flow));
                    let arrived = about(path, quoted.quote(len));
                    becomes(at, path, flow, arrived, &about_datagram(path))
                }));
            }
        }
        rows.push(row(format!("{family:?}, a first fragment"), move |at| {
            let flow = path.established(at);
            let quoted = last_segment(path, &flow).fragment(0, true);
            let expected = match family {
                Family::V4 => datagram(path).fragment(0, true),
                Family::V6 => datagram(path),
            };
            let expected = about(path, expected.quote(8));
            becomes(at, path, flow, about(path, quoted.quote(20)), &expected)
        }));
    }
    check(&mut datapath(), rows);
}

/// RFC 5927: only what a segment of the last two seconds says, and nothing a byte away
/// from it.
#[test]
fn only_what_was_sent_lately_counts() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        for state in [State::Established, State::FinSent, State::Closed] {
            let case = move |at, name: &str, change: fn(Packet) -> Packet, len| {
                let flow = in_state(path.established(at), state);
                let quoted = change(last_segment(path, &flow));
                let arrived = about(path, quoted.quote(len));
                match name {
                    "as it was" => becomes(at, path, flow, arrived, &about_datagram(path)),
                    _ => refused(at, path, flow, arrived),
                }
            };
            type Change = fn(Packet) -> Packet;
            let changes: [(&str, Change); 8] = [
                ("as it was", |packet| packet),
                ("one number ahead", |packet| packet.sequence_ahead(1)),
                ("one number behind", |packet| {
                    packet.sequence_ahead(u32::MAX)
                }),
                ("a datagram behind", |packet| {
                    packet.sequence_ahead(1400u32.wrapping_neg())
                }),
                ("far ahead", |packet| packet.sequence_ahead(1 << 23)),
                ("a byte longer", |packet| packet.payload(payload(LEN + 1))),
                ("a byte shorter", |packet| packet.payload(payload(LEN - 1))),
                ("nothing in it", |packet| packet.payload([])),
            ];
            for (name, change) in changes {
                for len in [8, 18, 20] {
                    rows.push(row(format!("{path:?} {state:?} {name}, {len} bytes"), {
                        move |at| case(at, name, change, len)
                    }));
                }
            }
            // Quoted values that the attacker cannot know.
            for (name, change) in [
                (
                    "another acknowledgement",
                    (|packet: Packet| packet.acknowledging(5)) as Change,
                ),
                ("another window", |packet| packet.window(0xf0ff)),
                ("other data", |packet| packet.payload(vec![7; LEN])),
            ] {
                rows.push(row(format!("{path:?} {state:?} {name}"), move |at| {
                    case(at, name, change, 18)
                }));
            }
        }
        for (ticks, counts) in [(LIFETIME, true), (LIFETIME + 1, false)] {
            rows.push(row(format!("{path:?} {ticks} ticks ago"), move |at| {
                let flow = path.established(at);
                let segment = last_segment(path, &flow);
                let case = Case::ingress(about(path, segment.quote(20)))
                    .flow(path.key(), flow)
                    .left(&segment, at, ticks);
                if counts {
                    case.passes_as(about_datagram(path)).counts(Outcome::RxIcmp)
                } else {
                    case.drops(Outcome::RxDropIcmp)
                        .changes(path.key(), |flow| flow.distrusted_at = at.tick())
                }
            }));
        }
        rows.push(row(format!("{path:?}, sent to another flow"), move |at| {
            let flow = path.established(at);
            let other = Path::with_stranger(path.family());
            let segment = last_segment(path, &flow);
            Case::ingress(about(path, segment.quote(8)))
                .flow(path.key(), flow)
                .left(&last_segment(other, &flow), at, 0)
                .drops(Outcome::RxDropIcmp)
                .changes(path.key(), |flow| flow.distrusted_at = at.tick())
        }));
        // A guess with eight bytes, which may be right by chance, is one in a second.
        for (ticks, trusted) in [(DISTRUST - 1, false), (DISTRUST, true)] {
            for len in [8, 18] {
                rows.push(row(
                    format!("{path:?}, {ticks} after a guess, {len}"),
                    move |at| {
                        let mut flow = path.established(at);
                        flow.distrusted_at = at.tick().wrapping_sub(ticks);
                        let arrived = about(path, last_segment(path, &flow).quote(len));
                        if trusted || len == 18 {
                            becomes(at, path, flow, arrived, &about_datagram(path))
                        } else {
                            refused(at, path, flow, arrived)
                        }
                    },
                ));
            }
        }
        for state in [State::SynSent, State::SynReceived] {
            for (ahead, counts) in [(0, true), (1, false), (u32::MAX, false)] {
                rows.push(row(
                    format!("{path:?} {state:?} {ahead:#x} ahead"),
                    move |at| {
                        let flow = in_state(path.established(at), state);
                        let sequence = flow.iss.wrapping_add(ahead);
                        let quoted = datagram(path).segment(flags::SYN, sequence, 1);
                        let arrived = about(path, quoted.quote(8));
                        if counts {
                            becomes(at, path, flow, arrived, &about_datagram(path))
                        } else {
                            refused(at, path, flow, arrived)
                        }
                    },
                ));
            }
        }
        for state in [State::SynSent, State::SynReceived] {
            // The numbers of a SYN to a phantun are known to everybody.
            rows.push(row(format!("{path:?} {state:?} to a phantun"), move |at| {
                let flow = Flow {
                    iss: 0,
                    ..in_state(path.established(at), state)
                };
                let quoted = datagram(path).segment(flags::SYN, 0, 1);
                refused(at, path, flow, about(path, quoted.quote(8)))
            }));
            // No SYN is too big.
            rows.push(row(format!("{path:?} {state:?} too big"), move |at| {
                let flow = in_state(path.established(at), state);
                let quoted = datagram(path).segment(flags::SYN, flow.iss, 1);
                let arrived = message(path, too_big(path, 1300), quoted.quote(8));
                refused(at, path, flow, arrived)
            }));
        }
        rows.push(row(format!("{path:?}, the SYN itself"), move |at| {
            let flow = path.opening(at);
            let syn = path.control(at, flags::SYN, flow.iss, 0);
            // It has twelve bytes of options, and twelve bytes are taken off.
            let datagram = path.outbound().payload(payload(12)).without_checksum();
            let datagram = datagram.identified(syn.fields().identification);
            let arrived = about(path, syn.quote(32));
            becomes(at, path, flow, arrived, &about(path, datagram.quote(8)))
        }));
    }
    check(&mut datapath(), rows);
}

/// The numbers of a flow that called a phantun are not random: eight bytes prove nothing.
#[test]
fn a_quote_without_a_checksum_proves_nothing_of_a_phantun() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        for (iss, len, counts) in [(0, 8, false), (0, 18, true), (1, 8, true)] {
            rows.push(row(format!("{path:?} {iss} {len}"), move |at| {
                let flow = Flow {
                    iss,
                    ..path.established(at)
                };
                let arrived = about(path, last_segment(path, &flow).quote(len));
                match counts {
                    true => becomes(at, path, flow, arrived, &about_datagram(path)),
                    false => refused(at, path, flow, arrived),
                }
            }));
        }
    }
    check(&mut datapath(), rows);
}

/// The bit of [`Flow::label`] of a flow that had fragments.
const TOLD: u32 = 1 << 30;

/// A segment that carries a fragment has more headers around it, so its sender is told less. A
/// quote without the window does not say what the segment carried: what its flow had decides.
#[test]
fn an_error_about_a_fragment_leaves_room_for_its_headers() {
    const MTU: u32 = 1400;
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        let growth = match path.family() {
            Family::V4 => 28,
            Family::V6 => 20,
        };
        for (window, quoted, has_fragments, less) in [
            (0xf1ff, 20, false, growth),
            (0xf1ff, 16, true, growth),
            (0xf1ff, 8, true, growth),
            (0xf1ff, 8, false, 12),
            (0xf0ff, 20, true, 12),
        ] {
            let name = format!("{path:?} {window:#x} {quoted} {has_fragments}");
            rows.push(row(name, move |at| {
                let flow = Flow {
                    label: if has_fragments { TOLD } else { 0 },
                    ..path.established(at)
                };
                let segment = last_segment(path, &flow).window(window);
                let arrived = message(path, too_big(path, MTU), segment.clone().quote(quoted));
                let told = message(path, too_big(path, MTU - less), datagram(path).quote(8));
                Case::ingress(arrived)
                    .flow(path.key(), flow)
                    .left(&segment, at, 0)
                    .passes_as(&told)
                    .counts(Outcome::RxIcmp)
            }));
        }
    }
    check(&mut datapath(), rows);
}

/// Without PSH a router with GRO forwards several segments as one, and quotes that, whose checksum is
/// another.
#[test]
fn an_error_about_merged_segments_counts_under_a_veil() {
    let merged = |path, flow: &Flow, len| last_segment(path, flow).payload(payload(len));
    let mut veiling = Datapath::new(&Config {
        veil: Some(0),
        ..Config::default()
    });
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        rows.push(row(format!("{path:?}"), move |at| {
            let flow = path.established(at);
            let arrived = about(path, merged(path, &flow, 4200).quote(20));
            let told = about(path, datagram(path).payload(payload(4200)).quote(8));
            becomes(at, path, flow, arrived, &told)
        }));
        rows.push(row(format!("{path:?}, not trusted"), move |at| {
            let mut flow = path.established(at);
            flow.distrusted_at = at.tick();
            let arrived = about(path, merged(path, &flow, 4200).quote(20));
            refused(at, path, flow, arrived)
        }));
        rows.push(row(format!("{path:?}, shorter"), move |at| {
            let flow = path.established(at);
            let arrived = about(path, merged(path, &flow, 100).quote(20));
            refused(at, path, flow, arrived)
        }));
    }
    check(&mut veiling, rows);
    let rows = paths().map(|path| {
        row(format!("{path:?}, no veil"), move |at| {
            let flow = path.established(at);
            let arrived = about(path, merged(path, &flow, 4200).quote(20));
            refused(at, path, flow, arrived)
        })
    });
    check(&mut datapath(), rows.collect::<Vec<_>>());
}

//! Egress: a datagram of an established flow becomes a segment.

use xdptun_common::tunnel::config::Request;
use xdptun_common::tunnel::outcome::Outcome;
use xdptun_common::tunnel::state::State;
use xdptun_test_datapath::moment::window;
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::{Case, Family, Moment, Packet, Path, Row, check, flags, row};

use crate::effects::{in_state, sent};
use crate::{datapath, largest, lengths, paths};

/// The datagram leaves as the next segment of its flow.
pub fn disguises(at: Moment, path: Path, datagram: &Packet, len: usize) -> Case {
    let flow = path.established(at);
    Case::egress(datagram)
        .flow(path.key(), flow)
        .passes_as(
            datagram
                .clone()
                .carried(flow.snd_nxt, flow.rcv_nxt, window(flow.rcv_nxt)),
        )
        .counts(Outcome::TxDisguised)
        .changes(path.key(), |flow| {
            sent(flow, at, len);
            flow.kept_fields = flow.kept_fields.seen(datagram.fields());
        })
}

/// Each length and kind of checksum that is complete.
pub fn every_length() -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        for len in lengths().chain([largest(path.family())]) {
            let datagram = path.outbound().payload(payload(len));
            rows.push(row(format!("{path:?}, {len} bytes"), {
                let datagram = datagram.clone();
                move |at| disguises(at, path, &datagram, len)
            }));
            rows.push(row(format!("{path:?}, {len} bytes, no checksum"), {
                let datagram = datagram.without_checksum();
                move |at| disguises(at, path, &datagram, len)
            }));
        }
    }
    rows
}

#[test]
fn every_length_becomes_the_exact_segment() {
    check(&mut datapath(), every_length());
}

/// A datagram that has waited with the daemon is disguised like any other, and its mark goes.
#[test]
fn a_datagram_sent_again_loses_its_mark() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        for len in [0, 100] {
            let datagram = path.outbound().payload(payload(len));
            rows.push(row(format!("{path:?}, {len} bytes"), move |at| {
                let mark = Request::Resend.mark();
                disguises(at, path, &datagram, len).marked(mark).unmarks()
            }));
        }
    }
    check(&mut datapath(), rows);
}

#[test]
fn ip_fields_are_kept_but_for_df() {
    let mut rows: Vec<Row> = Vec::new();
    for family in Family::ALL {
        let path = Path::client(family);
        let plain = path.outbound().payload(payload(100));
        for (name, datagram) in [
            ("TOS and ECN", plain.clone().tos(0xb9)),
            ("TTL 1", plain.clone().ttl(1)),
            ("TTL 255", plain.clone().ttl(255)),
            ("ID", plain.clone().id(0xbeef)),
            ("no DF", plain.clone().without_df()),
            ("all", plain.tos(0xff).ttl(7).id(0xffff).without_df()),
        ] {
            rows.push(row(format!("{family:?} {name}"), move |at| {
                disguises(at, path, &datagram, 100)
            }));
        }
    }
    check(&mut datapath(), rows);
}

/// The first word of the payload that makes the checksum at `at` of the packet
/// come out as zero: the checksum it has with a zero in its place (RFC 1071).
fn cancel(packet: &Packet, at: usize) -> [u8; 2] {
    let bytes = packet.bytes();
    [bytes[at], bytes[at + 1]]
}

#[test]
fn a_checksum_of_zero_is_handled() {
    let mut rows: Vec<Row> = Vec::new();
    for family in Family::ALL {
        for len in [2, 3, 46, 101] {
            let path = Path::client(family);
            let with_word = move |word: [u8; 2]| {
                let mut payload = payload(len);
                payload[..2].copy_from_slice(&word);
                path.outbound().payload(payload)
            };
            let transport = 14 + family.header_len();
            rows.push(row(format!("{family:?} {len}, UDP"), move |at| {
                let word = cancel(&with_word([0; 2]), transport + 6);
                let datagram = with_word(word);
                assert_eq!(cancel(&datagram, transport + 6), [0xff; 2]);
                disguises(at, path, &datagram, len)
            }));
            rows.push(row(format!("{family:?} {len}, TCP"), move |at| {
                let flow = path.established(at);
                let segment = |word| {
                    with_word(word)
                        .segment(flags::DATA, flow.snd_nxt, flow.rcv_nxt)
                        .window(window(flow.rcv_nxt))
                };
                let word = cancel(&segment([0; 2]), transport + 16);
                assert_eq!(cancel(&segment(word), transport + 16), [0; 2]);
                disguises(at, path, &with_word(word), len)
            }));
        }
    }
    check(&mut datapath(), rows);
}

#[test]
fn padding_is_cut_off() {
    let rows = (0..=17).map(|len| {
        row(format!("{len} bytes in a frame of 60"), move |at| {
            let path = Path::client(Family::V4);
            let datagram = path.outbound().payload(payload(len));
            let case = disguises(at, path, &datagram, len);
            case.meets(datagram.padded_to(60))
        })
    });
    let large = row("100 bytes in an IPv6 frame of 200", |at| {
        let path = Path::server(Family::V6);
        let datagram = path.outbound().payload(payload(100));
        let case = disguises(at, path, &datagram, 100);
        case.meets(datagram.padded_to(200))
    });
    check(&mut datapath(), rows.chain([large]));
}

#[test]
fn damage_stays_visible() {
    let mut rows: Vec<Row> = Vec::new();
    for family in Family::ALL {
        for len in [1, 64, 999] {
            rows.push(row(format!("{family:?} {len}"), move |at| {
                let path = Path::client(family);
                let flow = path.established(at);
                let datagram = path.outbound().payload(payload(len));
                let mut damaged = datagram.bytes();
                *damaged.last_mut().expect("payload") ^= 0x10;
                let segment = datagram
                    .clone()
                    .segment(flags::DATA, flow.snd_nxt, flow.rcv_nxt)
                    .window(window(flow.rcv_nxt));
                let mut expected = segment.bytes();
                *expected.last_mut().expect("payload") ^= 0x10;
                disguises(at, path, &datagram, len)
                    .meets(damaged)
                    .passes_as(expected)
            }));
        }
    }
    check(&mut datapath(), rows);
}

#[test]
fn the_window_follows_what_came() {
    let numbers = [0, 0x00ff_ffff, 0x0100_0000, 0x7fff_ffff, u32::MAX];
    let rows = numbers.map(|number| {
        row(format!("{number:#x}"), move |at| {
            let path = Path::client(Family::V4);
            let mut flow = path.established(at);
            flow.rcv_nxt = number;
            let datagram = path.outbound().payload(payload(50));
            Case::egress(&datagram)
                .flow(path.key(), flow)
                .passes_as(
                    datagram
                        .segment(flags::DATA, flow.snd_nxt, number)
                        .window(0xf000 | (number >> 24) as u16),
                )
                .counts(Outcome::TxDisguised)
                .changes(path.key(), |flow| sent(flow, at, 50))
        })
    });
    check(&mut datapath(), rows);
}

#[test]
fn a_segment_acknowledges_what_came() {
    check(
        &mut datapath(),
        [row("70,000 bytes not yet acknowledged", |at| {
            let path = Path::server(Family::V6);
            let mut flow = path.established(at);
            flow.acked = flow.rcv_nxt.wrapping_sub(70_000);
            let datagram = path.outbound().payload(payload(33));
            disguises(at, path, &datagram, 33)
                .flow(path.key(), flow)
                .changes(path.key(), |flow| sent(flow, at, 33))
        })],
    );
}

#[test]
fn a_mark_of_someone_else_is_kept() {
    let rows = [1, 0x7864_6fff, 0x7864_7005, u32::MAX].map(|mark| {
        row(format!("{mark:#x}"), move |at| {
            let path = Path::client(Family::V4);
            let datagram = path.outbound().payload(payload(40));
            disguises(at, path, &datagram, 40).marked(mark)
        })
    });
    check(&mut datapath(), rows);
}

#[test]
fn a_closing_flow_takes_no_datagram() {
    let rows = Family::ALL.map(|family| {
        row(format!("{family:?}"), move |at| {
            let path = Path::client(family);
            let flow = in_state(path.established(at), State::FinSent);
            Case::egress(path.outbound().payload(payload(40)))
                .flow(path.key(), flow)
                .drops(Outcome::TxDropClosing)
        })
    });
    check(&mut datapath(), rows);
}

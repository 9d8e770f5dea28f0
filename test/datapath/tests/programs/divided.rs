//! Egress: data of WireGuard that is too long for a segment leaves as two fragments. That depends on
//! a real interface, for its MTU, and because the first half leaves by it.

use xdptun_common::tunnel::config::Phantuns;
use xdptun_common::tunnel::event::Kind;
use xdptun_common::tunnel::outcome::{Outcome, Sent};
use xdptun_common::tunnel::state::Flow;
use xdptun_lab::checksum::transport_sum;
use xdptun_test_datapath::moment::window;
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::{Case, Config, Datapath, Family, Packet, Path, Row, check, flags, row};

use crate::carried::{TAKES, TOLD, asks_at_most_once_a_second, second};
use crate::effects::sent;
use crate::largest;
use crate::too_big::{MTU, on_device, returns, told};

/// The receiver's index and the low half of the counter, both little-endian.
const HEADER: [u8; 16] = [
    4, 0, 0, 0, 0x78, 0x56, 0x34, 0x12, 0x0a, 2, 0, 0, 1, 0, 0, 0,
];
/// The number of the fragments that these bytes give.
const ID: u32 = 0x1234_5678 ^ 0x0000_020a;

/// A datagram of WireGuard this much longer than fits.
fn data(path: Path, excess: usize) -> Packet {
    let mut data = payload(largest(path.family()) + excess);
    data[..16].copy_from_slice(&HEADER);
    path.outbound().payload(data).tos(0x2a).ttl(9).id(0x4321)
}

/// Runs rows on an interface that the programs may use.
fn check_on_device(rows: impl FnOnce(u32) -> Vec<Row> + Send) {
    on_device(MTU, |_, ifindex| {
        let config = Config {
            ifindex,
            ..Config::default()
        };
        check(&mut Datapath::new(&config), rows(ifindex));
    });
}

/// The frame whose checksum a device is to write: that of the pseudo-header alone is there.
fn pending(path: Path, datagram: &Packet) -> Vec<u8> {
    let mut frame = datagram.bytes();
    let udp = 14 + path.family().header_len();
    let nothing = vec![0; frame.len() - udp];
    let sum = transport_sum(path.local.ip(), path.remote.ip(), 17, &nothing);
    frame[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
    frame
}

#[test]
fn the_packet_becomes_the_second_half() {
    check_on_device(|ifindex| {
        let mut rows: Vec<Row> = Vec::new();
        for path in crate::paths() {
            for excess in 1..=12 {
                let whole = data(path, excess);
                let mut datagrams = vec![
                    ("", whole.bytes(), whole.clone()),
                    (
                        "padded",
                        whole.clone().padded_to(1600).bytes(),
                        whole.clone(),
                    ),
                    ("pending", pending(path, &whole), whole.clone()),
                ];
                if path.family() == Family::V4 {
                    let without = whole.clone().without_checksum();
                    datagrams.push(("without checksum", without.bytes(), without));
                    let without = whole.clone().without_df();
                    datagrams.push(("without DF", without.bytes(), whole.clone()));
                }
                for (name, frame, whole) in datagrams {
                    rows.push(row(format!("{path:?} {excess} {name}"), move |at| {
                        let flow = Flow {
                            label: TAKES,
                            interface: ifindex,
                            ..path.established(at)
                        };
                        let len = 8 + largest(path.family()) + excess;
                        let half = (len / 2).next_multiple_of(8);
                        let rest = ((half / 8) as u16, len - half, false);
                        let numbers = (flow.snd_nxt, flow.rcv_nxt, window(flow.rcv_nxt));
                        let segment = whole.clone().identified(ID as u16 + rest.0);
                        Case::egress(frame.clone())
                            .on(ifindex)
                            .flow(path.key(), flow)
                            .passes_as(segment.carried_part(ID, rest, numbers))
                            .counts(Outcome::TxFragment)
                            .reports(Kind::Fragmented, path.key())
                            .changes(path.key(), |flow| {
                                sent(flow, at, 8 + rest.1);
                                flow.kept_fields = flow.kept_fields.seen(whole.fields());
                                flow.label |= TOLD;
                            })
                    }));
                }
            }
        }
        rows
    });
}

/// As before the first fragment.
#[test]
fn a_peer_that_did_not_say_it_takes_fragments_is_asked() {
    check_on_device(|ifindex| {
        let mut rows: Vec<Row> = Vec::new();
        for path in crate::paths() {
            for asked_ago in [None, Some(0), Some(1)] {
                let datagram = data(path, 1);
                rows.push(row(format!("{path:?} {asked_ago:?}"), move |at| {
                    let flow = Flow {
                        label: asked_ago.map_or(0, |ago| second(at, ago)),
                        ..path.established(at)
                    };
                    let case = Case::egress(&datagram).on(ifindex).flow(path.key(), flow);
                    asks_at_most_once_a_second(case, at, path, flow, asked_ago)
                }));
            }
        }
        rows
    });
}

/// It does not wait for the handshake: when it is sent again, the peer has not said yet that it takes
/// fragments.
#[test]
fn data_that_is_too_long_opens_a_flow_and_is_lost() {
    check_on_device(|ifindex| {
        let mut rows: Vec<Row> = Vec::new();
        for path in crate::paths() {
            let datagram = data(path, 12);
            let opening = move |at| {
                let mut opened = path.opening(at);
                opened.interface = ifindex;
                let fields = data(path, 12).fields();
                opened.kept_fields = opened.kept_fields.seen(fields);
                opened.label = fields.label;
                opened
            };
            rows.push(row(format!("{path:?}"), {
                let datagram = datagram.clone();
                move |at| {
                    let opened = opening(at);
                    let unopened = Flow { syns: 0, ..opened };
                    Case::egress(&datagram)
                        .on(ifindex)
                        .passes_as(path.control_of(at, &unopened, flags::SYN, opened.iss, 0))
                        .counts(Outcome::TxOpenedLost)
                        .sends(Sent::Syn)
                        .adds(path.key(), opened)
                }
            }));
            rows.push(row(format!("{path:?}, called a moment ago"), move |at| {
                Case::egress(&datagram)
                    .on(ifindex)
                    .flow(path.key(), opening(at))
                    .drops(Outcome::TxDropFragment)
            }));
        }
        rows
    });
}

/// Other messages of WireGuard are short, and other protocols begin otherwise.
#[test]
fn the_sender_of_other_datagrams_is_told() {
    check_on_device(|ifindex| {
        let mut rows: Vec<Row> = Vec::new();
        for path in crate::paths() {
            for (at, byte) in [(0, 1), (0, 0x44), (1, 1), (2, 1), (3, 1)] {
                let mut begun = payload(largest(path.family()) + 12);
                begun[..16].copy_from_slice(&HEADER);
                begun[at] = byte;
                let datagram = path.outbound().payload(begun);
                rows.push(row(format!("{path:?} {at} {byte}"), move |now| {
                    returns(ifindex, &datagram, &told(path, MTU, &datagram))
                        .flow(path.key(), path.established(now))
                }));
            }
        }
        rows
    });
}

#[test]
fn the_sender_to_a_phantun_is_told() {
    on_device(MTU, |_, ifindex| {
        let config = Config {
            phantuns: Phantuns::All,
            ..Config::default()
        };
        let rows = Family::ALL.map(|family| {
            let path = Path::client(family);
            let datagram = data(path, 12);
            row(format!("{path:?}"), move |at| {
                returns(ifindex, &datagram, &told(path, MTU, &datagram))
                    .flow(path.key(), path.established(at))
            })
        });
        check(&mut Datapath::new(&config), rows);
    });
}

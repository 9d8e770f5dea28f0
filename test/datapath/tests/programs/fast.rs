//! XDP: only data of established flows is taken, and plain UDP refused;
//! everything else is left to tc, untouched and uncounted.

use xdptun_common::counter::Outcome;
use xdptun_common::flow::State;
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::{Case, Family, Packet, Path, Program, Row, check, flags, row};

use crate::effects::in_state;
use crate::restored::segment;
use crate::{datapath, paths};

#[test]
fn all_but_the_common_case_is_left_to_tc() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        let key = path.key();
        let segment = |flags, ahead: [u32; 2], len| -> Packet {
            path.inbound().payload(payload(len)).segment(
                flags,
                0xffff_fff0_u32.wrapping_add(ahead[0]),
                0xffff_ffe0_u32.wrapping_add(ahead[1]),
            )
        };
        let data = || segment(flags::DATA, [0, 0], 100);
        const FAR: u32 = (1 << 26) + 1;
        let table = [
            ("ACK", segment(flags::ACK, [0, 0], 0)),
            ("probe", segment(flags::ACK, [u32::MAX, 0], 0)),
            ("SYN", segment(flags::SYN, [0, 0], 0)),
            ("SYN-ACK", segment(flags::SYN | flags::ACK, [0, 0], 0)),
            ("FIN", segment(flags::FIN | flags::ACK, [0, 0], 0)),
            (
                "FIN with data",
                segment(flags::FIN | flags::DATA, [0, 0], 9),
            ),
            ("RST", segment(flags::RST, [0, 0], 0)),
            (
                "RST with data",
                segment(flags::RST | flags::DATA, [0, 0], 9),
            ),
            ("no ACK", segment(flags::PSH, [0, 0], 100)),
            ("far ahead", segment(flags::DATA, [FAR, 0], 100)),
            (
                "far behind",
                segment(flags::DATA, [FAR.wrapping_neg(), 0], 100),
            ),
            ("strange ACK", segment(flags::DATA, [0, FAR], 100)),
            ("TCP options", data().options(&[1; 12])),
            ("IP options", data().ip_options(2)),
            ("first fragment", data().fragment(0, true)),
            ("later fragment", data().fragment(8, true)),
            ("longer than its header says", data().transport_len(19)),
        ];
        for (name, packet) in table {
            if path.family() == Family::V6 && name == "IP options" {
                continue;
            }
            rows.push(row(format!("{path:?} {name}"), move |at| {
                Case::new(Program::FastIn, &packet).flow(key, path.established(at))
            }));
        }
        for state in [
            State::Closed,
            State::SynSent,
            State::SynReceived,
            State::FinSent,
        ] {
            let packet = data();
            rows.push(row(format!("{path:?} data in {state:?}"), move |at| {
                let flow = in_state(path.established(at), state);
                Case::new(Program::FastIn, &packet).flow(key, flow)
            }));
        }
        let packet = data();
        rows.push(row(format!("{path:?} data without a flow"), move |_| {
            Case::new(Program::FastIn, &packet)
        }));
    }
    let path = Path::client(Family::V6);
    for number in [0, 43, 60] {
        rows.push(row(format!("extension header {number}"), move |at| {
            let flow = path.established(at);
            let datagram = path.inbound().payload(payload(20));
            let packet = segment(&flow, &datagram).extension(number.into(), 1);
            Case::new(Program::FastIn, packet).flow(path.key(), flow)
        }));
    }
    check(&mut datapath(), rows);
}

/// tc restores that segment and acknowledges it as well.
#[test]
fn a_segment_whose_acknowledgement_is_due() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        for (name, unacknowledged, sent_ms, due) in [
            ("bytes", 65_536 - 100, 0, true),
            ("fewer bytes", 65_536 - 101, 0, false),
            ("time", 0, 40, true),
            ("less time", 0, 39, false),
            ("bytes ahead", 100u32.wrapping_neg(), 1000, false),
        ] {
            rows.push(row(format!("{path:?} {name}"), move |at| {
                let mut flow = path.established(at);
                flow.acked = flow.rcv_nxt.wrapping_sub(unacknowledged);
                flow.sent_at = at.before_ms(sent_ms);
                let datagram = path.inbound().payload(payload(100));
                if due {
                    Case::new(Program::FastIn, segment(&flow, &datagram)).flow(path.key(), flow)
                } else {
                    crate::restored::restores(Program::FastIn, at, path, &datagram, 100)
                        .flow(path.key(), flow)
                        .changes(path.key(), |flow| {
                            crate::effects::received(flow, at, 100);
                        })
                }
            }));
        }
    }
    check(&mut datapath(), rows);
}

/// tc could not tell it from what XDP has restored.
#[test]
fn plain_udp_is_refused() {
    let mut rows: Vec<Row> = Vec::new();
    for program in [Program::Ingress, Program::FastIn] {
        for path in paths() {
            let plain = path.inbound().payload(payload(100));
            let mut table = vec![
                ("", plain.clone()),
                (" without payload", path.inbound()),
                (" without checksum", plain.clone().without_checksum()),
                (" first fragment", plain.clone().fragment(0, true)),
                (" IP options", plain.clone().ip_options(4)),
                (" of wrong length", plain.clone().udp_length(3)),
            ];
            if path.family() == Family::V6 {
                table.push((" extension", plain.clone().extension(60.into(), 3)));
            }
            for (name, packet) in table {
                rows.push(row(format!("{program:?} {path:?}{name}"), move |at| {
                    Case::new(program, &packet)
                        .flow(path.key(), path.established(at))
                        .drops(Outcome::RxDropPlainUdp)
                }));
            }
            rows.push(row(format!("{program:?} {path:?}, no flow"), move |_| {
                Case::new(program, &plain).drops(Outcome::RxDropPlainUdp)
            }));
        }
    }
    check(&mut datapath(), rows);
}

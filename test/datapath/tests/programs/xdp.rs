//! XDP: only data of established flows is taken, and plain UDP refused;
//! everything else is left to tc, untouched and uncounted.

use xdptun_common::tunnel::outcome::Outcome;
use xdptun_common::tunnel::state::State;
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::{Case, Family, Packet, Path, Program, Row, check, flags, row};

use crate::effects::in_state;
use crate::restored::segment;
use crate::{datapath, largest, options, paths};

/// All but the common case.
fn left_to_tc(program: Program) -> Vec<Row> {
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
            (
                "longer than the MTU",
                segment(flags::DATA, [0, 0], largest(path.family()) + 1),
            ),
            ("first fragment", data().fragment(0, true)),
            ("later fragment", data().fragment(8, true)),
            ("longer than its header says", data().transport_len(19)),
        ];
        for (name, packet) in table {
            rows.push(row(format!("{path:?} {name}"), move |at| {
                Case::new(program, &packet).flow(key, path.established(at))
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
                Case::new(program, &packet).flow(key, flow)
            }));
        }
        let packet = data();
        rows.push(row(format!("{path:?} data without a flow"), move |_| {
            Case::new(program, &packet)
        }));
    }
    for family in Family::ALL {
        let path = Path::client(family);
        for options in options::carried(family)
            .into_iter()
            .chain(options::refused(family))
        {
            rows.push(row(format!("{options:?}"), move |at| {
                let flow = path.established(at);
                let datagram = path.inbound().payload(payload(20));
                let packet = options.on(segment(&flow, &datagram));
                Case::new(program, packet).flow(path.key(), flow)
            }));
        }
    }
    rows
}

#[test]
fn all_but_the_common_case_is_left_to_tc() {
    for program in Program::XDP {
        check(&mut datapath(), left_to_tc(program));
    }
}

/// tc restores that segment and acknowledges it as well.
#[test]
fn a_segment_whose_acknowledgement_is_due() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        let table = [
            ("bytes", 262_144 - 100, 1000, 0, true),
            ("fewer bytes", 262_144 - 101, 1000, 0, false),
            ("early bytes", 32_768 - 100, 490, 0, true),
            ("fewer early bytes", 32_768 - 101, 490, 0, false),
            ("as many, late", 32_768 - 100, 501, 0, false),
            ("time", 0, 1000, 480, true),
            ("less time", 0, 1000, 470, false),
            ("bytes ahead", 100u32.wrapping_neg(), 1000, 1000, false),
        ];
        let by_each = |program| table.map(|due| (program, due));
        for (program, (name, unacknowledged, age, sent_ms, due)) in
            Program::XDP.into_iter().flat_map(by_each)
        {
            rows.push(row(format!("{program:?} {path:?} {name}"), move |at| {
                let mut flow = path.established(at);
                flow.acked = flow.rcv_nxt.wrapping_sub(unacknowledged);
                flow.established_at = at.before_ms(age);
                // What this host sends is acknowledged.
                flow.ack_marks.since = at.tick();
                flow.sent_at = at.before_ms(sent_ms);
                let datagram = path.inbound().payload(payload(100));
                if due {
                    Case::new(program, segment(&flow, &datagram)).flow(path.key(), flow)
                } else {
                    crate::restored::restores(program, at, path, &datagram, 100)
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
    for program in Program::INBOUND {
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

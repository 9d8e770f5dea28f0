//! What depends on a real interface: its MTU, and the clone that leaves by it.

use std::time::Duration;

use aya::programs::TcAttachType;
use aya::programs::tc::qdisc_add_clsact;
use xdptun_common::counter::{Outcome, Sent};
use xdptun_lab::{Capture, Direct, Host, link, wait};
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::{
    Case, Config, Datapath, Family, Moment, Path, Program, Row, check, flags, row,
};

use crate::effects::acknowledged;
use crate::largest;
use crate::restored::restores;

#[test]
fn a_segment_that_exceeds_the_mtu() {
    let net = Direct::new().unwrap();
    let ifindex = link::index(&net.a.netns, Host::DEV).unwrap();
    let mut rows: Vec<Row> = Vec::new();
    for family in Family::ALL {
        let path = Path::client(family);
        let largest = largest(family);
        // A datagram of these lengths fits by itself.
        for excess in [1, 2, 11, 12] {
            let datagram = path.outbound().payload(payload(largest + excess));
            let again = datagram.clone();
            rows.push(row(format!("{family:?}, {excess} too many"), move |at| {
                Case::egress(&datagram)
                    .on(ifindex)
                    .flow(path.key(), path.established(at))
                    .drops(Outcome::TxDropTooBig)
            }));
            rows.push(row(format!("{family:?}, {excess} too many, no flow"), {
                move |_| {
                    Case::egress(&again)
                        .on(ifindex)
                        .drops(Outcome::TxDropTooBig)
                }
            }));
        }
        rows.push(row(format!("{family:?}, just fits"), move |at| {
            let datagram = path.outbound().payload(payload(largest));
            crate::established::disguises(at, path, &datagram, largest).on(ifindex)
        }));
        rows.push(row(format!("{family:?}, just fits, padded"), move |at| {
            let datagram = path.outbound().payload(payload(largest));
            crate::established::disguises(at, path, &datagram, largest)
                .on(ifindex)
                .meets(datagram.padded_to(1514))
        }));
    }
    net.a
        .netns
        .enter(|| check(&mut Datapath::new(&Config::default()), rows))
        .unwrap();
}

/// Ingress sends a clone of the segment out of the interface, where egress makes
/// it the acknowledgement; what the clone becomes must not show in the datagram.
#[test]
fn an_acknowledgement_leaves_by_the_interface() {
    let net = Direct::new().unwrap();
    net.offload("tx", false).unwrap();
    let ifindex = link::index(&net.a.netns, Host::DEV).unwrap();
    let capture = Capture::start(&net.b.netns, Host::DEV).unwrap();
    let rows = || {
        let table = [("bytes", 65_536 - 200, 0), ("time", 0, 40)];
        table.into_iter().flat_map(move |(name, bytes, sent_ms)| {
            crate::paths().map(move |path| {
                row(format!("{path:?}, due by {name}"), move |at| {
                    let datagram = path.inbound().payload(payload(200));
                    let mut flow = path.established(at);
                    flow.acked = flow.rcv_nxt.wrapping_sub(bytes);
                    flow.sent_at = at.before_ms(sent_ms);
                    restores(Program::Ingress, at, path, &datagram, 200)
                        .marked(0x1234)
                        .flow(path.key(), flow)
                        .counts(Outcome::TxRequested)
                        .sends(Sent::Ack)
                        .changes(path.key(), |flow| {
                            crate::effects::received(flow, at, 200);
                            acknowledged(flow, at);
                        })
                })
            })
        })
    };
    net.a
        .netns
        .enter(|| {
            let mut datapath = Datapath::new(&Config {
                ifindex,
                ..Config::default()
            });
            datapath.load(Program::Egress);
            qdisc_add_clsact(Host::DEV).unwrap();
            datapath
                .classifier(Program::Egress)
                .attach(Host::DEV, TcAttachType::Egress)
                .unwrap();
            check(&mut datapath, rows());
        })
        .unwrap();
    for path in crate::paths() {
        // All but the window, which the clock gives.
        let flow = path.established(Moment::now());
        let rcv_nxt = flow.rcv_nxt.wrapping_add(200);
        let expected = path.control(Moment::now(), flags::ACK, flow.snd_nxt, rcv_nxt);
        let limit = Duration::from_secs(5);
        wait::until(limit, &format!("the acknowledgement of {path:?}"), || {
            capture.peek(|frames| {
                frames.iter().any(|frame| {
                    let at = 14 + path.family().header_len() + 14;
                    let Some(window) = frame.bytes.get(at..at + 2) else {
                        return false;
                    };
                    let window = u16::from_be_bytes([window[0], window[1]]);
                    window >> 8 == 0xf0 && frame.bytes == expected.clone().window(window).bytes()
                })
            })
        })
        .unwrap();
    }
    capture.stop().unwrap();
}

//! Behaviour that depends on a real interface: the clone that leaves by it.

use std::time::Duration;

use aya::programs::TcAttachType;
use aya::programs::tc::qdisc_add_clsact;
use xdptun_common::tunnel::outcome::{Outcome, Sent};
use xdptun_lab::{Capture, Direct, Host, link, wait};
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::{Config, Datapath, Moment, Program, check, flags, row};

use crate::effects::acknowledged;
use crate::restored::restores;

/// Ingress sends a clone of the segment out of the interface, where egress makes
/// it the acknowledgement; what the clone becomes must not show in the datagram.
#[test]
fn an_acknowledgement_leaves_by_the_interface() {
    let net = Direct::new().unwrap();
    net.offload("tx", false).unwrap();
    let ifindex = link::index(&net.a.netns, Host::DEV).unwrap();
    let capture = Capture::start(&net.b.netns, Host::DEV).unwrap();
    let rows = || {
        let mut rows = Vec::new();
        for (name, bytes, sent_ms) in [("bytes", 262_144 - 200, 0), ("time", 0, 480)] {
            for path in crate::paths() {
                let plain = path.inbound().payload(payload(200));
                let with_options = plain.clone().ip_options(3).extension(60.into(), 2);
                for (what, datagram) in [("", plain), (", with options", with_options)] {
                    rows.push(row(format!("{path:?}, due by {name}{what}"), move |at| {
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
                    }));
                }
            }
        }
        rows
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
        let mut flow = path.established(Moment::now());
        let rcv_nxt = flow.rcv_nxt.wrapping_add(200);
        flow.rx_packets += 1;
        let expected = path.control_of(Moment::now(), &flow, flags::ACK, flow.snd_nxt, rcv_nxt);
        let limit = Duration::from_secs(5);
        wait::until(limit, &format!("the acknowledgement of {path:?}"), || {
            capture.peek(|frames| {
                let expected = expected.bytes();
                frames.iter().any(|frame| frame.bytes == expected)
            })
        })
        .unwrap();
    }
    capture.stop().unwrap();
}

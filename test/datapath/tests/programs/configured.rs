//! The effect of the variables that are fixed at load.

use std::sync::{LazyLock, Mutex};

use xdptun_common::attachment::IngressMode;
use xdptun_common::tunnel::outcome::{Outcome, Sent};
use xdptun_common::wire::LINK_NONE;
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::path::{OTHER, OWNED, syn_options};
use xdptun_test_datapath::{
    Case, Config, Datapath, Family, Moment, Packet, Path, Program, Row, check, flags, row,
};

use crate::fragments::asked;
use crate::restored::{restores, segment};
use crate::{Shared, lengths, lock};

static PEERS_ONLY: Shared = LazyLock::new(|| {
    Mutex::new(Datapath::new(&Config {
        peers_only: true,
        ..Config::default()
    }))
});

fn syn(path: Path) -> Packet {
    let syn = path.inbound().segment(flags::SYN, 9, 0);
    syn.options(&syn_options(path.family()))
}

fn answered(at: Moment, path: Path) -> Case {
    let isn = at.isn(&path.key());
    Case::ingress(syn(path))
        .answers(path.control(at, flags::SYN | flags::ACK, isn, 10))
        .counts(Outcome::RxSyn)
        .sends(Sent::SynAck)
}

#[test]
fn strangers_are_not_ours() {
    let mut rows: Vec<Row> = Vec::new();
    for family in Family::ALL {
        let path = Path::with_stranger(family);
        rows.push(row(format!("{family:?} datagram out"), move |_| {
            Case::egress(path.outbound().payload(payload(50)))
        }));
        let datagram = path.outbound().payload(payload(50));
        for (name, packet) in [
            (
                "options",
                datagram.clone().ip_options(2).extension(60.into(), 2),
            ),
            ("first fragment", datagram.clone().fragment(0, true)),
            ("tag", datagram.vlan(7)),
        ] {
            rows.push(row(format!("{family:?} datagram out, {name}"), {
                move |_| Case::egress(&packet)
            }));
        }
        rows.push(row(format!("{family:?} datagram in, tag"), move |_| {
            Case::ingress(path.inbound().payload(payload(50)).vlan(7))
        }));
        for program in Program::INBOUND {
            rows.push(row(format!("{program:?} {family:?} datagram in"), {
                move |_| Case::new(program, path.inbound().payload(payload(50)))
            }));
            for flags in [flags::SYN, flags::ACK, flags::DATA, flags::RST] {
                let name = format!("{program:?} {family:?} segment in, {flags:#x}");
                rows.push(row(name, move |at| {
                    let number = at.isn(&path.key()).wrapping_add(1);
                    Case::new(program, path.inbound().segment(flags, 5, number))
                }));
            }
        }
    }
    check(&mut lock(&PEERS_ONLY), rows);
}

#[test]
fn peers_are_ours() {
    let mut rows: Vec<Row> = Vec::new();
    for family in Family::ALL {
        let path = Path::server(family);
        rows.push(row(format!("{family:?} datagram out"), move |at| {
            let datagram = path.outbound().payload(payload(50));
            Case::egress(&datagram)
                .passes_as(path.control(at, flags::SYN, at.isn(&path.key()), 0))
                .counts(Outcome::TxOpened)
                .sends(Sent::Syn)
                .queues(path.key(), datagram)
                .adds(path.key(), path.opening(at))
        }));
        rows.push(row(format!("{family:?} SYN in"), move |at| {
            answered(at, path)
        }));
        for program in Program::INBOUND {
            rows.push(row(format!("{program:?} {family:?} datagram in"), {
                move |_| Case::new(program, path.inbound()).drops(Outcome::RxDropPlainUdp)
            }));
        }
    }
    check(&mut lock(&PEERS_ONLY), rows);
}

/// An existing flow is served, even if its remote address is no peer.
#[test]
fn a_flow_makes_a_stranger_ours() {
    let mut rows: Vec<Row> = Vec::new();
    for family in Family::ALL {
        let path = Path::with_stranger(family);
        for program in Program::INBOUND {
            rows.push(row(format!("{program:?} {family:?} data in"), move |at| {
                restores(program, at, path, &path.inbound().payload(payload(9)), 9)
            }));
        }
        rows.push(row(format!("{family:?} first fragment out"), move |at| {
            let fragment = path.outbound().payload(payload(50)).fragment(0, true);
            Case::egress(&fragment)
                .flow(path.key(), asked(path, at))
                .drops(Outcome::TxDropFragment)
                .remembers(fragment.fragmented())
        }));
        for (program, packet, outcome) in [
            (Program::Egress, path.outbound(), Outcome::TxDropVlan),
            (Program::Ingress, path.inbound(), Outcome::RxDropPlainUdp),
        ] {
            rows.push(row(format!("{program:?} {family:?} behind a tag"), {
                move |at| {
                    Case::new(program, packet.clone().vlan(7))
                        .flow(path.key(), path.established(at))
                        .drops(outcome)
                }
            }));
        }
        rows.push(row(format!("{family:?} ICMP about data"), move |at| {
            crate::icmp::about_data(at, path)
        }));
    }
    check(&mut lock(&PEERS_ONLY), rows);
}

/// With XDP in front, what tc sees of UDP was restored there.
#[test]
fn behind_xdp_tc_leaves_udp_alone() {
    for ingress in [IngressMode::Xdp, IngressMode::XdpGeneric] {
        let mut datapath = Datapath::new(&Config {
            ingress,
            ..Config::default()
        });
        let mut rows: Vec<Row> = Vec::new();
        for family in Family::ALL {
            let path = Path::server(family);
            rows.push(row(format!("{family:?} datagram"), move |at| {
                Case::ingress(path.inbound().payload(payload(50)))
                    .flow(path.key(), path.established(at))
            }));
            rows.push(row(format!("{family:?} datagram, no flow"), move |_| {
                Case::ingress(path.inbound().payload(payload(50)))
            }));
            rows.push(row(format!("{family:?} data"), move |at| {
                let datagram = path.inbound().payload(payload(50));
                restores(Program::Ingress, at, path, &datagram, 50)
            }));
            rows.push(row(format!("{family:?} SYN"), move |at| answered(at, path)));
            // XDP in the stack cannot see that a buffer holds several segments, and
            // has made one datagram of them.
            rows.push(row(format!("{family:?} merged datagrams"), move |_| {
                let case = Case::ingress(path.inbound().payload(payload(2000))).merged(1000);
                match ingress {
                    IngressMode::XdpGeneric => case.drops(Outcome::RxDropMerged),
                    _ => case,
                }
            }));
        }
        check(&mut datapath, rows);
    }
}

/// A TUN device has no link header. (The tc programs cannot be run on such a
/// packet: `BPF_PROG_TEST_RUN` takes fourteen bytes off each.)
#[test]
fn without_a_link_header() {
    let mut datapath = Datapath::new(&Config {
        link_len: LINK_NONE,
        ..Config::default()
    });
    let mut rows: Vec<Row> = Vec::new();
    let by_each = |program| Family::ALL.map(|family| (program, family));
    for (program, family) in Program::XDP.into_iter().flat_map(by_each) {
        let path = Path::client(family);
        for len in lengths() {
            rows.push(row(
                format!("{program:?} {family:?}, {len} bytes"),
                move |at| {
                    let datagram = path.inbound().payload(payload(len)).without_link();
                    restores(program, at, path, &datagram, len)
                },
            ));
        }
        rows.push(row(
            format!("{program:?} {family:?} plain UDP"),
            move |_| {
                Case::new(program, path.inbound().without_link()).drops(Outcome::RxDropPlainUdp)
            },
        ));
        rows.push(row(
            format!("{program:?} {family:?} other port"),
            move |_| {
                let path = Path::new(family, OTHER, OTHER);
                Case::new(program, path.inbound().without_link())
            },
        ));
        rows.push(row(format!("{program:?} {family:?} ACK"), move |at| {
            let flow = path.established(at);
            let packet = path.inbound().without_link();
            let packet = packet.segment(flags::ACK, flow.rcv_nxt, flow.snd_nxt);
            Case::new(program, packet).flow(path.key(), flow)
        }));
        rows.push(row(
            format!("{program:?} {family:?} with a link header"),
            move |at| {
                let path = Path::new(family, OWNED, OTHER);
                let flow = path.established(at);
                Case::new(program, segment(&flow, &path.inbound())).flow(path.key(), flow)
            },
        ));
    }
    check(&mut datapath, rows);
}

/// The verifier sees other code when tracing is on, and when there is no link
/// header.
#[test]
fn every_configuration_loads() {
    for (trace, link_len) in [(true, 14), (true, LINK_NONE), (false, LINK_NONE)] {
        let mut datapath = Datapath::new(&Config {
            trace,
            link_len,
            peers_only: trace,
            ..Config::default()
        });
        for program in Program::ALL {
            datapath.load(program);
        }
    }
}

//! Buffers that hold several datagrams or segments, where there is a splitter.

use std::sync::{LazyLock, Mutex};

use xdptun_common::tunnel::outcome::Outcome;
use xdptun_test_datapath::packet::{Packet, payload};
use xdptun_test_datapath::path::OTHER;
use xdptun_test_datapath::{Case, Config, Datapath, Family, Path, Program, Row, check, flags, row};

use crate::{Shared, lock};

static WITH_SPLITTER: Shared = LazyLock::new(|| {
    Mutex::new(Datapath::new(&Config {
        near_end: i32::MAX.cast_unsigned() - 1,
        ..Config::default()
    }))
});

/// Whatever the flow is at: the pieces decide when they come back.
#[test]
fn super_packets_go_to_the_splitter_uncut() {
    let mut rows: Vec<Row> = Vec::new();
    for family in Family::ALL {
        let path = Path::client(family);
        let datagrams = path.outbound().payload(payload(2000));
        rows.push(row(format!("{family:?} out, no flow"), {
            let datagrams = datagrams.clone();
            move |_| {
                Case::egress(&datagrams)
                    .merged(1000)
                    .swallows()
                    .counts(Outcome::TxSplit)
            }
        }));
        rows.push(row(format!("{family:?} out, established"), move |at| {
            Case::egress(&datagrams)
                .merged(1000)
                .flow(path.key(), path.established(at))
                .swallows()
                .counts(Outcome::TxSplit)
        }));
        rows.push(row(format!("{family:?} in"), move |at| {
            let flow = path.established(at);
            let segments = path
                .inbound()
                .segment(flags::DATA, flow.rcv_nxt, flow.snd_nxt);
            Case::ingress(segments.payload(payload(2000)))
                .merged(1000)
                .flow(path.key(), flow)
                .swallows()
                .counts(Outcome::RxSplit)
        }));
    }
    check(&mut lock(&WITH_SPLITTER), rows);
}

#[test]
fn pieces_go_home_and_nothing_else_passes() {
    let mut rows: Vec<Row> = Vec::new();
    for family in Family::ALL {
        let (ours, other) = (Path::client(family), Path::new(family, OTHER, OTHER));
        let home = |packet: Packet| move |_| Case::new(Program::Splitter, &packet).answers(&packet);
        let ends = |packet: Packet| move |_| Case::new(Program::Splitter, &packet).ends();
        rows.extend([
            row(format!("{family:?} datagram"), home(ours.outbound())),
            row(
                format!("{family:?} segment"),
                home(ours.inbound().segment(flags::DATA, 1, 1)),
            ),
            row(format!("{family:?} other port"), ends(other.outbound())),
        ]);
    }
    check(&mut lock(&WITH_SPLITTER), rows);
}

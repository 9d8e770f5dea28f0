//! Frames with a VLAN tag among their bytes: a second tag, or one that a packet
//! socket wrote. No datagram of an owned port hides behind one; all else passes.

use xdptun_common::tunnel::outcome::Outcome;
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::path::OTHER;
use xdptun_test_datapath::{Case, Family, Packet, Path, Program, Row, check, flags, row};

use crate::datapath;

/// IEEE 802.1Q.
const TAG: u16 = 0x8100;
/// IEEE 802.1ad.
const SERVICE_TAG: u16 = 0x88a8;

/// The tags that are looked behind.
const TAGS: [&[u16]; 4] = [&[TAG], &[SERVICE_TAG], &[SERVICE_TAG, TAG], &[TAG, TAG]];

fn behind(tags: &[u16], packet: Packet) -> Packet {
    tags.iter().fold(packet, |packet, tag| packet.tag(*tag, 7))
}

/// For each kind of tags: a row for each packet that goes out and comes in.
fn each(rows: impl Fn(&'static [u16], Path) -> Vec<Row>) -> Vec<Row> {
    let paths = Family::ALL.map(Path::client).into_iter();
    paths
        .flat_map(|path| TAGS.map(|tags| (tags, path)))
        .flat_map(|(tags, path)| rows(tags, path))
        .collect()
}

#[test]
fn datagrams_are_dropped() {
    let rows = each(|tags, path| {
        let mut rows = Vec::new();
        for (program, packet, outcome) in [
            (Program::Egress, path.outbound(), Outcome::TxDropVlan),
            (Program::Ingress, path.inbound(), Outcome::RxDropPlainUdp),
        ] {
            let packet = packet.payload(payload(50));
            for (name, packet) in [
                ("datagram", packet.clone()),
                ("with IPv4 options", packet.clone().ip_options(4)),
                ("with IPv6 options", packet.clone().extension(60.into(), 2)),
            ] {
                let packet = behind(tags, packet);
                rows.push(row(format!("{program:?} {path:?} {tags:x?} {name}"), {
                    move |at| {
                        Case::new(program, &packet)
                            .flow(path.key(), path.established(at))
                            .drops(outcome)
                    }
                }));
            }
            let first = packet.clone().fragment(0, true);
            let later = behind(tags, packet.fragment(8, true));
            let datagram = first.fragmented();
            let first = behind(tags, first);
            rows.push(row(format!("{program:?} {path:?} {tags:x?} first"), {
                move |at| {
                    Case::new(program, &first)
                        .flow(path.key(), path.established(at))
                        .drops(outcome)
                        .remembers(datagram)
                }
            }));
            rows.push(row(format!("{program:?} {path:?} {tags:x?} later"), {
                move |at| {
                    Case::new(program, &later)
                        .refused(datagram, at.before_ms(100))
                        .drops(outcome)
                }
            }));
        }
        rows
    });
    check(&mut datapath(), rows);
}

#[test]
fn all_else_passes() {
    let rows = each(|tags, path| {
        let mut rows = Vec::new();
        let other = Path::new(path.family(), 53, OTHER);
        for (program, ours, others) in [
            (Program::Egress, path.outbound(), other.outbound()),
            (Program::Ingress, path.inbound(), other.inbound()),
        ] {
            let ours = ours.payload(payload(50));
            for (name, packet) in [
                ("other port", others.payload(payload(50))),
                ("later fragment", ours.clone().fragment(8, true)),
                ("segment", ours.segment(flags::DATA, 1, 2)),
            ] {
                let packet = behind(tags, packet);
                rows.push(row(format!("{program:?} {path:?} {tags:x?} {name}"), {
                    move |at| Case::new(program, &packet).flow(path.key(), path.established(at))
                }));
            }
        }
        rows
    });
    check(&mut datapath(), rows);
}

/// XDP leaves a tag inside the frame to tc.
#[test]
fn xdp_leaves_them_to_tc() {
    let rows = each(|tags, path| {
        let mut rows = Vec::new();
        for program in Program::XDP {
            let datagram = path.inbound().payload(payload(50));
            let segment = datagram.clone();
            let segment = segment.segment(flags::DATA, 0xffff_fff0, 0xffff_ffe0);
            for (name, packet) in [("datagram", datagram), ("data", segment)] {
                let packet = behind(tags, packet);
                rows.push(row(format!("{program:?} {path:?} {tags:x?} {name}"), {
                    move |at| Case::new(program, &packet).flow(path.key(), path.established(at))
                }));
            }
        }
        rows
    });
    check(&mut datapath(), rows);
}

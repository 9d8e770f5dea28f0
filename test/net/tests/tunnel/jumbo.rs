//! Jumbo frames: what drivers hand over in several buffers, and the kernel in
//! nonlinear packets.

use std::collections::BTreeSet;

use xdptun_lab::{Capture, Direct, Family, Host, link, udp};
use xdptun_test_net::mode::{self, Mode};
use xdptun_test_net::wire::{Wire, packets, segments};
use xdptun_test_net::{LIMIT, PORT, status};

const MTU: u32 = 9000;

/// Both sides of every boundary there is: of the usual MTU, of a page with and
/// without the headers, of two pages, and of the MTU.
fn lengths(family: Family) -> BTreeSet<usize> {
    let headers = family.header_len() + 20;
    let largest = MTU as usize - headers;
    let around = |at: usize| at - 2..=at + 2;
    let boundaries = [1500, 1514, 3520, 3776, 4096, 8192];
    let near = boundaries.into_iter().flat_map(around);
    let behind = boundaries
        .map(|at| at - headers)
        .into_iter()
        .flat_map(around);
    let last = largest - 8..=largest;
    [0, 1]
        .into_iter()
        .chain(near)
        .chain(behind)
        .chain(last)
        .collect()
}

fn jumbo_in(mode: Mode) {
    let net = Direct::new().unwrap();
    for host in [&net.a, &net.b] {
        link::set_mtu(&host.netns, Host::DEV, MTU).unwrap();
    }
    let _attached = mode.attach_both(&net).unwrap();
    for offload in [true, false] {
        net.offload("tx", offload).unwrap();
        for family in Family::BOTH {
            for checksum in [true, false] {
                if !checksum && family == Family::V6 {
                    continue;
                }
                let context = format!("{mode:?}, {family}, tx {offload}, checksum {checksum}");
                echo(&net, mode, family, checksum, &context);
            }
        }
    }
}

fn echo(net: &Direct, mode: Mode, family: Family, checksum: bool, context: &str) {
    let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
    let client = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
    if !checksum {
        udp::without_checksum(&client).unwrap();
    }
    udp::exchange(&client, server.address(), b"opens the flow", LIMIT).unwrap();
    let hosts = [&net.a, &net.b];
    let before = hosts.map(|host| status::counters(&host.netns).unwrap());
    let wire = Wire::watch(&hosts).unwrap();
    let arrivals = Capture::start(&net.b.netns, Host::DEV).unwrap();
    let lengths = lengths(family);
    for &length in &lengths {
        let payload = udp::pattern(length, length.to_le_bytes()[0]);
        udp::exchange(&client, server.address(), &payload, LIMIT)
            .unwrap_or_else(|error| panic!("{context}, {length} bytes: {error:#}"));
    }
    let frames = wire.stop().unwrap();
    let segments = segments(&frames, PORT);
    for sender in [client.local_addr().unwrap(), server.address()] {
        let data = segments
            .iter()
            .filter(|segment| segment.source == sender && segment.is_data());
        let mut sent: Vec<usize> = data.map(|segment| segment.payload.len()).collect();
        sent.sort_unstable();
        assert!(lengths.iter().eq(&sent), "{context}: {sender}: {sent:?}");
    }
    // What XDP restores is a datagram already where a capture sees it; the few
    // with which an acknowledgement is due are left to tc.
    let mut arrived = arrivals.stop().unwrap();
    arrived.retain(|frame| !frame.outgoing);
    let restored = packets(&arrived, PORT);
    let restored = restored.iter().filter(|packet| packet.tcp().is_none());
    let by_xdp = restored.count() * 2 > lengths.len();
    assert_eq!(by_xdp, mode != mode::TC, "{context}");
    let count = lengths.len() as u64;
    status::assert_carried(hosts, &before, count, context);
}

#[test]
fn through_tc() {
    jumbo_in(mode::TC);
}

#[test]
fn through_native_xdp() {
    jumbo_in(mode::XDP);
}

#[test]
fn through_generic_xdp() {
    jumbo_in(mode::XDP_GENERIC);
}

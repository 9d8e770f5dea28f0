//! UDP GSO: one send, many datagrams (QUIC stacks and wireguard-go do so). The
//! kernel hands them to the interface in one buffer; each must leave as a
//! segment of its own and arrive as the datagram it was.

use std::net::UdpSocket;

use nix::sys::socket::{setsockopt, sockopt};
use xdptun_lab::{Direct, Family, Frame, Host, Kind, Offload, Relayed, Side, udp, wait};
use xdptun_test_net::mode::{self, Mode};
use xdptun_test_net::socket::roomy;
use xdptun_test_net::status::{counters, moved};
use xdptun_test_net::wire::{Wire, segments};
use xdptun_test_net::{LIMIT, PORT, kernel};

/// Payload bytes of each datagram but the last, and how many there are.
#[derive(Debug, Clone, Copy)]
struct Batch {
    size: u16,
    count: usize,
    last: usize,
}

impl Batch {
    fn payload(self) -> Vec<u8> {
        let len = usize::from(self.size) * (self.count - 1) + self.last;
        udp::pattern(len, self.count as u8)
    }
}

/// Every count that the kernel takes on any version (`UDP_MAX_SEGMENTS` was 64
/// before it became 128), then the largest datagrams, and short last ones.
fn batches(family: Family) -> Vec<Batch> {
    let largest = (1500 - family.header_len() - 20) as u16;
    let mut batches: Vec<Batch> = (2..=64)
        .map(|count| Batch {
            size: 900,
            count,
            last: 900,
        })
        .collect();
    for last in [1, 2, 31, 47, usize::from(largest) - 1, usize::from(largest)] {
        batches.push(Batch {
            size: largest,
            count: 5,
            last,
        });
        batches.push(Batch {
            size: largest,
            count: 44,
            last,
        });
    }
    batches.extend([1, 7, 26, 33, 48].map(|size| Batch {
        size,
        count: 9,
        last: 1,
    }));
    batches
}

fn send(socket: &UdpSocket, batch: Batch) {
    setsockopt(socket, sockopt::UdpGsoSegment, &i32::from(batch.size)).unwrap();
    let payload = batch.payload();
    assert_eq!(socket.send(&payload).unwrap(), payload.len(), "{batch:?}");
}

/// Receives until all of a batch is there; the lengths of what came.
fn receive(socket: &UdpSocket, batch: Batch, context: &str) -> Vec<usize> {
    let expected = batch.payload();
    let (mut received, mut lengths) = (Vec::new(), Vec::new());
    let mut buffer = vec![0; 1 << 16];
    while received.len() < expected.len() {
        let len = socket.recv(&mut buffer).unwrap_or_else(|error| {
            panic!("{context}, {batch:?}: {error} after datagrams of {lengths:?} bytes")
        });
        received.extend_from_slice(&buffer[..len]);
        lengths.push(len);
    }
    assert!(
        received == expected,
        "{context}, {batch:?}: other bytes came"
    );
    lengths
}

fn split_in(mode: Mode, gro: bool) {
    let net = Direct::new().unwrap();
    let offloads = kernel::offloads_for_super_packets(&net).unwrap();
    let _attached = mode.attach_both(&net).unwrap();
    for &offload in offloads {
        net.offload("tx", offload).unwrap();
        for family in Family::BOTH {
            let context = format!("{mode:?}, {family}, tx offload {offload}, UDP_GRO {gro}");
            let wire = Wire::watch(&[&net.a]).unwrap();
            split([&net.a, &net.b], family, gro, &context, || {
                wire.stop().unwrap()
            });
        }
    }
}

/// Sends every batch from the first host to the second; `wire` gives what the
/// first one sent meanwhile.
fn split(
    [a, b]: [&Host; 2],
    family: Family,
    gro: bool,
    context: &str,
    wire: impl FnOnce() -> Vec<Frame>,
) {
    let server = roomy(&b.netns, b.socket(family, PORT)).unwrap();
    server
        .set_read_timeout(Some(wait::stretched(LIMIT).unwrap()))
        .unwrap();
    let client = roomy(&a.netns, a.socket(family, 0)).unwrap();
    client.connect(server.local_addr().unwrap()).unwrap();
    if gro {
        setsockopt(&server, sockopt::UdpGroSegment, &true).unwrap();
    }
    let before = counters(&a.netns).unwrap();
    let mut sent = Vec::new();
    let batches = batches(family);
    for &batch in &batches {
        send(&client, batch);
        let lengths = receive(&server, batch, context);
        let mut expected = vec![usize::from(batch.size); batch.count - 1];
        expected.push(batch.last);
        if !gro {
            assert_eq!(lengths, expected, "{context}, {batch:?}");
        }
        sent.extend(expected);
    }
    let frames = wire();
    let data: Vec<usize> = segments(&frames, PORT)
        .iter()
        .filter(|segment| segment.source == client.local_addr().unwrap() && segment.is_data())
        .map(|segment| segment.payload.len())
        .collect();
    assert_eq!(data, sent, "{context}: on the wire");
    let moved = moved(&before, &counters(&a.netns).unwrap());
    assert_eq!(
        moved["tx_split"],
        batches.len() as u64,
        "{context}: {moved:?}"
    );
    assert_eq!(
        moved["tx_disguised"],
        sent.len() as u64,
        "{context}: {moved:?}"
    );
}

#[test]
fn super_packets_are_split_with_tc() {
    split_in(mode::TC, false);
}

#[test]
fn super_packets_are_split_with_xdp() {
    split_in(mode::XDP, false);
}

#[test]
fn super_packets_are_split_with_clsact_filters() {
    split_in(mode::TC_CLSACT, false);
}

#[test]
fn a_receiver_may_merge_datagrams_again() {
    split_in(mode::TC, true);
}

/// The splitter is Ethernet; pieces must leave such an interface without its
/// header, whatever of the work the kernel would leave to the device.
#[test]
fn super_packets_are_split_without_a_link_header() {
    for offload in [Offload::None, Offload::Segmentation] {
        let net = Relayed::new(Kind::Tun, offload).unwrap();
        let _attached = mode::TC.attach_to([&net.a, &net.b]).unwrap();
        for family in Family::BOTH {
            net.relay.sent().unwrap();
            let context = format!("TUN, {family}, {offload:?}");
            split([&net.a, &net.b], family, false, &context, || {
                net.relay.sent_from(Side::A).unwrap()
            });
        }
    }
}

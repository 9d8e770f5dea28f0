//! What a device knows about a checksum stays true and stays known. Some
//! add up whole packets (`CHECKSUM_COMPLETE`): every byte that a program changes
//! must change the sum. A VXLAN tunnel with outer checksums hands over such
//! packets, as its outer sum covers the inner packet. Most only tell that the
//! checksum is right (`CHECKSUM_UNNECESSARY`), as what gathers segments does.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use nix::libc;
use xdptun_lab::checksum::{sum, transport_sum};
use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Attached, Direct, Family, Host, Netns, link, secret, sockopt, udp};
use xdptun_test_net::device_sum::{Question, Witness, listen, receive, receive_verified};
use xdptun_test_net::socket::roomy;
use xdptun_test_net::status::counters_on;
use xdptun_test_net::vxlan::{DEV, MTU, dig, inner};
use xdptun_test_net::{PORT, mode};

const UDP: u8 = 17;
const DESTINATION_OPTIONS: u8 = 60;

/// The sum of the packet that carries `payload`, as the device would make it
/// were it the datagram that was sent. Sums that differ by 0xffff are the same.
fn expected(from: IpAddr, to: IpAddr, options: &[u8], payload: &[u8]) -> u16 {
    let length = 8 + payload.len();
    // All that the UDP checksum covers but the pseudo-header adds up to zero.
    let pseudo = transport_sum(from, to, UDP, &vec![0; length]);
    let header = match (from, to) {
        // This sums up to zero by its own checksum.
        (IpAddr::V4(_), IpAddr::V4(_)) => 0,
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let mut header = vec![0x60, 0, 0, 0];
            let packet = u16::try_from(length + options.len()).unwrap();
            header.extend(packet.to_be_bytes());
            let next = if options.is_empty() {
                UDP
            } else {
                DESTINATION_OPTIONS
            };
            header.extend([next, 64]);
            header.extend(from.octets());
            header.extend(to.octets());
            header.extend(options);
            sum(&header)
        }
        _ => unreachable!("both are of one family"),
    };
    let total = u32::from(header) + u32::from(!pseudo);
    (total % 0xffff) as u16
}

/// Options for the socket to add, as they are in the packet.
fn options(family: Family) -> (i32, i32, Vec<u8>) {
    match family {
        Family::V4 => (
            libc::IPPROTO_IP,
            libc::IP_OPTIONS,
            vec![1, 1, 1, 1, 148, 4, 0, 0],
        ),
        Family::V6 => (
            libc::IPPROTO_IPV6,
            libc::IPV6_DSTOPTS,
            vec![UDP, 1, 0x1e, 12, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
        ),
    }
}

fn restored(netns: &Netns) -> u64 {
    counters_on(netns, DEV).unwrap()["rx_restored"]
}

fn exchange(net: &Direct, family: Family, with_options: bool) {
    let bind = |host: &Host, number, port| -> UdpSocket {
        let address = SocketAddr::new(inner(family, number), port);
        roomy(&host.netns, address).unwrap()
    };
    let (client, server) = (bind(&net.a, 1, 0), bind(&net.b, 2, PORT));
    client.connect(server.local_addr().unwrap()).unwrap();
    listen(&server).unwrap();
    let mut added = Vec::new();
    if with_options {
        let (level, name, bytes) = options(family);
        sockopt::set(&client, level, name, &bytes).unwrap();
        added = bytes;
    }
    client.send(b"opens the flow").unwrap();
    receive(&server).unwrap();
    let before = restored(&net.b.netns);
    let largest = MTU - family.header_len() - 20 - added.len();
    for length in 0..=largest {
        let payload = udp::pattern(length, length.to_le_bytes()[0]);
        client.send(&payload).unwrap();
        let context = format!("{family}, options {with_options}, {length} bytes");
        let (received, device) =
            receive(&server).unwrap_or_else(|error| panic!("{context}: {error:#}"));
        assert!(received == payload, "{context}");
        let (from, to) = (inner(family, 1), inner(family, 2));
        let expected = expected(from, to, &added, &payload);
        assert_eq!(device % 0xffff, expected, "{context}");
    }
    assert_eq!(restored(&net.b.netns) - before, largest as u64 + 1);
}

#[test]
fn the_sum_of_a_device_stays_true() {
    stays_true(&[]);
}

/// Not of what was padded: the kernel forgets the sum of a packet that is cut, and adds up itself.
#[test]
fn the_sum_of_a_device_stays_true_under_the_veil() {
    let directory = Scratch::new().unwrap();
    let secret = secret::write(directory.path(), "secret", "correct horse battery").unwrap();
    stays_true(&["--secret", &secret, "--veil=0"]);
}

fn stays_true(more: &[&str]) {
    let net = Direct::new().unwrap();
    // The outer checksum must be there for the tunnel to use.
    net.offload("tx", false).unwrap();
    dig(&net.a, 1, &net.b, true).unwrap();
    dig(&net.b, 2, &net.a, true).unwrap();
    let port = PORT.to_string();
    let args = [&["--ingress", "tc", "--port", &port][..], more].concat();
    let _a = Attached::start(&net.a.netns, DEV, &args).unwrap();
    let _b = Attached::start(&net.b.netns, DEV, &args).unwrap();
    let _witness = Witness::attach(&net.b.netns, DEV, Question::Sum).unwrap();
    for family in Family::BOTH {
        for with_options in [false, true] {
            exchange(&net, family, with_options);
        }
    }
    let errors = net.b.netns.run("nstat", ["-as", "*InCsumErrors"]).unwrap();
    assert_eq!(
        errors.lines().filter(|line| !line.starts_with('#')).count(),
        0,
        "{errors}"
    );
    let counters = counters_on(&net.b.netns, DEV).unwrap();
    assert!(
        counters.keys().all(|name| !name.contains("drop")),
        "{counters:?}"
    );
}

/// No receiver must add up again a sum that a device has verified, and none accepts a sum
/// that the device has not verified.
#[test]
fn what_is_verified_stays_verified() {
    let net = Direct::new().unwrap();
    // The other end gathers nothing of a device that segments.
    net.offload("tx", false).unwrap();
    let _attached = mode::TC.attach_both(&net).unwrap();
    let _witness = Witness::attach(&net.b.netns, Host::DEV, Question::Verified).unwrap();
    for family in Family::BOTH {
        let server = roomy(&net.b.netns, net.b.socket(family, PORT)).unwrap();
        let client = roomy(&net.a.netns, net.a.socket(family, 0)).unwrap();
        client.connect(server.local_addr().unwrap()).unwrap();
        listen(&server).unwrap();
        client.send(b"opens the flow").unwrap();
        receive_verified(&server).unwrap();
        for looked_at in [false, true, false] {
            link::offload(&net.b.netns, Host::DEV, "gro", looked_at).unwrap();
            client.send(b"data").unwrap();
            let (_, verified) = receive_verified(&server).unwrap();
            assert_eq!(verified, looked_at, "{family}, GRO {looked_at}");
        }
    }
}

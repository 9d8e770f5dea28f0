//! Receivers that add up whole packets (`CHECKSUM_COMPLETE`): every byte that a
//! program changes must change the sum. A VXLAN tunnel with outer checksums hands
//! over such packets, as its outer sum covers the inner packet.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use nix::libc;
use xdptun_lab::checksum::{sum, transport_sum};
use xdptun_lab::{Attached, Direct, Family, Host, Netns, sockopt, udp};
use xdptun_test_net::PORT;
use xdptun_test_net::device_sum::{Witness, listen, receive};
use xdptun_test_net::socket::roomy;
use xdptun_test_net::status::counters_on;

/// The tunnel device on both hosts.
const DEV: &str = "vx0";
/// That of a VXLAN tunnel over an MTU of 1500.
const MTU: usize = 1450;
const UDP: u8 = 17;
const DESTINATION_OPTIONS: u8 = 60;

/// Host `number` of the inner network.
fn inner(family: Family, number: u8) -> IpAddr {
    match family {
        Family::V4 => [10, 9, 0, number].into(),
        Family::V6 => [0xfd09, 0, 0, 0, 0, 0, 0, number.into()].into(),
    }
}

/// Makes the host's end of the tunnel.
fn dig(host: &Host, number: u8, other: &Host) {
    let netns = &host.netns;
    // Headers are computed below, and must not hold a random number.
    netns.sysctl("net.ipv6.auto_flowlabels", "0").unwrap();
    let (local, remote) = (host.v4, other.v4);
    let batch = format!(
        "link add {DEV} type vxlan id 7 local {local} remote {remote} dstport 4789 udpcsum
         address add {}/24 dev {DEV}
         address add {}/64 dev {DEV} nodad
         link set {DEV} up\n",
        inner(Family::V4, number),
        inner(Family::V6, number),
    );
    netns.run_with_input("ip", ["-batch", "-"], &batch).unwrap();
}

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
    let net = Direct::new().unwrap();
    // The outer checksum must be there for the tunnel to use.
    net.offload("tx", false).unwrap();
    dig(&net.a, 1, &net.b);
    dig(&net.b, 2, &net.a);
    let args = ["--ingress", "tc", "--port", &PORT.to_string()];
    let _a = Attached::start(&net.a.netns, DEV, &args).unwrap();
    let _b = Attached::start(&net.b.netns, DEV, &args).unwrap();
    let _witness = Witness::attach(&net.b.netns, DEV).unwrap();
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

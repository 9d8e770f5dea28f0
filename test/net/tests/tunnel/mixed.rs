//! Interfaces of one group that differ: in their link header, their MTU, and the splitter
//! that each has.

use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};
use xdptun_lab::{Family, Multihomed, Offload, Side, link, udp, wait};
use xdptun_test_net::groups::{BOTH, assert_nothing_lost, count, echo, ends, numbers};
use xdptun_test_net::mode::{self, Mode};
use xdptun_test_net::socket::{discover_path, path_mtu, roomy, wait_error};
use xdptun_test_net::status::{
    Counters, apart_from_timed, counters_of, counters_on, expected, moved,
};
use xdptun_test_net::wire::{Wire, describe, segments};
use xdptun_test_net::{LIMIT, PORT};

/// Ethernet and a device without a link header (TUN) in one group: a flow begins on one and
/// takes the other, one way or both.
fn moves_between_kinds_of_links(mode: Mode, offload: Offload) {
    /// Datagrams for each pair of ways.
    const EACH: u32 = 100;
    /// The link there, and the link back.
    const WAYS: [[u8; 2]; 5] = [[0, 0], [1, 1], [0, 1], [1, 0], [0, 0]];
    let net = Multihomed::with_bare_link(offload).unwrap();
    let relay = net.relay.as_ref().unwrap();
    let hosts = [&net.a, &net.b];
    let attached = mode.attach_groups(hosts, &BOTH, &[]).unwrap();
    for family in Family::BOTH {
        let context = format!("{mode:?}, {offload:?}, {family}");
        let (client, server) = ends(&net, family).unwrap();
        relay.sent().unwrap();
        let wire = Wire::watch_on(&hosts, "eth1").unwrap();
        let mut expected: [[Vec<u32>; 2]; 2] = Default::default();
        for ([there, back], first) in WAYS.into_iter().zip((0..).step_by(EACH as usize)) {
            net.route_from(Side::A, there).unwrap();
            net.route_from(Side::B, back).unwrap();
            echo(&client, server.address(), first..first + EACH)
                .unwrap_or_else(|error| panic!("{context}, {there}, {back}: {error:#}"));
            expected[usize::from(there)][0].extend(first..first + EACH);
            expected[usize::from(back)][1].extend(first..first + EACH);
        }
        let frames = [relay.sent().unwrap(), wire.stop().unwrap()];
        let links = frames.each_ref().map(|frames| segments(frames, PORT));
        let local = client.local_addr().unwrap();
        for (segments, expected) in links.iter().zip(&expected) {
            let carried = [local, server.address()].map(|source| numbers(segments, source));
            assert_eq!(&carried, expected, "{context}: {}", describe(segments));
        }
        let both = |flags| links.iter().map(|segments| count(segments, flags)).sum();
        let control: [usize; 5] = ["S", "S.", "F.", "R", "R."].map(both);
        assert_eq!(control, [1, 1, 0, 0, 0], "{context}");
        for host in hosts {
            assert_nothing_lost(&counters_of(&host.netns, &BOTH).unwrap(), &context);
        }
    }
    for attached in attached {
        attached.stop().unwrap();
    }
}

#[test]
fn a_flow_moves_between_kinds_of_links() {
    for offload in [Offload::None, Offload::Checksum] {
        moves_between_kinds_of_links(mode::TC, offload);
    }
    moves_between_kinds_of_links(mode::TC_CLSACT, Offload::Checksum);
    moves_between_kinds_of_links(mode::XDP_GENERIC, Offload::None);
}

/// A datagram that becomes a segment on one interface is too large for another of the group,
/// whose MTU its sender learns.
#[test]
fn each_interface_has_its_own_mtu() {
    const NARROW: u16 = 1400;
    let net = Multihomed::new().unwrap();
    for host in [&net.a, &net.b] {
        link::set_mtu(&host.netns, "eth1", NARROW.into()).unwrap();
    }
    let _attached = mode::TC
        .attach_groups([&net.a, &net.b], &BOTH, &[])
        .unwrap();
    for family in Family::BOTH {
        net.route(0).unwrap();
        let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
        let client = roomy(&net.a.netns, net.a.socket(family, 0)).unwrap();
        discover_path(&client, family).unwrap();
        client.connect(server.address()).unwrap();
        // It fits the narrow interface, the segment does not.
        let datagram = udp::pattern(usize::from(NARROW) - family.header_len() - 8, 1);
        udp::exchange(&client, server.address(), &datagram, LIMIT).unwrap();
        let read = || BOTH.map(|dev| counters_on(&net.a.netns, dev).unwrap());
        let before = read();

        net.route(1).unwrap();
        client.send(&datagram).unwrap();
        assert_eq!(wait_error(&client).unwrap(), Errno::EMSGSIZE, "{family}");
        let known = path_mtu(&client, family).unwrap();
        assert_eq!(known, i32::from(NARROW) - 12, "{family}");
        let fits = udp::pattern(usize::from(NARROW) - family.header_len() - 20, 2);
        udp::exchange(&client, server.address(), &fits, LIMIT).unwrap();
        let after = read();
        let [wide, narrow] =
            [0, 1].map(|link: usize| apart_from_timed(moved(&before[link], &after[link])));
        assert_eq!(wide, Counters::new(), "{family}");
        let carried = [("tx_too_big", 1), ("tx_disguised", 1), ("rx_restored", 1)];
        assert_eq!(narrow, expected(&carried), "{family}");
    }
}

/// Each interface of a group has a splitter.
#[test]
fn super_packets_leave_by_either_link() {
    const SIZE: u16 = 1000;
    const PIECES: usize = 10;
    let net = Multihomed::new().unwrap();
    let hosts = [&net.a, &net.b];
    let _attached = mode::TC.attach_groups(hosts, &BOTH, &[]).unwrap();
    for family in Family::BOTH {
        net.route(0).unwrap();
        let server = roomy(&net.b.netns, net.b.socket(family, PORT)).unwrap();
        let client = roomy(&net.a.netns, net.a.socket(family, 0)).unwrap();
        client.connect(server.local_addr().unwrap()).unwrap();
        client.send(b"opens the flow").unwrap();
        udp::receive(&server, LIMIT).unwrap();
        setsockopt(&client, sockopt::UdpGsoSegment, &SIZE.into()).unwrap();
        for (link, dev) in (0..).zip(BOTH) {
            net.route(link).unwrap();
            let before = hosts.map(|host| counters_on(&host.netns, dev).unwrap());
            let payload = udp::pattern(usize::from(SIZE) * PIECES, link);
            client.send(&payload).unwrap();
            for piece in payload.chunks(SIZE.into()) {
                let (received, _) = udp::receive(&server, LIMIT).unwrap();
                assert!(received == piece, "{family}, {dev}: another datagram");
            }
            let count = PIECES as u64;
            let sent = [("tx_split", 1), ("tx_disguised", count)];
            let received = [("rx_restored", count)];
            for ((host, before), counters) in hosts.iter().zip(&before).zip([&sent[..], &received])
            {
                let reached = wait::until(LIMIT, "the counters", || {
                    let after = counters_on(&host.netns, dev).unwrap();
                    apart_from_timed(moved(before, &after)) == expected(counters)
                });
                reached.unwrap_or_else(|error| {
                    let after = counters_on(&host.netns, dev).unwrap();
                    panic!("{family}, {dev}: {error:#}: {:?}", moved(before, &after))
                });
            }
        }
    }
}

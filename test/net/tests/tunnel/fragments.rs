//! Fragments that no segment carries: of datagrams whose flow is not open, and of segments on
//! their way in. None of them passes.

use xdptun_lab::vnet::Vnet;
use xdptun_lab::{Capture, Carried, Direct, Family, Frame, Host, Kind, Netns, Offload};
use xdptun_lab::{Relayed, Side, WireStats, wait};
use xdptun_lab::{burst, link, udp};
use xdptun_test_net::fragment::{fragment, packets};
use xdptun_test_net::packet::data;
use xdptun_test_net::{LIMIT, PORT, mode, raw, socket, status};

/// Datagrams of the owned port on the wire, and any fragment.
fn undisguised(frames: &[Frame]) -> u64 {
    let wire = WireStats::of(PORT, frames);
    wire.fragments + wire.udp_datagrams
}

/// A socket that lets IP cut its datagram into three. The first piece opens the flow, and IP gives
/// up when the second is dropped.
#[test]
fn a_datagram_that_is_cut_opens_its_flow_and_is_lost() {
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach_both(&net).unwrap();
    let netns = &net.a.netns;
    for offload in [true, false] {
        net.offload("tx", offload).unwrap();
        for family in Family::BOTH {
            let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
            let client = socket::roomy(netns, net.a.socket(family, 0)).unwrap();
            meet(&net, family);
            let context = format!("{family}, tx offload {offload}");
            let capture = Capture::start(netns, Host::DEV).unwrap();
            let before = status::counters(netns).unwrap();
            client
                .send_to(&udp::pattern(4000, 3), server.address())
                .unwrap();
            let expected = [
                ("tx_opened_lost", 1),
                ("tx_drop_fragment", 1),
                ("sent_syn", 1),
                ("rx_syn_ack", 1),
            ];
            status::wait_moved_apart_from_timed(netns, &before, &expected)
                .unwrap_or_else(|error| panic!("{context}: {error:#}"));
            assert_eq!(undisguised(&capture.stop().unwrap()), 0, "{context}");
        }
    }
}

/// Pieces that come one by one, as a router has them: the later ones, which name
/// no ports, are known by the first.
#[test]
fn pieces_of_a_datagram_do_not_leave() {
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach_both(&net).unwrap();
    let netns = &net.a.netns;
    for family in Family::BOTH {
        meet(&net, family);
        // The other way round, fragments of the first datagram might still come: none would leave.
        for (port, leave) in [(PORT + 1, 3), (PORT, 0)] {
            let to = net.b.socket(family, port);
            let whole = Carried {
                to: Side::B,
                vnet: Vnet::default(),
                bytes: raw::datagram(net.a.socket(family, 4000), to, &udp::pattern(2000, 1))
                    .unwrap(),
            };
            let pieces = fragment(Kind::Tun, &whole, 800);
            let capture = Capture::start(netns, Host::DEV).unwrap();
            let before = status::counters(netns).unwrap();
            for piece in &pieces {
                raw::send_packet(netns, to.ip(), &piece.bytes).unwrap();
            }
            let opens = u64::from(leave == 0);
            let expected = [
                ("tx_opened_lost", opens),
                ("tx_drop_fragment", 2 * opens),
                ("sent_syn", opens),
                ("rx_syn_ack", opens),
            ];
            status::wait_moved_apart_from_timed(netns, &before, &expected)
                .unwrap_or_else(|error| panic!("{family}, port {port}: {error:#}"));
            let wire = WireStats::of(port, &capture.stop().unwrap());
            assert_eq!(wire.fragments, leave, "{family}, port {port}: {wire:#?}");
        }
    }
}

/// A bridge forwards frames with a VLAN tag, which the kernel keeps beside them.
#[test]
fn nor_do_those_of_a_tagged_one() {
    const TAG: [u8; 4] = [0x81, 0x00, 0, 7];
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach_both(&net).unwrap();
    let netns = &net.a.netns;
    let add = ["link", "add", "br0", "type", "bridge"];
    netns.run("ip", add).unwrap();
    let ends = ["inside", "port"].map(|dev| link::End {
        netns,
        dev,
        addresses: &[],
    });
    link::veth(&ends[0], &ends[1]).unwrap();
    for port in ["port", Host::DEV] {
        let join = ["link", "set", port, "master", "br0"];
        netns.run("ip", join).unwrap();
    }
    netns.run("ip", ["link", "set", "br0", "up"]).unwrap();
    link::wait_up(netns, "br0").unwrap();
    for family in Family::BOTH {
        let to = net.b.socket(family, PORT);
        let whole = raw::datagram(net.a.socket(family, 4000), to, &udp::pattern(2000, 1)).unwrap();
        let tagged = packets(&whole, 800).into_iter().map(|piece| {
            let mut frame = raw::frame([[0xff; 6], [2, 0, 0, 0, 0, 9]], &piece);
            frame.splice(12..12, TAG);
            frame
        });
        let tagged: Vec<Vec<u8>> = tagged.collect();
        let capture = Capture::start(netns, Host::DEV).unwrap();
        let before = status::counters(netns).unwrap();
        burst::send_all(netns, "inside", &tagged).unwrap();
        let expected = [("tx_drop_vlan", 1), ("tx_drop_fragment", 2)];
        status::wait_moved_apart_from_timed(netns, &before, &expected)
            .unwrap_or_else(|error| panic!("{family}: {error:#}"));
        assert_eq!(undisguised(&capture.stop().unwrap()), 0, "{family}");
    }
}

/// Makes the hosts known to each other, so that nothing waits for an address.
fn meet(net: &Direct, family: Family) {
    let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT + 9)).unwrap();
    let client = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
    udp::exchange(&client, server.address(), b"hello", LIMIT).unwrap();
}

/// A segment that was cut on the way is dropped whole: the first piece by its
/// ports, the others as its companions, so that the host has nothing to put
/// together.
#[test]
fn pieces_of_a_segment_do_not_arrive() {
    for (mode, kind) in [
        (mode::TC, Kind::Tap),
        (mode::TC, Kind::Tun),
        (mode::TC_CLSACT, Kind::Tun),
        (mode::XDP, Kind::Tap),
        (mode::XDP_GENERIC, Kind::Tun),
    ] {
        let net = Relayed::new(kind, Offload::None).unwrap();
        let _attached = mode.attach_to([&net.a, &net.b]).unwrap();
        for family in Family::BOTH {
            net.relay.pass();
            let netns = &net.b.netns;
            let server = udp::Server::echo(netns, net.b.socket(family, PORT)).unwrap();
            let client = socket::roomy(&net.a.netns, net.a.socket(family, 0)).unwrap();
            udp::exchange(&client, server.address(), b"opens the flow", LIMIT).unwrap();
            net.relay.program(move |frame| match data(kind, &frame) {
                Some(packet) if frame.to == Side::B && packet.payload.len() == 1000 => {
                    fragment(kind, &frame, 256)
                }
                _ => vec![frame],
            });
            let context = format!("{mode:?}, {kind:?}, {family}");
            let before = status::counters(netns).unwrap();
            let pieces = reassembled(netns, family);
            client
                .send_to(&udp::pattern(1000, 5), server.address())
                .unwrap();
            // Its echo comes after the pieces.
            udp::exchange(&client, server.address(), b"after it", LIMIT)
                .unwrap_or_else(|error| panic!("{context}: {error:#}"));
            let moved = status::moved(&before, &status::counters(netns).unwrap());
            // 1020 bytes of TCP.
            let expected = [
                ("rx_drop_fragment", 4),
                ("rx_restored", 1),
                ("tx_disguised", 1),
            ];
            let expected = status::expected(&expected);
            assert_eq!(status::apart_from_timed(moved), expected, "{context}");
            assert_eq!(reassembled(netns, family), pieces, "{context}");
        }
    }
}

/// The kernel has one store for fragments that wait for others, which lone ones of anybody fill. How many
/// that takes, docs/security.md says.
#[test]
fn lone_fragments_of_a_stranger_fill_the_store() {
    const STEP: u32 = 100;
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach_both(&net).unwrap();
    for family in Family::BOTH {
        meet(&net, family);
        let to = net.b.socket(family, PORT + 1);
        let whole = raw::datagram(net.a.socket(family, 4000), to, &udp::pattern(2000, 1)).unwrap();
        let lone = packets(&whole, 1440).swap_remove(0);
        let refused = || kernel_counter(&net.b.netns, family, "ReasmFails");
        let before = refused();
        let mut sent = 0;
        wait::until(LIMIT, "the store to be full", || {
            for number in sent..sent + STEP {
                raw::send_packet(&net.a.netns, to.ip(), &numbered(&lone, family, number)).unwrap();
            }
            sent += STEP;
            refused() > before
        })
        .unwrap();
        println!("{family}: {sent} fragments of 1,440 bytes fill the store");
        assert!((500..=20_000).contains(&sent), "{family}: {sent}");
        // A datagram in two fragments is lost.
        let server = udp::Server::sink(&net.b.netns, to).unwrap();
        let client = socket::roomy(&net.a.netns, net.a.socket(family, 0)).unwrap();
        let before = refused();
        client.send_to(&udp::pattern(2000, 2), to).unwrap();
        wait::until(LIMIT, "its fragments to be refused", || {
            refused() >= before + 2
        })
        .unwrap();
        assert_eq!(server.datagrams(), 0, "{family}");
    }
}

/// The fragment of another datagram.
fn numbered(fragment: &[u8], family: Family, number: u32) -> Vec<u8> {
    let mut bytes = fragment.to_vec();
    match family {
        // Not zero: the kernel would choose one.
        Family::V4 => bytes[4..6].copy_from_slice(&(number as u16 + 1).to_be_bytes()),
        Family::V6 => bytes[44..48].copy_from_slice(&number.to_be_bytes()),
    }
    bytes
}

/// How many fragments the stack of a host got to put together.
fn reassembled(netns: &Netns, family: Family) -> u64 {
    kernel_counter(netns, family, "ReasmReqds")
}

/// A counter of the kernel's IP.
fn kernel_counter(netns: &Netns, family: Family, name: &str) -> u64 {
    let name = match family {
        Family::V4 => format!("Ip{name}"),
        Family::V6 => format!("Ip6{name}"),
    };
    let text = netns.run("nstat", ["-asz", &name]).unwrap();
    let line = text.lines().find(|line| line.starts_with(&name));
    let value = line.and_then(|line| line.split_whitespace().nth(1));
    value
        .unwrap_or_else(|| panic!("no {name} in {text}"))
        .parse()
        .unwrap()
}

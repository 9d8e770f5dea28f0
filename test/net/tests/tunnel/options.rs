//! Options: those that devices on the way add to segments, and those that
//! sockets add to datagrams.

use std::net::UdpSocket;

use etherparse::IpHeaders;
use nix::libc;
use xdptun_lab::{Family, Frame, Kind, Offload, Relayed, Side, sockopt, udp};
use xdptun_test_net::mode::{self, Mode};
use xdptun_test_net::packet::{TcpPacket, data};
use xdptun_test_net::wire::segments;
use xdptun_test_net::{LIMIT, PORT, socket, status};

const LENGTHS: [usize; 12] = [0, 1, 2, 5, 6, 25, 26, 33, 48, 100, 1399, 1440];

/// A change that some device makes to a segment.
type Alter = fn(&mut TcpPacket);

/// The changes that devices make to the segments of an open connection.
fn alterations(family: Family) -> Vec<(&'static str, Alter)> {
    let mut all: Vec<(&'static str, Alter)> = vec![
        ("TCP NOPs", |packet| packet.set_tcp_options(&[1; 4])),
        ("TCP timestamps", |packet| {
            packet.set_tcp_options(&[1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]);
        }),
        ("an MSS where none belongs", |packet| {
            packet.set_tcp_options(&[2, 4, 5, 0xb4]);
        }),
        ("all TCP options there can be", |packet| {
            let mut unknown = [0xaa; 40];
            (unknown[0], unknown[1]) = (0xfe, 40);
            packet.set_tcp_options(&unknown);
        }),
    ];
    all.extend(match family {
        Family::V4 => IP_V4.as_slice(),
        Family::V6 => &IP_V6,
    });
    all.push(("options of both layers", |packet| {
        IP_V4[0].1(packet);
        IP_V6[0].1(packet);
        packet.set_tcp_options(&[1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]);
    }));
    all
}

const IP_V4: [(&str, Alter); 3] = [
    ("a router alert", |packet| {
        packet.set_v4_options(&[148, 4, 0, 0]);
    }),
    ("a timestamp", |packet| {
        packet.set_v4_options(&[68, 12, 13, 0, 0, 1, 2, 3, 0, 4, 5, 6]);
    }),
    ("all IP options there can be", |packet| {
        packet.set_v4_options(&[1; 40]);
    }),
];

const IP_V6: [(&str, Alter); 4] = [
    ("a router alert", |packet| {
        packet.set_v6_options(Some(&[5, 2, 0, 0, 1, 0]), None);
    }),
    ("destination options", |packet| {
        packet.set_v6_options(None, Some(&[0x1e, 4, 1, 2, 3, 4]));
    }),
    ("both IPv6 options", |packet| {
        packet.set_v6_options(
            Some(&[1, 4, 0, 0, 0, 0]),
            Some(&[0x1e, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        );
    }),
    ("all options that are carried", |packet| {
        let mut long = vec![0x1e, 60];
        long.resize(62, 0x77);
        packet.set_v6_options(None, Some(&long));
    }),
];

/// Makes the wire change every segment with data, in both directions.
fn alter_data(net: &Relayed, alter: Alter) {
    let kind = net.kind;
    net.relay.program(move |frame| match data(kind, &frame) {
        Some(mut packet) => {
            alter(&mut packet);
            vec![frame.with_bytes(packet.write())]
        }
        None => vec![frame],
    });
}

/// Echoes every length; how many there are.
fn echo(client: &UdpSocket, family: Family, server: &udp::Server, context: &str) -> u64 {
    let largest = 1500 - family.header_len() - 20;
    let lengths: Vec<usize> = LENGTHS.into_iter().filter(|len| *len <= largest).collect();
    for &length in &lengths {
        let payload = udp::pattern(length, length.to_le_bytes()[0]);
        udp::exchange(client, server.address(), &payload, LIMIT)
            .unwrap_or_else(|error| panic!("{context}, {length} bytes: {error:#}"));
    }
    lengths.len() as u64
}

/// Checks that as many datagrams as `exchange` tells passed each way, and that
/// nothing else was counted.
fn counted(net: &Relayed, context: &str, exchange: impl FnOnce() -> u64) {
    let hosts = [&net.a, &net.b];
    let before = hosts.map(|host| status::counters(&host.netns).unwrap());
    let count = exchange();
    status::assert_carried(hosts, &before, count, context);
}

fn open(net: &Relayed, family: Family) -> (UdpSocket, udp::Server) {
    let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
    let client = socket::roomy(&net.a.netns, net.a.socket(family, 0)).unwrap();
    udp::exchange(&client, server.address(), b"opens the flow", LIMIT).unwrap();
    (client, server)
}

fn altered_in(mode: Mode, kind: Kind) {
    let net = Relayed::new(kind, Offload::None).unwrap();
    let _attached = mode.attach_to([&net.a, &net.b]).unwrap();
    for family in Family::BOTH {
        net.relay.pass();
        let (client, server) = open(&net, family);
        let context = format!("{mode:?}, {kind:?}, {family}");
        counted(&net, &context, || {
            let altered = alterations(family).into_iter().map(|(name, alter)| {
                alter_data(&net, alter);
                echo(&client, family, &server, &format!("{context}, {name}"))
            });
            altered.sum()
        });
    }
}

#[test]
fn options_of_segments_are_taken_off_by_tc() {
    for kind in Kind::BOTH {
        altered_in(mode::TC, kind);
    }
}

#[test]
fn options_of_segments_are_taken_off_by_xdp() {
    altered_in(mode::XDP, Kind::Tap);
    altered_in(mode::XDP_GENERIC, Kind::Tun);
}

/// From the SYN on, as a router that adds options makes no exceptions.
#[test]
fn a_flow_opens_and_ends_through_options() {
    for kind in Kind::BOTH {
        for family in Family::BOTH {
            let net = Relayed::new(kind, Offload::None).unwrap();
            let [a, b] = mode::TC.attach_to([&net.a, &net.b]).unwrap();
            net.relay
                .program(move |frame| match TcpPacket::read(kind, &frame.bytes) {
                    Ok(mut packet) => {
                        packet.set_v4_options(&[148, 4, 0, 0]);
                        packet.set_v6_options(Some(&[5, 2, 0, 0, 1, 0]), None);
                        vec![frame.with_bytes(packet.write())]
                    }
                    Err(_) => vec![frame],
                });
            let (client, server) = open(&net, family);
            let context = format!("{kind:?}, {family}");
            counted(&net, &context, || echo(&client, family, &server, &context));
            let states = [&net.a, &net.b].map(|host| status::open_states(&host.netns).unwrap());
            assert_eq!(states, [["established"]; 2], "{kind:?}, {family}");
            a.stop().unwrap();
            status::wait_states(&net.b.netns, "established", 0).unwrap();
            b.stop().unwrap();
        }
    }
}

/// Packets with more options than fit are dropped and counted, and the flow goes on.
#[test]
fn too_many_options_are_dropped_and_counted() {
    let net = Relayed::new(Kind::Tap, Offload::None).unwrap();
    let _attached = mode::TC.attach_to([&net.a, &net.b]).unwrap();
    let (client, server) = open(&net, Family::V6);
    alter_data(&net, |packet| {
        let mut options = vec![0x1e, 36];
        options.resize(38, 0);
        packet.set_v6_options(Some(&options), Some(&options));
    });
    let before = status::counters(&net.b.netns).unwrap();
    client.send_to(b"too much", server.address()).unwrap();
    status::wait_moved(&net.b.netns, &before, &[("rx_drop_options", 1)]).unwrap();
    net.relay.pass();
    counted(&net, "after it", || {
        echo(&client, Family::V6, &server, "after it")
    });
}

/// Ethernet pads short frames, and some devices leave more behind.
#[test]
fn padding_is_not_part_of_a_datagram() {
    for mode in [mode::TC, mode::XDP, mode::XDP_GENERIC] {
        let net = Relayed::new(Kind::Tap, Offload::None).unwrap();
        let _attached = mode.attach_to([&net.a, &net.b]).unwrap();
        for family in Family::BOTH {
            for more in [0, 4] {
                net.relay.program(move |frame| {
                    let mut bytes = frame.bytes.clone();
                    bytes.resize(bytes.len().max(60) + more, 0xee);
                    vec![frame.with_bytes(bytes)]
                });
                let (client, server) = open(&net, family);
                let context = format!("{mode:?}, {family}, {more} more bytes");
                counted(&net, &context, || echo(&client, family, &server, &context));
            }
        }
    }
}

/// Options that a socket adds: how it sets them, how the receiver asks for
/// them, and how they come.
struct Own {
    set: i32,
    ask: i32,
    come: i32,
    bytes: Vec<u8>,
}

impl Own {
    fn of(family: Family) -> Vec<Self> {
        match family {
            Family::V4 => [4, 12, 40]
                .map(|length| {
                    let mut bytes = vec![1; length - 4];
                    bytes.extend([148, 4, 0, 0]);
                    Self {
                        set: libc::IP_OPTIONS,
                        ask: libc::IP_RECVOPTS,
                        come: libc::IP_RECVOPTS,
                        bytes,
                    }
                })
                .into(),
            Family::V6 => [
                (libc::IPV6_DSTOPTS, libc::IPV6_RECVDSTOPTS),
                (libc::IPV6_HOPOPTS, libc::IPV6_RECVHOPOPTS),
            ]
            .into_iter()
            .flat_map(|(set, ask)| {
                [8, 24, 64].map(|length| {
                    let mut bytes = vec![0, (length / 8 - 1) as u8, 0x1e, (length - 4) as u8];
                    bytes.resize(length, 0x77);
                    Self {
                        set,
                        ask,
                        come: set,
                        bytes,
                    }
                })
            })
            .collect(),
        }
    }

    /// Without the first byte of an IPv6 header, which names what follows it.
    fn essence(&self, family: Family) -> &[u8] {
        essence(family, &self.bytes)
    }
}

fn essence(family: Family, options: &[u8]) -> &[u8] {
    match family {
        Family::V4 => options,
        Family::V6 => &options[1..],
    }
}

/// The options of a packet on the wire, IPv6 headers whole.
fn on_the_wire(kind: Kind, frame: &Frame) -> Vec<u8> {
    match TcpPacket::read(kind, &frame.bytes).unwrap().ip {
        IpHeaders::Ipv4(ip, _) => ip.options.to_vec(),
        IpHeaders::Ipv6(_, extensions) => {
            let headers = [
                extensions.hop_by_hop_options,
                extensions.destination_options,
            ];
            let headers = headers.iter().flatten();
            headers.flat_map(|header| header.to_bytes()).collect()
        }
    }
}

#[test]
fn options_of_datagrams_reach_the_receiver() {
    for kind in Kind::BOTH {
        for offload in [Offload::None, Offload::Checksum] {
            let net = Relayed::new(kind, offload).unwrap();
            let _attached = mode::TC.attach_to([&net.a, &net.b]).unwrap();
            for family in Family::BOTH {
                for own in Own::of(family) {
                    let context = format!("{kind:?}, {offload:?}, {family}, {:02x?}", own.bytes);
                    send_with(&net, family, &own, &context);
                }
            }
            let counters = status::counters(&net.b.netns).unwrap();
            let by_gro = counters.get("rx_gro_returned").copied().unwrap_or(0);
            assert_eq!(
                by_gro > 0,
                kind == Kind::Tap,
                "{kind:?}, {offload:?}: {by_gro}"
            );
        }
    }
}

/// Also the datagram that waits for the handshake keeps its options.
fn send_with(net: &Relayed, family: Family, own: &Own, context: &str) {
    let level = match family {
        Family::V4 => libc::IPPROTO_IP,
        Family::V6 => libc::IPPROTO_IPV6,
    };
    let server = socket::roomy(&net.b.netns, net.b.socket(family, PORT)).unwrap();
    sockopt::set_int(&server, level, own.ask, 1).unwrap();
    let client = socket::roomy(&net.a.netns, net.a.socket(family, 0)).unwrap();
    sockopt::set(&client, level, own.set, &own.bytes).unwrap();
    net.relay.sent().unwrap();
    let largest = 1500 - family.header_len() - 20 - own.bytes.len();
    let each = [10, 0, 1, 23, 24, 31, 32, 39, 40, 47, 48, 1000, largest];
    // The first opens the flow. Then so many come at once that GRO merges some: of one length, as
    // the shortest do not wait for GRO and would overtake others.
    let lengths = [&each[..1], &[1000; 128], &each[..]].concat();
    let payload = |length: usize| udp::pattern(length, length.to_le_bytes()[0]);
    for some in lengths.chunk_by(|one, next| one == next) {
        for &length in some {
            client
                .send_to(&payload(length), server.local_addr().unwrap())
                .unwrap();
        }
        for &length in some {
            let (received, options) = socket::receive_with(&server, level, own.come)
                .unwrap_or_else(|error| panic!("{context}, {length} bytes: {error:#}"));
            assert!(received == payload(length), "{context}, {length} bytes");
            let options: Vec<&[u8]> = options.iter().map(|all| essence(family, all)).collect();
            assert_eq!(options, [own.essence(family)], "{context}, {length} bytes");
        }
    }
    let frames = net.relay.sent_from(Side::A).unwrap();
    let sent = segments(&frames, PORT);
    let data: Vec<usize> = sent
        .iter()
        .filter(|segment| segment.is_data())
        .map(|segment| segment.payload.len())
        .collect();
    assert_eq!(data, lengths, "{context}");
    for frame in frames.iter().filter(|frame| {
        segments(std::slice::from_ref(frame), PORT)
            .iter()
            .any(|segment| segment.is_data())
    }) {
        let found = on_the_wire(net.kind, frame);
        assert_eq!(essence(family, &found), own.essence(family), "{context}");
    }
}

//! Ingress: addresses and checksums are verified before flags and numbers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use xdptun_common::tunnel::event::Kind;
use xdptun_common::tunnel::outcome::{Outcome, Sent};
use xdptun_lab::checksum::transport_sum;
use xdptun_lab::{Direct, Host, link};
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::path::{mac, syn_options};
use xdptun_test_datapath::{
    Case, Config, Datapath, Family, Moment, Packet, Path, Row, check, flags, row,
};

use crate::effects::closed;
use crate::{datapath, paths};

/// The peer's initial sequence number.
const PEER: u32 = 0x0123_4567;

/// Where the checksum is in a TCP header.
const CHECKSUM: usize = 16;

/// A segment of the peer.
fn from_peer(path: Path, flags: u8, [sequence, acknowledgment]: [u32; 2], len: usize) -> Packet {
    let datagram = path.inbound().payload(payload(len));
    let segment = datagram.segment(flags, sequence, acknowledgment);
    if flags & flags::SYN == 0 {
        return segment;
    }
    segment.options(&syn_options(path.family()))
}

/// A SYN is answered, wherever it comes from and goes to.
fn answered(at: Moment, path: Path, syn: Packet) -> Case {
    let isn = at.isn(&path.key());
    let answer = path.control(at, flags::SYN | flags::ACK, isn, PEER.wrapping_add(1));
    Case::ingress(syn)
        .answers(answer.link_from(mac(path.family().host())))
        .counts(Outcome::RxSyn)
        .sends(Sent::SynAck)
}

/// Where the transport header is in a frame of a family, without options.
const fn transport_at(family: Family) -> usize {
    14 + family.header_len()
}

/// Damaged copies of a frame with a wrong checksum, one for each part that it covers.
fn damages(family: Family, frame: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let tcp = transport_at(family);
    let changed = |at: usize, change: fn(u8) -> u8| {
        let mut frame = frame.to_vec();
        frame[at] = change(frame[at]);
        frame
    };
    let field = |value: u16| {
        let mut frame = frame.to_vec();
        frame[tcp + CHECKSUM..tcp + CHECKSUM + 2].copy_from_slice(&value.to_be_bytes());
        frame
    };
    let (source, destination) = match family {
        Family::V4 => (14 + 12, 14 + 16),
        Family::V6 => (14 + 8, 14 + 24),
    };
    let address = |at: usize| -> IpAddr {
        match family {
            Family::V4 => <[u8; 4]>::try_from(&frame[at..at + 4]).unwrap().into(),
            Family::V6 => <[u8; 16]>::try_from(&frame[at..at + 16]).unwrap().into(),
        }
    };
    // A sender leaves this for a device to finish, but no device does.
    let nothing = vec![0; frame.len() - tcp];
    let pending = transport_sum(address(source), address(destination), 6, &nothing);
    let mut damaged = vec![
        ("its checksum is zero", field(0)),
        ("its checksum is pending", field(pending)),
        (
            "its checksum is 1 off",
            changed(tcp + CHECKSUM + 1, |byte| byte ^ 1),
        ),
        (
            "its window is changed",
            changed(tcp + 15, |byte| byte ^ 0x80),
        ),
        ("its last byte is changed", {
            changed(frame.len() - 1, |byte| byte.wrapping_add(1))
        }),
    ];
    if family == Family::V4 {
        damaged.extend([
            ("its TTL is changed", changed(14 + 8, |byte| byte - 1)),
            (
                "its header checksum is changed",
                changed(14 + 11, |byte| byte ^ 1),
            ),
        ]);
    }
    damaged
}

#[test]
fn a_damaged_segment_without_a_flow_is_not_answered() {
    let mut rows: Vec<Row> = Vec::new();
    for family in Family::ALL {
        let path = Path::server(family);
        let segments = [
            ("SYN", flags::SYN, 0),
            ("SYN with data", flags::SYN, 601),
            ("SYN-ACK", flags::SYN | flags::ACK, 0),
            ("ACK", flags::ACK, 0),
            ("FIN", flags::FIN | flags::ACK, 0),
            ("data", flags::DATA, 1400),
            ("a short datagram", flags::DATA, 3),
        ];
        for (name, flags, len) in segments {
            let segment = from_peer(path, flags, [PEER, 77], len);
            for (damage, frame) in damages(family, &segment.bytes()) {
                rows.push(row(format!("{family:?} {name}, {damage}"), move |_| {
                    Case::ingress(frame.clone()).drops(Outcome::RxDropChecksum)
                }));
            }
        }
        // The same with nothing wrong, for the above to mean something.
        rows.push(row(format!("{family:?} SYN with data"), move |at| {
            answered(at, path, from_peer(path, flags::SYN, [PEER, 77], 601))
        }));
    }
    check(&mut datapath(), rows);
}

#[test]
fn damage_behind_options_is_found() {
    let mut rows: Vec<Row> = Vec::new();
    for family in Family::ALL {
        let path = Path::server(family);
        let datagram = path.inbound().ip_options(3).extension(60.into(), 2);
        let syn = datagram.segment(flags::SYN, PEER, 0);
        let syn = syn.options(&syn_options(family));
        rows.push(row(format!("{family:?} SYN"), {
            let syn = syn.clone();
            move |at| answered(at, path, syn.clone())
        }));
        let frame = syn.bytes();
        // The last option of TCP, and with IPv4 one in front.
        let within: &[usize] = match family {
            Family::V4 => &[frame.len() - 1, transport_at(family) + 2],
            Family::V6 => &[frame.len() - 1],
        };
        for at in within.iter().copied() {
            let mut frame = frame.clone();
            frame[at] ^= 4;
            rows.push(row(format!("{family:?} SYN, byte {at}"), move |_| {
                Case::ingress(frame.clone()).drops(Outcome::RxDropChecksum)
            }));
        }
    }
    check(&mut datapath(), rows);
}

#[test]
fn a_damaged_segment_does_nothing_to_a_flow() {
    let mut rows: Vec<Row> = Vec::new();
    let segments = [
        ("RST", flags::RST, 0),
        ("RST with ACK", flags::RST | flags::ACK, 0),
        ("FIN", flags::FIN | flags::ACK, 0),
        ("FIN with data", flags::FIN | flags::ACK, 100),
        ("ACK", flags::ACK, 0),
        ("SYN", flags::SYN, 0),
    ];
    for path in paths() {
        for (name, flags, len) in segments {
            let segment = move |at| {
                let flow = path.established(at);
                (
                    flow,
                    from_peer(path, flags, [flow.rcv_nxt, flow.snd_nxt], len),
                )
            };
            let (_, example) = segment(Moment::now());
            let kinds = damages(path.family(), &example.bytes()).len();
            for kind in 0..kinds {
                rows.push(row(format!("{path:?} {name}, damage {kind}"), move |at| {
                    let (flow, segment) = segment(at);
                    let (_, frame) = damages(path.family(), &segment.bytes()).swap_remove(kind);
                    Case::ingress(frame)
                        .flow(path.key(), flow)
                        .drops(Outcome::RxDropChecksum)
                }));
            }
            for link in to_many(path.family()) {
                rows.push(row(format!("{path:?} {name} to {link:x?}"), move |at| {
                    let (flow, segment) = segment(at);
                    Case::ingress(segment.link_to(link))
                        .flow(path.key(), flow)
                        .drops(Outcome::RxDropAddress)
                }));
            }
        }
        rows.push(row(format!("{path:?} RST"), move |at| {
            let flow = path.established(at);
            Case::ingress(from_peer(path, flags::RST, [flow.rcv_nxt, 0], 0))
                .flow(path.key(), flow)
                .drops(Outcome::RxRst)
                .reports(Kind::Reset, path.key())
                .changes(path.key(), |flow| closed(flow, at))
                .changes(path.key(), |flow| flow.link = path.outbound().link())
        }));
    }
    check(&mut datapath(), rows);
}

/// Frames to all stations of a link, and to a group of them.
const fn to_many(family: Family) -> [[u8; 6]; 2] {
    let group = match family {
        Family::V4 => [1, 0, 0x5e, 0, 0, 1],
        Family::V6 => [0x33, 0x33, 0, 0, 0, 1],
    };
    [[0xff; 6], group]
}

#[test]
fn a_frame_to_many_is_not_answered() {
    let mut rows: Vec<Row> = Vec::new();
    for family in Family::ALL {
        let path = Path::server(family);
        for link in to_many(family) {
            for flags in [flags::SYN, flags::SYN | flags::ACK, flags::ACK, flags::DATA] {
                rows.push(row(
                    format!("{family:?} {flags:#x} to {link:x?}"),
                    move |_| {
                        let segment = from_peer(path, flags, [PEER, 77], 0);
                        Case::ingress(segment.link_to(link)).drops(Outcome::RxDropAddress)
                    },
                ));
            }
        }
    }
    check(&mut datapath(), rows);
}

/// Linux accepts a segment with no time to live for itself, and forwards none.
#[test]
fn a_time_to_live_of_zero_is_none_of_our_business() {
    let mut rows: Vec<Row> = Vec::new();
    for family in Family::ALL {
        let path = Path::server(family);
        for ttl in [0, 1] {
            rows.push(row(format!("{family:?} SYN, TTL {ttl}"), move |at| {
                answered(at, path, from_peer(path, flags::SYN, [PEER, 0], 0).ttl(ttl))
            }));
        }
    }
    check(&mut datapath(), rows);
}

/// Addresses that nothing can come from, or go to, over a network.
fn martians(family: Family) -> Vec<IpAddr> {
    match family {
        Family::V4 => [
            Ipv4Addr::UNSPECIFIED,
            Ipv4Addr::new(0, 1, 2, 3),
            Ipv4Addr::LOCALHOST,
            Ipv4Addr::new(127, 255, 255, 255),
            Ipv4Addr::new(224, 0, 0, 1),
            Ipv4Addr::new(239, 1, 2, 3),
            Ipv4Addr::BROADCAST,
        ]
        .map(IpAddr::from)
        .into(),
        Family::V6 => [
            Ipv6Addr::UNSPECIFIED,
            Ipv6Addr::LOCALHOST,
            Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
            Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 0xfb),
        ]
        .map(IpAddr::from)
        .into(),
    }
}

#[test]
fn an_address_that_no_connection_has_is_not_answered() {
    let mut rows: Vec<Row> = Vec::new();
    for family in Family::ALL {
        for address in martians(family) {
            let (mut from, mut to) = (Path::server(family), Path::server(family));
            from.remote.set_ip(address);
            to.local.set_ip(address);
            for (way, path) in [("from", from), ("to", to)] {
                for flags in [flags::SYN, flags::SYN | flags::ACK, flags::ACK, flags::RST] {
                    rows.push(row(format!("{flags:#x} {way} {address}"), move |_| {
                        let segment = from_peer(path, flags, [PEER, 77], 0);
                        // As it is to this host, whatever the address.
                        Case::ingress(segment.link_to([0; 6])).drops(Outcome::RxDropAddress)
                    }));
                }
            }
        }
    }
    check(&mut datapath(), rows);
}

/// The path to another address of this host, or from another one.
fn at(family: Family, local: IpAddr, remote: IpAddr) -> Path {
    let mut path = Path::server(family);
    path.local.set_ip(local);
    path.remote.set_ip(remote);
    path
}

/// The first segments of a stranger.
const FIRST: [u8; 5] = [
    flags::SYN,
    flags::SYN | flags::ACK,
    flags::ACK,
    flags::DATA,
    flags::FIN | flags::ACK,
];

#[test]
fn only_an_address_of_this_host_is_answered() {
    let mut rows: Vec<Row> = Vec::new();
    for family in Family::ALL {
        let [host, also, peer] = [family.host(), family.also_host(), family.peer()];
        for (to, from) in [(host, peer), (also, peer)] {
            let path = at(family, to, from);
            rows.push(row(format!("SYN from {from} to {to}"), move |at| {
                answered(
                    at,
                    path,
                    from_peer(path, flags::SYN, [PEER, 0], 0).link_to([0; 6]),
                )
            }));
        }
        for (to, from) in [
            (family.stranger(), peer),
            (family.to_all(), peer),
            // Of this host, or the very same.
            (host, also),
            (host, family.to_all()),
            (also, also),
            (host, host),
        ] {
            let path = at(family, to, from);
            for flags in FIRST {
                rows.push(row(format!("{flags:#x} from {from} to {to}"), move |_| {
                    let segment = from_peer(path, flags, [PEER, 77], 0);
                    Case::ingress(segment.link_to([0; 6])).drops(Outcome::RxDropAddress)
                }));
            }
        }
    }
    check(&mut datapath(), rows);
}

/// A flow that is there is one, whatever address it has: the host has sent from it, or its
/// peer has answered there.
#[test]
fn a_flow_has_proven_its_addresses() {
    let mut rows: Vec<Row> = Vec::new();
    for family in Family::ALL {
        let path = at(family, family.stranger(), family.peer());
        rows.push(row(format!("{path:?}"), move |at| {
            let flow = path.established(at);
            let reset = from_peer(path, flags::RST, [flow.rcv_nxt, 0], 0);
            Case::ingress(reset.link_to([0; 6]))
                .flow(path.key(), flow)
                .drops(Outcome::RxRst)
                .reports(Kind::Reset, path.key())
                .changes(path.key(), |flow| closed(flow, at))
                .changes(path.key(), |flow| flow.link[6..12].fill(0))
        }));
    }
    check(&mut datapath(), rows);
}

/// A router also accepts addresses that it forwards to, and no others.
#[test]
fn an_address_that_is_forwarded_to_is_answered() {
    let net = Direct::new().unwrap();
    let ifindex = link::index(&net.a.netns, Host::DEV).unwrap();
    let forwards = |yes: bool| {
        let set = format!(
            "net.ipv4.conf.all.forwarding={0}\nnet.ipv6.conf.all.forwarding={0}\n",
            u8::from(yes)
        );
        net.a
            .netns
            .run_with_input("sysctl", ["-qp", "-"], &set)
            .unwrap();
    };
    // Networks behind this host, of which some are closed.
    let routes = "link add lan type veth peer name lan-end\n\
         link set lan up\nlink set lan-end up\n\
         address add 198.51.100.1/24 dev lan\n\
         address add 2001:db8:100::1/64 dev lan nodad\n\
         route add unreachable 198.51.100.64/26\n\
         route add blackhole 2001:db8:100:0:1::/80\n";
    net.a
        .netns
        .run_with_input("ip", ["-batch", "-"], routes)
        .unwrap();
    let behind = |family| match family {
        Family::V4 => ["198.51.100.7", "198.51.100.70"],
        Family::V6 => ["2001:db8:100::7", "2001:db8:100:0:1::7"],
    };
    let rows = |forwards: bool| {
        let mut rows: Vec<Row> = Vec::new();
        for family in Family::ALL {
            for (number, to) in behind(family).into_iter().enumerate() {
                let path = at(family, to.parse().unwrap(), family.peer());
                for (flags, ttl) in [(flags::SYN, 64), (flags::SYN, 2), (flags::SYN, 1)]
                    .into_iter()
                    .chain(FIRST.map(|flags| (flags, 0)))
                {
                    let passes = forwards && number == 0 && ttl > 1;
                    rows.push(row(format!("{flags:#x} to {to}, TTL {ttl}"), move |at| {
                        let segment = from_peer(path, flags, [PEER, 77], 0).ttl(ttl);
                        let segment = segment.link_to([0; 6]);
                        match passes {
                            true => answered(at, path, segment),
                            false => Case::ingress(segment).drops(Outcome::RxDropAddress),
                        }
                    }));
                }
            }
        }
        rows
    };
    let mut datapath = net
        .a
        .netns
        .enter(|| {
            Datapath::new(&Config {
                ifindex,
                ..Config::default()
            })
        })
        .unwrap();
    for yes in [false, true] {
        forwards(yes);
        net.a
            .netns
            .enter(|| check(&mut datapath, rows(yes)))
            .unwrap();
    }
}

//! Handshakes beside those of Linux itself: from the same host, over the same interface,
//! compared field by field.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

use socket2::{Domain, Socket, Type};
use xdptun_lab::{Direct, Family, Frame, Host, udp, wait};
use xdptun_test_net::look::{
    Base, Comparison, Look, flow_label, identification, receiver, sender, tcp_packets, zero_or_not,
};
use xdptun_test_net::oracle::{
    CHANGED, DEFAULTS, KNOWN, LINUX, SMALL, attach, hosts, listen, nobody,
};
use xdptun_test_net::packet::TcpPacket;
use xdptun_test_net::scan::introduce;
use xdptun_test_net::wire::Wire;
use xdptun_test_net::{LIMIT, PORT, mode};

/// A connection of Linux with something sent each way; both ends, so that it stays.
fn converse(net: &Direct, listener: &TcpListener) -> [TcpStream; 2] {
    let to = listener.local_addr().unwrap();
    let connected = net.a.netns.enter(|| TcpStream::connect(to));
    let mut near = connected.unwrap().unwrap();
    let (mut far, _) = listener.accept().unwrap();
    let mut received = [0; 5];
    near.write_all(b"hello").unwrap();
    far.read_exact(&mut received).unwrap();
    far.write_all(b"hello").unwrap();
    near.read_exact(&mut received).unwrap();
    [near, far]
}

/// The segments that each client sent and received, in order of time.
fn flows(frames: &[Frame], clients: &[SocketAddr], port: u16) -> Vec<Vec<TcpPacket>> {
    let all = tcp_packets(frames, port);
    let of = |client: &SocketAddr| {
        let is_its = |packet: &&TcpPacket| {
            (sender(packet), packet.tcp.source_port) == (client.ip(), client.port())
                || (receiver(packet), packet.tcp.destination_port) == (client.ip(), client.port())
        };
        all.iter().filter(is_its).cloned().collect()
    };
    clients.iter().map(of).collect()
}

/// The first three segments of a flow.
fn opening(flow: &[TcpPacket]) -> [(&'static str, Look); 3] {
    let [syn, syn_ack, rest @ ..] = flow else {
        panic!("no handshake: {flow:?}");
    };
    // Another CPU may let the first data overtake it.
    let is_ack = |packet: &&TcpPacket| {
        packet.tcp.source_port == syn.tcp.source_port && packet.payload.is_empty()
    };
    let ack = rest.iter().find(is_ack).expect("an ACK");
    let of_client = Base::own(syn, syn_ack.tcp.sequence_number);
    let of_server = Base {
        identification: 0,
        ..Base::own(syn_ack, syn.tcp.sequence_number)
    };
    [
        ("SYN", Look::of(syn, Base::own(syn, 0))),
        ("SYN-ACK", Look::of(syn_ack, of_server)),
        ("ACK", Look::of(ack, of_client)),
    ]
}

/// The fields that only several flows together show: random numbers, and flow labels.
fn across(flows: &[Vec<TcpPacket>]) -> Look {
    let syns: Vec<u16> = flows.iter().map(|flow| identification(&flow[0])).collect();
    let different: BTreeSet<_> = syns.iter().collect();
    let fields = [
        (
            "IDs of SYNs",
            zero_or_not(syns.iter().map(|id| (*id).into())),
        ),
        ("IDs are the same", (different.len() == 1).to_string()),
    ];
    let labels = |of_client: bool| {
        let of_side = flows.iter().map(move |flow| {
            let from = |packet: &&TcpPacket| {
                (packet.tcp.source_port == flow[0].tcp.source_port) == of_client
            };
            let labels = flow.iter().filter(from).filter_map(flow_label);
            labels.collect::<Vec<u32>>()
        });
        of_side.collect::<Vec<_>>()
    };
    let shown = |labels: Vec<Vec<u32>>| {
        let one = labels
            .iter()
            .all(|all| all.iter().all(|label| *label == all[0]));
        match one {
            true => {
                zero_or_not(labels.iter().filter_map(|all| all.first().copied())) + ", one a flow"
            }
            false => "several in a flow".to_owned(),
        }
    };
    Look::with(fields)
        .and("client's flow labels", shown(labels(true)))
        .and("server's flow labels", shown(labels(false)))
}

fn compare_flows(
    comparison: &mut Comparison,
    case: &str,
    ours: &[Vec<TcpPacket>],
    linux: &[Vec<TcpPacket>],
) {
    for (ours, linux) in ours.iter().zip(linux) {
        for ((kind, ours), (_, linux)) in opening(ours).into_iter().zip(opening(linux)) {
            comparison.compare(kind, case, &ours, &linux);
        }
    }
    comparison.compare("several flows", case, &across(ours), &across(linux));
}

/// How many flows tell random numbers from fixed ones.
const FLOWS: usize = 4;

/// Flows of the tunnel, from their first segments on.
fn open(net: &Direct, family: Family) -> Vec<Vec<TcpPacket>> {
    let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
    let wire = Wire::watch(&[&net.a, &net.b]).unwrap();
    let sockets = [(); FLOWS].map(|()| {
        let client = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
        udp::exchange(&client, server.address(), b"hello", LIMIT).unwrap();
        client
    });
    let clients = sockets.map(|socket| socket.local_addr().unwrap());
    flows(&wire.stop().unwrap(), &clients, PORT)
}

/// The same of Linux.
fn connect(net: &Direct, family: Family, port: u16) -> Vec<Vec<TcpPacket>> {
    let listener = listen(&net.b, family, port);
    let wire = Wire::watch(&[&net.a, &net.b]).unwrap();
    let connections = [(); FLOWS].map(|()| converse(net, &listener));
    let frames = wire.stop().unwrap();
    let clients = connections.map(|[near, _far]| near.local_addr().unwrap());
    flows(&frames, &clients, port)
}

/// The comparison finds flows of Linux equal, and another TTL different.
#[test]
fn linux_opens_as_linux() {
    let mut comparison = Comparison::new(&[]);
    let net = hosts(DEFAULTS);
    for family in Family::BOTH {
        let flows = connect(&net, family, LINUX);
        let more = connect(&net, family, LINUX + 1);
        compare_flows(&mut comparison, &family.to_string(), &flows, &more);

        let (setting, field) = match family {
            Family::V4 => ("net.ipv4.ip_default_ttl", "TTL"),
            Family::V6 => ("net.ipv6.conf.eth0.hop_limit", "hop limit"),
        };
        net.a.netns.sysctl(setting, "63").unwrap();
        let mut control = Comparison::new(&[]);
        let other = connect(&net, family, LINUX);
        compare_flows(&mut control, "another TTL", &other, &flows);
        let found: BTreeSet<_> = control.differences().iter().copied().collect();
        assert_eq!(found, BTreeSet::from([("SYN", field), ("ACK", field)]));
    }
    comparison.finish();
}

/// SYN, SYN-ACK and ACK, and the flow labels of these and of the data after them, with
/// the settings of the hosts as they are and changed.
#[test]
fn a_flow_opens_as_a_connection_of_linux() {
    let mut comparison = Comparison::new(KNOWN);
    for (name, settings) in [
        ("defaults", DEFAULTS),
        ("ECN, TTL, large buffers", CHANGED),
        ("small buffers", SMALL),
    ] {
        let net = hosts(settings);
        let _attached = mode::TC.attach_both(&net).unwrap();
        for family in Family::BOTH {
            let (ours, linux) = (open(&net, family), connect(&net, family, LINUX));
            let case = format!("{family}, {name}");
            compare_flows(&mut comparison, &case, &ours, &linux);
        }
    }
    comparison.finish();
}

/// A TCP socket that has begun to connect.
fn call(host: &Host, to: SocketAddr) -> Socket {
    let begin = || {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.connect(&to.into()).unwrap_err();
        socket
    };
    host.netns.enter(begin).unwrap()
}

/// A SYN that nothing answers is sent again as Linux does it, ECN given up.
#[test]
fn a_syn_is_repeated_as_by_linux() {
    let mut comparison = Comparison::new(KNOWN);
    let net = hosts(CHANGED);
    let _attached = attach(&net.a, &[]);
    let wire = Wire::watch(&[&net.a]).unwrap();
    let mut sockets: Vec<(UdpSocket, Socket)> = Vec::new();
    for family in Family::BOTH {
        let to = |port| SocketAddr::new(nobody(family, 99), port);
        introduce(&net.a, nobody(family, 99)).unwrap();
        let socket = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
        socket.send_to(b"hello", to(PORT)).unwrap();
        sockets.push((socket, call(&net.a, to(LINUX))));
    }
    for (family, port) in Family::BOTH.iter().flat_map(|f| [(*f, PORT), (*f, LINUX)]) {
        wait::until(LIMIT, "a SYN to be repeated", || {
            let to = nobody(family, 99);
            wire.count(port, |segment| segment.destination.ip() == to) > 1
        })
        .unwrap();
    }
    let frames = wire.stop().unwrap();
    for family in Family::BOTH {
        let looks = [PORT, LINUX].map(|port| {
            let mut all = tcp_packets(&frames, port);
            all.retain(|packet| receiver(packet) == nobody(family, 99));
            let base = Base::own(&all[0], 0);
            let labels = [&all[0], &all[1]].map(flow_label);
            let step = if labels[0] == labels[1] {
                "the same"
            } else {
                "another"
            };
            let again = Look::of(&all[1], base);
            [
                Look::of(&all[0], base),
                again.and("flow label after the first's", step.to_owned()),
            ]
        });
        let [[first, again], [first_of_linux, again_of_linux]] = looks;
        let case = family.to_string();
        comparison.compare("SYN", &case, &first, &first_of_linux);
        comparison.compare("repeated SYN", &case, &again, &again_of_linux);
    }
    comparison.finish();
}

//! Network cards instead of veth pairs: their checksum and segmentation
//! offloads, their XDP. Two guests on one wire, each with one role; what was on
//! the wire is judged by `cargo xtask vm --nic`, which records it.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;

use nix::sys::socket::{setsockopt, sockopt::UdpGsoSegment};
use xdptun_lab::numbered::{Tally, datagram, number};
use xdptun_lab::{Attached, Direct, Family, Host, udp, wait, xdptun};
use xdptun_test_net::{LIMIT, PORT, socket};
use xdptun_test_vm::card;
use xdptun_test_vm::twin::{Order, Twin};
use xdptun_test_wg::config::{self, Config};
use xdptun_test_wg::{Implementation, Tunnel, tunnel};

/// Through the stack, and as the driver would have it.
const INGRESS: [&str; 2] = ["tc", "auto"];

/// Datagrams of a burst, and how many bursts.
const BURST: u32 = 64;
const BURSTS: u32 = 8;

/// The port of the byte echo inside the tunnel, and how much goes through.
const STREAM_PORT: u16 = 9001;
const STREAM_BYTES: usize = 1 << 20;

fn largest(family: Family) -> usize {
    1500 - family.header_len() - 20
}

fn other(family: Family, port: u16) -> SocketAddr {
    let (v4, v6) = Direct::addresses(2);
    match family {
        Family::V4 => (v4, port).into(),
        Family::V6 => (v6, port).into(),
    }
}

fn arguments(ingress: &str) -> Vec<String> {
    let port = PORT.to_string();
    ["--port", &port, "--ingress", ingress]
        .map(str::to_owned)
        .into()
}

fn attach(host: &Host, arguments: &[String]) -> anyhow::Result<Attached> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    Attached::start(&host.netns, Host::DEV, &arguments)
}

/// Around what the room-making saves, around the shortest Ethernet frame, and
/// the most that fits.
fn echo(socket: &UdpSocket, family: Family) {
    let most = largest(family);
    let short = (0..=2).chain(26..=30).chain(46..=50);
    for length in short.chain([333, 998, 999, most - 1, most]) {
        let payload = udp::pattern(length, 3);
        udp::exchange(socket, other(family, PORT), &payload, LIMIT)
            .unwrap_or_else(|error| panic!("{family}, {length} bytes: {error:#}"));
    }
}

/// One send, many datagrams.
fn super_packets(socket: &UdpSocket, family: Family) {
    for (size, count, last) in [
        (900, 2, 900),
        (900, 40, 1),
        (largest(family), 44, 31),
        (27, 9, 2),
    ] {
        setsockopt(socket, UdpGsoSegment, &i32::try_from(size).unwrap()).unwrap();
        let sent = udp::pattern(size * (count - 1) + last, 5);
        socket.send_to(&sent, other(family, PORT)).unwrap();
        let mut echoed = Vec::new();
        while echoed.len() < sent.len() {
            echoed.extend(udp::receive(socket, LIMIT).unwrap().0);
        }
        assert!(
            echoed == sent,
            "{family}, {count} of {size} bytes: other bytes"
        );
    }
    setsockopt(socket, UdpGsoSegment, &0).unwrap();
}

/// As fast as they can be sent, so that the receivers merge what can be merged.
fn bursts(socket: &UdpSocket, family: Family) {
    for burst in 0..BURSTS {
        let numbers = burst * BURST..(burst + 1) * BURST;
        for number in numbers.clone() {
            socket
                .send_to(&datagram(number), other(family, PORT))
                .unwrap();
        }
        let mut tally = Tally::default();
        for _ in 0..BURST {
            let (bytes, _) = udp::receive(socket, LIMIT).unwrap();
            tally.add(number(&bytes).unwrap());
        }
        assert_eq!(tally, numbers.collect(), "{family}");
    }
}

fn datagrams(host: &Host) {
    for family in Family::BOTH {
        let socket = socket::roomy(&host.netns, host.socket(family, 0)).unwrap();
        echo(&socket, family);
        super_packets(&socket, family);
        bursts(&socket, family);
    }
    let socket = udp::bind(&host.netns, host.socket(Family::V4, 0)).unwrap();
    udp::without_checksum(&socket).unwrap();
    echo(&socket, Family::V4);
}

/// Kernel WireGuard, whose checksums are always left for the card to finish.
fn wireguard(host: &Host, twin: &mut Twin) {
    assert_eq!(Implementation::chosen().unwrap(), Implementation::Kernel);
    for family in Family::BOTH {
        let [mut own, mut others] = config::generate(other(family, 0).ip()).unwrap();
        for config in [&mut own, &mut others] {
            config.mtu = 1408;
        }
        twin.order(&Order::Tunnel {
            address: others.address.clone(),
            mtu: others.mtu,
            setconf: others.setconf.clone(),
        })
        .unwrap();
        twin.done().unwrap();
        let tunnel = Tunnel::up(host, &own).unwrap();
        let inside = others.ip().unwrap();
        let ping = [
            "-n",
            "-c",
            "3",
            "-s",
            "1300",
            "-w",
            "60",
            &inside.to_string(),
        ];
        host.netns.run("ping", ping).unwrap();
        stream(host, (inside, STREAM_PORT).into());
        drop(tunnel);
        remove_tunnel(host);
        twin.order(&Order::NoTunnel).unwrap();
        twin.done().unwrap();
    }
}

fn remove_tunnel(host: &Host) {
    host.netns.run("ip", ["link", "del", tunnel::DEV]).unwrap();
}

/// Sends bytes to the echo inside the tunnel and compares what comes back.
fn stream(host: &Host, to: SocketAddr) {
    let stream = host
        .netns
        .enter(|| TcpStream::connect(to))
        .unwrap()
        .unwrap();
    stream
        .set_read_timeout(Some(wait::stretched(LIMIT).unwrap()))
        .unwrap();
    let sent = udp::pattern(STREAM_BYTES, 8);
    let mut echoed = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            (&stream).write_all(&sent).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        });
        (&stream).read_to_end(&mut echoed).unwrap();
    });
    assert!(echoed == sent, "other bytes came back through the tunnel");
}

fn echo_streams(host: &Host) {
    let listen = || TcpListener::bind(("0.0.0.0", STREAM_PORT));
    let listener = host.netns.enter(listen).unwrap().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            std::io::copy(&mut &stream, &mut &stream).unwrap();
        }
    });
}

#[test]
fn leads() {
    let host = card::host(1).unwrap();
    let mut twin = Twin::lead(&host, Direct::addresses(2).0).unwrap();
    for ingress in INGRESS {
        let arguments = arguments(ingress);
        twin.order(&Order::Attach(arguments.clone())).unwrap();
        let attached = attach(&host, &arguments).unwrap();
        twin.done().unwrap();
        let status = xdptun::status(&host.netns).unwrap();
        println!(
            "{}: {}",
            card::driver().unwrap(),
            status["interfaces"][0]["ingress"]
        );
        datagrams(&host);
        if ingress == INGRESS[1] {
            wireguard(&host, &mut twin);
        }
        attached.stop().unwrap();
        twin.order(&Order::Detach).unwrap();
        twin.done().unwrap();
    }
    twin.order(&Order::End).unwrap();
    twin.done().unwrap();
}

#[test]
fn follows() {
    let host = card::host(2).unwrap();
    echo_streams(&host);
    let servers = || {
        let server = |family| udp::Server::echo(&host.netns, host.socket(family, PORT)).unwrap();
        Some(Family::BOTH.map(server))
    };
    let mut echo = servers();
    let mut attached = None;
    let mut tunnel = None;
    let mut twin = Twin::follow(&host).unwrap();
    twin.obey(|order| {
        match order {
            Order::Attach(arguments) => attached = Some(attach(&host, arguments)?),
            Order::Detach => {
                if let Some(attached) = attached.take() {
                    attached.stop()?;
                }
            }
            Order::Tunnel {
                address,
                mtu,
                setconf,
            } => {
                // WireGuard wants their port.
                drop(echo.take());
                let config = Config {
                    address: address.clone(),
                    mtu: *mtu,
                    setconf: setconf.clone(),
                };
                tunnel = Some(Tunnel::up(&host, &config)?);
            }
            Order::NoTunnel => {
                drop(tunnel.take());
                remove_tunnel(&host);
                echo = servers();
            }
            Order::End => {}
        }
        Ok(())
    })
    .unwrap();
}

//! The laboratory itself: what the other suites rely on, checked for real.

use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use xdptun_lab::segment::{Checksum, Content, Packet, parse};
use xdptun_lab::{Capture, Direct, Family, Frame, Host, Multihomed, Netns, Process, Routed, Side};
use xdptun_lab::{Uplinked, WireStats};
use xdptun_lab::{link, udp, wait};

const LIMIT: Duration = Duration::from_secs(10);
const PORT: u16 = 8000;

fn packets(frames: &[Frame]) -> Vec<Packet<'_>> {
    let contents = frames.iter().map(|frame| parse(frame).unwrap());
    contents
        .filter_map(|content| match content {
            Content::Transport(packet) => Some(packet),
            Content::Fragment(_) | Content::Other => None,
        })
        .collect()
}

#[test]
fn a_namespace_is_removed_with_its_last_owner() {
    let netns = Netns::new("gone").unwrap();
    let path = format!("/run/netns/{}", netns.name());
    let second = netns.clone();
    drop(netns);
    assert!(std::fs::exists(&path).unwrap());
    drop(second);
    assert!(!std::fs::exists(&path).unwrap());
}

#[test]
fn two_hosts_echo_and_the_capture_shows_both_directions() {
    let net = Direct::new().unwrap();
    net.offload("tx", false).unwrap();
    for family in Family::BOTH {
        let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
        let socket = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
        let capture = Capture::start(&net.b.netns, Host::DEV).unwrap();
        for length in [0, 1, 2, 1399, 1400] {
            udp::exchange(&socket, server.address(), &udp::pattern(length, 7), LIMIT).unwrap();
        }
        let frames = capture.stop().unwrap();
        server.stop().unwrap();

        let stats = WireStats::of(PORT, &frames);
        assert_eq!(stats.udp_datagrams, 10, "{family}");
        assert_eq!(stats.payload_bytes, 2 * (1 + 2 + 1399 + 1400), "{family}");
        assert_eq!(stats.bad_checksums, 0, "{family}: {:?}", stats.examples);
        assert_eq!(stats.unready_checksums, 0, "{family}");
        for frame in &frames {
            if let Content::Transport(packet) = parse(frame).unwrap() {
                assert_eq!(frame.outgoing, packet.source.port() == PORT, "{packet}");
            }
        }
    }
}

#[test]
fn with_tx_checksum_offload_the_sums_are_unfinished_not_bad() {
    let net = Direct::new().unwrap();
    let server = udp::Server::sink(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
    let socket = udp::bind(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
    let capture = Capture::start(&net.b.netns, Host::DEV).unwrap();
    socket.send_to(b"payload", server.address()).unwrap();
    udp::without_checksum(&socket).unwrap();
    socket.send_to(b"payload", server.address()).unwrap();
    wait::until(LIMIT, "two datagrams", || server.datagrams() == 2).unwrap();
    let frames = capture.stop().unwrap();
    let verdicts: Vec<_> = packets(&frames).iter().map(|p| p.checksum).collect();
    assert_eq!(verdicts, [Checksum::NotReady, Checksum::Absent]);
}

#[test]
fn the_router_masquerades_and_tracks_every_client() {
    let net = Routed::with_clients(2).unwrap();
    for family in Family::BOTH {
        let server = udp::Server::echo(&net.server.netns, net.server.socket(family, PORT)).unwrap();
        let capture = Capture::start(&net.server.netns, Host::DEV).unwrap();
        for client in &net.clients {
            let socket = udp::bind(&client.netns, client.socket(family, 0)).unwrap();
            udp::exchange(&socket, server.address(), b"hello", LIMIT).unwrap();
        }
        let frames = capture.stop().unwrap();
        let seen = packets(&frames);
        assert_eq!(seen.len(), 4, "{family}: {seen:?}");
        let client_address = |packet: &Packet<'_>| match packet.destination.port() {
            PORT => packet.source.ip(),
            _ => packet.destination.ip(),
        };
        let router: IpAddr = match family {
            Family::V4 => net.router.v4.into(),
            Family::V6 => net.router.v6.into(),
        };
        assert!(seen.iter().all(|packet| client_address(packet) == router));
    }
    assert_eq!(net.router.conntrack("udp", PORT).unwrap().len(), 4);
    assert_eq!(net.router.dropped().unwrap().invalid, 0);
}

#[test]
fn a_way_back_may_be_another_and_routes_change_both() {
    let net = Multihomed::with_links(3).unwrap();
    net.route_from(Side::B, 1).unwrap();
    let devs = [0, 1, 2].map(Multihomed::dev);
    for family in Family::BOTH {
        let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
        let socket = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
        // Datagrams there and back on each link.
        let seen = || {
            let captures = devs.each_ref();
            let captures = captures.map(|dev| Capture::start(&net.b.netns, dev).unwrap());
            udp::exchange(&socket, server.address(), b"hello", LIMIT).unwrap();
            captures.map(|capture| {
                let frames = capture.stop().unwrap();
                let seen = packets(&frames);
                let back = seen.iter().filter(|packet| packet.source.port() == PORT);
                let back = back.count();
                (seen.len() - back, back)
            })
        };
        assert_eq!(seen(), [(1, 0), (0, 1), (0, 0)], "{family}");
        net.route(2).unwrap();
        assert_eq!(seen(), [(0, 0), (0, 0), (1, 1)], "{family}");
        net.route(0).unwrap();
        net.route_from(Side::B, 1).unwrap();
    }
    net.unplug(0).unwrap();
    assert!(!link::names(&net.b.netns).unwrap().contains(&devs[0]));
    net.plug_in(0).unwrap();
    net.route(0).unwrap();
    let server = udp::Server::echo(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
    let socket = udp::bind(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
    udp::exchange(&socket, server.address(), b"hello", LIMIT).unwrap();
}

#[test]
fn an_uplinked_server_answers_by_its_default_route() {
    let net = Uplinked::new().unwrap();
    for family in Family::BOTH {
        let server = udp::Server::echo(&net.server.netns, net.server.socket(family, PORT)).unwrap();
        let socket = udp::bind(&net.client.netns, net.client.socket(family, 0)).unwrap();
        let captures = Uplinked::UPLINKS.map(|dev| Capture::start(&net.router, dev).unwrap());
        udp::exchange(&socket, server.address(), b"hello", LIMIT).unwrap();
        let ways = captures.map(|capture| {
            let frames = capture.stop().unwrap();
            let seen = packets(&frames);
            let sources = seen.iter().map(|packet| packet.source.port() == PORT);
            sources.collect::<Vec<_>>()
        });
        assert_eq!(ways, [[false], [true]], "{family}");
    }
}

#[test]
fn the_router_lets_real_tcp_pass_and_drops_what_has_no_handshake() {
    let net = Routed::new().unwrap();
    net.offload("tx", false).unwrap();
    let address = net.server.socket(Family::V4, PORT);
    let listener = net
        .server
        .netns
        .enter(|| TcpListener::bind(address))
        .unwrap()
        .unwrap();
    let capture = Capture::start(&net.router.netns, "wan0").unwrap();
    let client = net.client();
    let connection = client.netns.enter(|| TcpStream::connect(address)).unwrap();
    let connection = connection.unwrap();
    let accepted = listener.accept().unwrap();
    let entries = net.router.conntrack("tcp", PORT).unwrap();
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert!(entries[0].contains("ESTABLISHED"), "{entries:?}");
    assert!(entries[0].contains("[ASSURED]"), "{entries:?}");
    assert_eq!(net.router.dropped().unwrap().invalid, 0);
    let stats = WireStats::of(PORT, &capture.stop().unwrap());
    assert_eq!((stats.syn, stats.syn_ack), (1, 1), "{stats:?}");
    assert_eq!(stats.handshakes.len(), 1, "{stats:?}");
    assert_eq!(stats.bad_checksums, 0, "{stats:?}");

    // The router forgets the connection; what follows has no handshake.
    net.router.netns.run("conntrack", ["-F"]).unwrap();
    std::io::Write::write_all(&mut &connection, b"late").unwrap();
    wait::until_some(LIMIT, "an invalid packet", || {
        Ok((net.router.dropped()?.invalid > 0).then_some(()))
    })
    .unwrap();
    drop((connection, accepted));
}

#[test]
fn offloads_can_be_switched_and_read_back() {
    let net = Direct::new().unwrap();
    for (on, word) in [
        (false, "tx-checksumming: off"),
        (true, "tx-checksumming: on"),
    ] {
        link::offload(&net.a.netns, Host::DEV, "tx", on).unwrap();
        let features = net.a.netns.run("ethtool", ["-k", Host::DEV]).unwrap();
        assert!(features.contains(word), "{features}");
    }
}

/// Set for the second process of [`signals_remove_everything`].
const VICTIM: &str = "XDPTUN_LAB_VICTIM";

#[test]
fn signals_remove_everything() {
    if std::env::var_os(VICTIM).is_some() {
        be_the_victim();
    }
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "lab::signals_remove_everything", "--nocapture"]);
        let mut run = Process::spawn(command.env(VICTIM, "1")).unwrap();
        let line = run.wait_for_line("victim:", LIMIT).unwrap();
        let mut words = line.split_whitespace().skip(1);
        let netns = format!("/run/netns/{}", words.next().unwrap());
        let sleeper = Pid::from_raw(words.next().unwrap().parse().unwrap());
        assert!(std::fs::exists(&netns).unwrap());

        run.signal(signal).unwrap();
        let status = run.wait(LIMIT).unwrap();
        assert_eq!(status.signal(), Some(signal as i32));
        assert!(!std::fs::exists(&netns).unwrap(), "{netns} was left");
        assert!(kill(sleeper, None).is_err(), "process {sleeper} was left");
    }
}

/// Makes a namespace and a process in it, tells about them, and waits for its
/// end.
fn be_the_victim() -> ! {
    let netns = Netns::new("victim").unwrap();
    let sleeper = Process::spawn(netns.command("sleep").arg("600")).unwrap();
    eprintln!("\nvictim: {} {}", netns.name(), sleeper.pid());
    loop {
        std::thread::park();
    }
}

//! The examples of the library carry datagrams, hear of their flows, and leave nothing.

use nix::sys::signal::Signal;
use xdptun_lab::{Attached, Direct, Family, Host, WireStats, udp, wait};
use xdptun_test_net::traces::Traces;
use xdptun_test_net::wire::Wire;
use xdptun_test_net::{LIMIT, PORT, cli};

const CARRY: &str = env!("CARGO_BIN_EXE_carry");
const EMBED: &str = env!("CARGO_BIN_EXE_embed");

fn attach(host: &Host, more: &[&str]) -> Attached {
    let mut command = host.netns.command(EMBED);
    command.args([Host::DEV, "8000"]).args(more);
    Attached::by(&host.netns, Host::DEV, &mut command).unwrap()
}

fn attach_peer(host: &Host) -> Attached {
    Attached::start(&host.netns, Host::DEV, &["--port", "8000"]).unwrap()
}

#[test]
fn another_program_attaches_tells_what_it_carries_and_detaches() {
    for family in Family::BOTH {
        let net = Direct::new().unwrap();
        let before = Traces::of(&net.a).unwrap();
        let embed = attach(&net.a, &[&net.b.address(family).to_string()]);
        let _peer = attach_peer(&net.b);
        let wire = Wire::watch(&[&net.a]).unwrap();
        let echo = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
        let socket = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
        let flow = format!("{} -> {}", socket.local_addr().unwrap(), echo.address());
        for payload in [&b"one"[..], b"two", b"three"] {
            udp::exchange(&socket, echo.address(), payload, LIMIT).unwrap();
        }
        let up = format!("{flow}: Up");
        let process = embed.process();
        process.wait_for_line(&up, LIMIT).unwrap();
        process.signal(Signal::SIGINT).unwrap();
        wait::until(LIMIT, "its end", || !process.is_running().unwrap()).unwrap();
        let counted = format!("{flow}: 3 datagrams sent, 3 received");
        // What it printed last may not have been read yet.
        process.wait_for_line(&counted, LIMIT).unwrap();

        let told = [
            "ready: eth0 carries UDP port 8000 as TCP".to_owned(),
            up,
            counted,
        ];
        assert_eq!(process.stdout(), told);
        let stats = WireStats::of(PORT, &wire.stop().unwrap());
        let counts = (stats.udp_datagrams, stats.syn, stats.rst);
        assert_eq!(counts, (0, 1, 0), "{stats:#?}");
        assert_ne!(stats.fin, 0, "{stats:#?}");
        assert_eq!(Traces::of(&net.a).unwrap(), before);
    }
}

#[test]
fn the_shortest_program_carries_until_it_is_interrupted() {
    let net = Direct::new().unwrap();
    let before = Traces::of(&net.a).unwrap();
    let mut command = net.a.netns.command(CARRY);
    let carry = Attached::by(&net.a.netns, Host::DEV, &mut command).unwrap();
    let _peer = attach_peer(&net.b);
    let wire = Wire::watch(&[&net.a]).unwrap();
    let echo = udp::Server::echo(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
    let socket = udp::bind(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
    udp::exchange(&socket, echo.address(), b"hello", LIMIT).unwrap();
    carry.process().signal(Signal::SIGINT).unwrap();
    let has_ended = || !carry.process().is_running().unwrap();
    wait::until(LIMIT, "its end", has_ended).unwrap();
    let stats = WireStats::of(PORT, &wire.stop().unwrap());
    assert_eq!((stats.udp_datagrams, stats.syn), (0, 1), "{stats:#?}");
    assert_ne!(stats.fin, 0, "{stats:#?}");
    assert_eq!(Traces::of(&net.a).unwrap(), before);
}

#[test]
fn it_hears_that_the_peer_ends_a_flow() {
    let net = Direct::new().unwrap();
    let embed = attach(&net.a, &[]);
    let peer = attach_peer(&net.b);
    let echo = udp::Server::echo(&net.a.netns, net.a.socket(Family::V4, PORT)).unwrap();
    let socket = udp::bind(&net.b.netns, net.b.socket(Family::V4, 0)).unwrap();
    udp::exchange(&socket, echo.address(), b"hello", LIMIT).unwrap();
    peer.stop().unwrap();
    let flow = format!("{} -> {}", echo.address(), socket.local_addr().unwrap());
    for news in ["Up", "Closed"] {
        let line = format!("{flow}: {news}");
        embed.process().wait_for_line(&line, LIMIT).unwrap();
    }
    embed.stop().unwrap();
}

#[test]
fn it_says_what_is_missing() {
    let net = Direct::new().unwrap();
    for (arguments, complaint) in [
        (&["eth9", "8000"][..], "eth9: no such interface"),
        (&["eth0", "0"], "`0` is not a port"),
        (&["eth0"], "usage: embed INTERFACE PORT"),
    ] {
        let outcome = cli::finish(net.a.netns.command(EMBED).args(arguments)).unwrap();
        outcome.assert_first_line(&[complaint]);
    }
}

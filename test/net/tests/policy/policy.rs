//! `xdptun policy`: what becomes of packets that match, and what their ends hear of it.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use nix::errno::Errno;
use xdptun_lab::segment::{Content, parse};
use xdptun_lab::{Attached, Direct, Family, Frame, Host, udp, wait, xdptun};
use xdptun_test_net::captured::{Running, Side};
use xdptun_test_net::status::hits;
use xdptun_test_net::wire::Wire;
use xdptun_test_net::{LIMIT, cli, socket, tcp};

use crate::wait_counted;

const PORT: u16 = 4000;

/// Searches for a word, with more arguments.
fn search(host: &Host, direction: &str, action: &str, more: &[&str]) -> Attached {
    let fixed = ["--direction", direction, "--contains", "STEPH"];
    let rest = ["--action", action, "--name", "word"];
    let arguments = [&fixed[..], &rest, more].concat();
    Attached::policy(&host.netns, Host::DEV, &arguments).unwrap()
}

/// A connection from the first host to the second.
fn connection(net: &Direct, family: Family) -> [TcpStream; 2] {
    let at = net.b.socket(family, PORT);
    let listener = net.b.netns.enter(|| TcpListener::bind(at)).unwrap();
    let near = tcp::connect(&net.a.netns, net.a.socket(family, 0), at).unwrap();
    let (far, _) = listener.unwrap().accept().unwrap();
    for end in [&near, &far] {
        end.set_read_timeout(Some(wait::stretched(LIMIT).unwrap()))
            .unwrap();
    }
    [near, far]
}

fn is_reset(mut end: &TcpStream) {
    let told = end.read(&mut [0; 8]).unwrap_err();
    assert_eq!(told.kind(), ErrorKind::ConnectionReset);
}

/// The segments with RST, whose checksums are right.
fn resets(frames: &[Frame]) -> usize {
    let resets = frames.iter().filter(|frame| match parse(frame) {
        Ok(Content::Transport(packet)) => {
            assert!(!packet.is_bad(), "{packet:?}");
            packet.tcp().is_some_and(|tcp| tcp.rst)
        }
        _ => false,
    });
    resets.count()
}

/// Whichever side it is searched on, both ends hear of it at once, and only the other end by the
/// wire.
#[test]
fn both_ends_of_a_connection_are_reset() {
    for family in Family::BOTH {
        for (searching, direction) in [("b", "in"), ("a", "out")] {
            let net = Direct::new().unwrap();
            let host = if searching == "a" { &net.a } else { &net.b };
            let attached = search(host, direction, "reset", &["--protocol", "tcp"]);
            let [near, far] = connection(&net, family);
            tcp::send_and_receive(&near, &far, b"nothing of interest").unwrap();
            tcp::send_and_receive(&far, &near, b"STEPH the other way").unwrap();
            tcp::wait_acknowledged(&[&near, &far]).unwrap();
            let wire = Wire::watch(&[&net.a, &net.b]).unwrap();
            (&near).write_all(b"and STEPH").unwrap();
            is_reset(&near);
            is_reset(&far);
            let [searched, dropped] = match direction {
                "in" => ["in_searched", "in_drop_reset"],
                _ => ["out_searched", "out_drop_reset"],
            };
            wait_counted(&host.netns, &[(searched, 1), (dropped, 1)]);
            assert_eq!(hits(&host.netns).unwrap()["word"], 1);
            assert_eq!(resets(&wire.stop().unwrap()), 1, "{direction}");
            attached.stop().unwrap();
        }
    }
}

/// The sender of a datagram gets an ICMP error, on either side.
#[test]
fn the_sender_of_a_datagram_is_told() {
    for (family, error) in [
        (Family::V4, Errno::EHOSTUNREACH),
        (Family::V6, Errno::EACCES),
    ] {
        for (searching, direction) in [("b", "in"), ("a", "out")] {
            let net = Direct::new().unwrap();
            let host = if searching == "a" { &net.a } else { &net.b };
            let attached = search(host, direction, "reset", &[]);
            let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
            let client = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
            client.connect(server.address()).unwrap();
            client.send(b"a STEPH b").unwrap();
            assert_eq!(socket::wait_error(&client).unwrap(), error);
            udp::exchange(&client, server.address(), b"hello", LIMIT).unwrap();
            let [searched, dropped] = match direction {
                "in" => ["in_searched", "in_drop_reset"],
                _ => ["out_searched", "out_drop_reset"],
            };
            wait_counted(&host.netns, &[(searched, 1), (dropped, 1)]);
            attached.stop().unwrap();
        }
    }
}

/// What matches does not arrive and nobody is told; all else does.
#[test]
fn packets_that_match_are_dropped() {
    for family in Family::BOTH {
        let net = Direct::new().unwrap();
        let port = PORT.to_string();
        let more = ["--protocol", "udp", "--port", &port, "--ignore-case"];
        let attached = search(&net.b, "in", "drop", &more);
        let [server, other] = [PORT, PORT + 1]
            .map(|port| udp::Server::sink(&net.b.netns, net.b.socket(family, port)).unwrap());
        let client = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
        for payload in ["STEPH", "..steph", "step", "sTePh and more", "end"] {
            client
                .send_to(payload.as_bytes(), server.address())
                .unwrap();
        }
        client.send_to(b"STEPH", other.address()).unwrap();
        wait_counted(&net.b.netns, &[("in_searched", 2), ("in_drop_matched", 3)]);
        wait::until(LIMIT, "the datagrams", || {
            (server.datagrams(), other.datagrams()) == (2, 1)
        })
        .unwrap();
        assert_eq!(hits(&net.b.netns).unwrap()["word"], 3);
        attached.stop().unwrap();
        // Without it all arrive.
        client.send_to(b"STEPH", server.address()).unwrap();
        wait::until(LIMIT, "the last one", || server.datagrams() == 3).unwrap();
    }
}

/// The log has the rule, the tuple and the offset; a dry run lets everything pass.
#[test]
fn matches_are_logged_and_tried() {
    let net = Direct::new().unwrap();
    let attached = search(&net.b, "in", "log", &[]);
    let server = udp::Server::echo(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
    let client = udp::bind(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
    udp::exchange(&client, server.address(), b"123STEPH", LIMIT).unwrap();
    let from = client.local_addr().unwrap();
    let words = format!(
        "eth0: word matches: in udp {from} -> {}, offset 3",
        server.address()
    );
    wait::until(LIMIT, "the line", || {
        let lines = attached.process().stderr();
        lines.iter().any(|line| line.ends_with(&words))
    })
    .unwrap();
    wait_counted(&net.b.netns, &[("in_matched", 1)]);
    attached.stop().unwrap();
    let attached = search(&net.b, "in", "reset", &["--dry-run"]);
    udp::exchange(&client, server.address(), b"123STEPH", LIMIT).unwrap();
    wait_counted(&net.b.netns, &[("in_dry_run", 1)]);
    attached.stop().unwrap();
}

/// The comment of a packet that was dropped names the rule.
#[test]
fn a_capture_tells_the_rule() {
    let net = Direct::new().unwrap();
    let attached = search(&net.b, "in", "drop", &[]);
    let server = udp::Server::echo(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
    let client = udp::bind(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
    let running = Running::start(&net.b.netns, &[]).unwrap();
    client.send_to(b"STEPH", server.address()).unwrap();
    udp::exchange(&client, server.address(), b"hello", LIMIT).unwrap();
    wait_counted(&net.b.netns, &[("in_searched", 1), ("in_drop_matched", 1)]);
    let fates = running.stop().unwrap().fates();
    for fate in [
        (Side::Wire, false, "dropped: in_drop_matched (rule word)"),
        (Side::Wire, false, "ingress: in_searched"),
        (Side::Behind, false, "ingress: in_searched"),
    ] {
        let count = fates
            .iter()
            .filter(|(side, outgoing, words)| (*side, *outgoing, words.as_str()) == fate);
        assert_eq!(count.count(), 1, "{fate:?}: {fates:#?}");
    }
    attached.stop().unwrap();
}

/// One process searches an interface; a second one is told what to do.
#[test]
fn a_second_process_is_refused() {
    let net = Direct::new().unwrap();
    let attached = search(&net.b, "in", "count", &[]);
    let second = ["policy", "--iface", Host::DEV, "--direction", "in"];
    let second = [&second[..], &["--contains", "x", "--action", "drop"]].concat();
    let refused = cli::run(&net.b.netns, &second).unwrap();
    refused.assert_one_line(&["already attached", "file of `xdptun run`", "--take-over"]);
    for arguments in [&["status"][..], &["status", "--iface", Host::DEV]] {
        let text = xdptun::run_in(&net.b.netns, arguments).unwrap();
        assert!(text.contains("in contains `STEPH`: count"), "{text}");
        assert!(!text.contains("nothing is attached"), "{text}");
    }
    attached.stop().unwrap();
}

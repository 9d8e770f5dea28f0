//! Ports that `xdptun forward` forwards.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};

use serde_json::Value;
use xdptun_lab::segment::{Checksum, Content, Header, parse};
use xdptun_lab::xdptun::{Attached, status};
use xdptun_lab::{Capture, Family, Frame, Host, Served, udp, wait, workspace};
use xdptun_test_net::raw::{datagram, send_packet};
use xdptun_test_net::status::gateway;
use xdptun_test_net::traces::pins;
use xdptun_test_net::{LIMIT, cli, fragment, tcp};

/// The port at which the gateway listens, and that of the back end.
const LISTEN: u16 = 7000;
/// See [`LISTEN`].
const SERVICE: u16 = 8080;

/// Forwards to the back end of a family, with these arguments as well.
fn forward(net: &Served, family: Family, more: &[&str]) -> Attached {
    let listen = LISTEN.to_string();
    let to = net.back_end.socket(family, SERVICE).to_string();
    let rule = ["--listen", &listen, "--to", &to];
    Attached::forward(&net.gateway, Served::WAN, &[&rule, more].concat()).unwrap()
}

/// A counter of an interface of the gateway.
fn counter(net: &Served, dev: &str, name: &str) -> u64 {
    let gateway = gateway(&net.gateway, dev).unwrap();
    gateway["counters"][name].as_u64().unwrap()
}

/// The sessions of the gateway.
fn sessions(net: &Served) -> Vec<Value> {
    let text = xdptun_lab::xdptun::run_in(&net.gateway, &["sessions", "--json"]).unwrap();
    let printed: Value = serde_json::from_str(&text).unwrap();
    printed["sessions"].as_array().unwrap().clone()
}

/// Both ends of every TCP segment and UDP datagram, whose checksums are right.
fn ends(frames: &[Frame]) -> Vec<(SocketAddr, SocketAddr)> {
    let mut ends = Vec::new();
    for frame in frames {
        let Ok(Content::Transport(packet)) = parse(frame) else {
            continue;
        };
        let checksums = [packet.ip_checksum, packet.checksum];
        assert_eq!(checksums, [Checksum::Good; 2], "{packet:?}");
        ends.push((packet.source, packet.destination));
    }
    ends
}

/// A megabyte each way at once, then a datagram, with every byte compared and every checksum.
#[test]
fn connections_and_datagrams_reach_the_back_end() {
    for family in Family::BOTH {
        for masquerade in [false, true] {
            let net = Served::new().unwrap();
            net.complete_checksums().unwrap();
            let source = if masquerade { "masquerade" } else { "keep" };
            let attached = forward(&net, family, &["--source", source]);
            if masquerade {
                net.strand_back_end().unwrap();
            }
            let [near, far] = [&net.client, &net.back_end]
                .map(|host| Capture::start(&host.netns, Host::DEV).unwrap());
            let local = net.client.socket(family, 40_000);
            let remote = net.listen_at(family, LISTEN);
            let service = net.back_end.socket(family, SERVICE);
            let exchanged = tcp::exchange_through(
                &net.client.netns,
                local,
                remote,
                &net.back_end.netns,
                service,
            );
            attached.explain(exchanged).unwrap();
            let echo = udp::Server::echo(&net.back_end.netns, service).unwrap();
            let socket = udp::bind(&net.client.netns, local).unwrap();
            let exchanged = udp::exchange(&socket, remote, &udp::pattern(1400, 3), LIMIT);
            attached.explain(exchanged).unwrap();
            drop(echo);

            let all = ends(&near.stop().unwrap());
            assert!(all.len() > 100, "{}", all.len());
            let shown = |ends: &(SocketAddr, SocketAddr)| {
                *ends == (local, remote) || *ends == (remote, local)
            };
            assert!(
                all.iter().all(shown),
                "the client sees the listen address alone"
            );
            let seen = match masquerade {
                true => net.inner(family),
                false => net.client.address(family),
            };
            let all = ends(&far.stop().unwrap());
            let shown = |(from, to): &(SocketAddr, SocketAddr)| {
                (*to == service && from.ip() == seen) || (*from == service && to.ip() == seen)
            };
            assert!(
                all.len() > 100 && all.iter().all(shown),
                "the back end sees {seen} alone"
            );

            let found = sessions(&net);
            assert_eq!(found.len(), 2, "{found:#?}");
            for one in &found {
                assert_eq!(one["client"], local.to_string());
                assert_eq!(one["listen"], remote.to_string());
                assert_eq!(one["back_end"], service.to_string());
                assert_eq!(one["source"].is_null(), !masquerade, "{one}");
            }
            assert_eq!(counter(&net, Served::WAN, "sessions_began"), 2);
            attached.stop().unwrap();
            assert_eq!(status(&net.gateway).unwrap()["gateways"], Value::Null);
        }
    }
}

/// The client hears what the back end, or the network before it, has to say.
#[test]
fn refusals_and_errors_reach_the_client() {
    for family in Family::BOTH {
        let net = Served::new().unwrap();
        let attached = forward(&net, family, &[]);
        let remote = net.listen_at(family, LISTEN);
        // No server: TCP resets, and UDP is answered by an ICMP error.
        let refused = net
            .client
            .netns
            .enter(|| TcpStream::connect(remote))
            .unwrap();
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let socket = udp::bind(&net.client.netns, net.client.socket(family, 0)).unwrap();
        socket.connect(remote).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket.send(b"hello").unwrap();
        let refused = socket.recv(&mut [0; 8]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        assert_eq!(counter(&net, Served::WAN, "out_error"), 1);
        // A link behind the gateway is narrow: both ends learn it.
        for (netns, dev) in [
            (&net.gateway, Served::LAN),
            (&net.back_end.netns, Host::DEV),
        ] {
            netns
                .run("ip", ["link", "set", dev, "mtu", "1300"])
                .unwrap();
        }
        let exchanged = tcp::exchange_through(
            &net.client.netns,
            net.client.socket(family, 40_000),
            remote,
            &net.back_end.netns,
            net.back_end.socket(family, SERVICE),
        );
        attached.explain(exchanged).unwrap();
        attached.stop().unwrap();
    }
}

/// Fragments of a call and of its answer, whichever comes first.
#[test]
fn fragments_come_in_any_order() {
    for family in Family::BOTH {
        for source in ["keep", "masquerade"] {
            let net = Served::new().unwrap();
            let attached = forward(&net, family, &["--source", source]);
            let client = udp::bind(&net.client.netns, net.client.socket(family, 40_000)).unwrap();
            let service = net.back_end.socket(family, SERVICE);
            let back_end = udp::bind(&net.back_end.netns, service).unwrap();
            let (near, listen) = (client.local_addr().unwrap(), net.listen_at(family, LISTEN));
            let data = udp::pattern(4000, 7);
            let send = |host: &Host, from, to: SocketAddr| {
                let whole = datagram(from, to, &data).unwrap();
                for packet in fragment::packets(&whole, 1024).iter().rev() {
                    send_packet(&host.netns, to.ip(), packet).unwrap();
                }
            };
            send(&net.client, near, listen);
            let (received, seen) = udp::receive(&back_end, LIMIT).unwrap();
            assert_eq!(received, data);
            assert_eq!(counter(&net, Served::WAN, "in_held"), 3);
            send(&net.back_end, service, seen);
            assert_eq!(
                udp::receive(&client, LIMIT).unwrap(),
                (data.clone(), listen)
            );
            // An answer to a masqueraded call waits where it comes in.
            let (dev, held) = match source {
                "keep" => (Served::WAN, "out_held"),
                _ => (Served::LAN, "in_held"),
            };
            assert_eq!(counter(&net, dev, held), 3);
            attached.stop().unwrap();
        }
    }
}

/// A connection goes on while the daemon is killed, another one goes on, and a third takes over.
#[test]
fn connections_outlive_the_daemon() {
    let family = Family::V4;
    let net = Served::new().unwrap();
    let attached = forward(&net, family, &["--source", "masquerade"]);
    let service = net.back_end.socket(family, SERVICE);
    let listener = net
        .back_end
        .netns
        .enter(|| TcpListener::bind(service))
        .unwrap();
    let listener = listener.unwrap();
    let remote = net.listen_at(family, LISTEN);
    let near = net
        .client
        .netns
        .enter(|| TcpStream::connect(remote))
        .unwrap();
    let near = near.unwrap();
    let (far, _) = listener.accept().unwrap();
    let talk = |round: u8| {
        for (from, to) in [(&near, &far), (&far, &near)] {
            tcp::send_and_receive(from, to, &[round; 1000]).unwrap();
        }
    };
    talk(1);
    let remains = attached.kill().unwrap();
    talk(2);
    let second = forward(&net, family, &["--source", "masquerade"]);
    talk(3);
    let third = forward(&net, family, &["--source", "masquerade", "--take-over"]);
    talk(4);
    let found = sessions(&net);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0]["state"], "open");
    third.stop().unwrap();
    drop((second, remains));
}

/// Pins outlive their interface; `detach` still finds them by its name.
#[test]
fn what_is_left_of_an_interface_that_is_gone_can_be_removed() {
    let net = Served::new().unwrap();
    let remains = forward(&net, Family::V4, &[]).kill().unwrap();
    assert_ne!(pins(&net.gateway).unwrap(), [""; 0]);
    let delete = ["link", "delete", Served::WAN];
    net.gateway.run("ip", delete).unwrap();
    let detached = cli::run(&net.gateway, &["detach", "--iface", Served::WAN]).unwrap();
    assert_eq!(detached.code, Some(0), "{detached:#?}");
    assert_eq!(pins(&net.gateway).unwrap(), [""; 0]);
    drop(remains);
}

#[test]
fn what_a_server_has_is_not_taken_unasked() {
    let net = Served::new().unwrap();
    let any = SocketAddr::from(([0, 0, 0, 0], LISTEN));
    let server = net
        .gateway
        .enter(|| TcpListener::bind(any))
        .unwrap()
        .unwrap();
    let to = net.back_end.socket(Family::V4, SERVICE).to_string();
    let args = [
        "forward",
        "--iface",
        Served::WAN,
        "--listen",
        "7000",
        "--to",
        &to,
    ];
    let refused = cli::run(&net.gateway, &args).unwrap();
    refused.assert_one_line(&["7000/tcp", "--steal", "ss -lntup"]);
    let attached = forward(&net, Family::V4, &["--steal"]);
    let remote = net.listen_at(Family::V4, LISTEN);
    let connected = net
        .client
        .netns
        .enter(|| TcpStream::connect(remote))
        .unwrap();
    // The back end refuses; the server would not.
    assert_eq!(connected.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    drop(server);
    attached.stop().unwrap();
}

#[test]
fn mistakes_are_named() {
    let net = Served::new().unwrap();
    for (args, words) in [
        (&["--listen", "7000"][..], &["7000", "--to"][..]),
        (
            &["--listen", "7000-7009", "--to", "10.5.0.5:80"],
            &["7000-7009", "10.5.0.5:80"],
        ),
        (
            &[
                "--listen",
                "7000",
                "--to",
                "10.5.0.254:80",
                "--source",
                "masquerade",
            ],
            &["10.5.0.254:80", "this host"],
        ),
        (
            &[
                "--listen",
                "7000",
                "--to",
                "10.5.0.5:80",
                "--listen",
                "7000/udp",
                "--to",
                "10.5.0.6:80",
            ],
            &["7000", "7000/udp", "both"],
        ),
    ] {
        let args = [&["forward", "--iface", Served::WAN], args].concat();
        let refused = cli::run(&net.gateway, &args).unwrap();
        refused.assert_one_line(words);
    }
    let nowhere = [
        "forward",
        "--iface",
        "eth9",
        "--listen",
        "1",
        "--to",
        "10.5.0.5:1",
    ];
    let refused = cli::run(&net.gateway, &nowhere).unwrap();
    refused.assert_one_line(&["eth9", "no such interface", "ip link"]);
    assert_eq!(status(&net.gateway).unwrap()["gateways"], Value::Null);
}

/// What is possible, and does not work as it is, is warned of.
#[test]
fn what_cannot_work_is_warned_of() {
    let net = Served::new().unwrap();
    let warns = |more: &[&str], words: &str| {
        let attached = forward(&net, Family::V4, more);
        wait::until(LIMIT, words, || {
            attached.process().stderr().join("\n").contains(words)
        })
        .unwrap();
        attached.stop().unwrap();
    };
    let source = ["--source", "10.5.0.77"];
    warns(&source, "10.5.0.77: not an address of this host");
    let off = ["-qw", "net.ipv4.ip_forward=0"];
    net.gateway.run("sysctl", off).unwrap();
    warns(&[], "net.ipv4.ip_forward=1");
}

/// Those that docs/json.md lists.
#[test]
fn every_field_of_a_session_is_documented_and_no_other() {
    let net = Served::new().unwrap();
    let page = fs::read_to_string(workspace::root().join("docs/json.md")).unwrap();
    let (_, section) = page.split_once("## xdptun sessions\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    // The fields that sessions of a function have, and not those of the other alone.
    let listed = |other: &str| -> BTreeSet<&str> {
        let rows = section
            .lines()
            .filter_map(|line| line.strip_prefix("| `sessions[]."));
        let rows = rows.filter(|row| !row.contains(&format!("| `{other}`: ")));
        rows.map(|row| row.split('`').next().unwrap()).collect()
    };
    let inside = ["--inside", "10.5.0.0/24"];
    let nat = || Attached::nat(&net.gateway, Served::WAN, &inside).unwrap();
    let forwarding = || forward(&net, Family::V4, &[]);
    let functions: [&dyn Fn() -> Attached; 2] = [&forwarding, &nat];
    let to_listen = net.listen_at(Family::V4, LISTEN);
    let to_client = net.client.socket(Family::V4, 4000);
    for (attach, from, to, other) in [
        (functions[0], &net.client, to_listen, "nat"),
        (functions[1], &net.back_end, to_client, "forward"),
    ] {
        let attached = attach();
        let socket = udp::bind(&from.netns, from.socket(Family::V4, 0)).unwrap();
        socket.send_to(b"hello", to).unwrap();
        wait::until(LIMIT, "the session", || sessions(&net).len() == 1).unwrap();
        let printed = sessions(&net);
        let printed = printed[0].as_object().unwrap().keys();
        let printed: BTreeSet<&str> = printed.map(String::as_str).collect();
        assert_eq!(printed, listed(other));
        attached.stop().unwrap();
    }
}

/// A client sends disguised datagrams; the gateway's tunnel restores them, and its gateway
/// forwards them.
#[test]
fn datagrams_that_the_tunnel_restored_are_forwarded() {
    for family in Family::BOTH {
        let net = Served::new().unwrap();
        let port = LISTEN.to_string();
        let near = Attached::start(&net.client.netns, Host::DEV, &["--port", &port]).unwrap();
        // Whichever was attached first.
        let tunnel = || Attached::start(&net.gateway, Served::WAN, &["--port", &port]).unwrap();
        let gateway = || forward(&net, family, &["--source", "masquerade"]);
        let (tunnel, gateway) = match family {
            Family::V4 => {
                let tunnel = tunnel();
                (tunnel, gateway())
            }
            Family::V6 => {
                let gateway = gateway();
                (tunnel(), gateway)
            }
        };
        let wire = Capture::start(&net.client.netns, Host::DEV).unwrap();
        let echo = udp::Server::echo(&net.back_end.netns, net.back_end.socket(family, SERVICE));
        let _echo = echo.unwrap();
        let socket = udp::bind(&net.client.netns, net.client.socket(family, 0)).unwrap();
        let remote = net.listen_at(family, LISTEN);
        for len in [0, 1, 100, 1300] {
            let exchanged = udp::exchange(&socket, remote, &udp::pattern(len, 9), LIMIT);
            gateway.explain(exchanged).unwrap();
        }
        let frames = wire.stop().unwrap();
        let leaks = frames.iter().any(|frame| {
            let packet = parse(frame);
            matches!(packet, Ok(Content::Transport(packet))
                if matches!(packet.header, Header::Udp) && packet.has_port(LISTEN))
        });
        assert!(!leaks, "UDP on the wire");
        wait::until(LIMIT, "the counters", || {
            counter(&net, Served::WAN, "in_forwarded") == 4
                && counter(&net, Served::WAN, "out_returned") == 4
        })
        .unwrap();
        gateway.stop().unwrap();
        tunnel.stop().unwrap();
        near.stop().unwrap();
    }
}

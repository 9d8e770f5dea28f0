//! The device: made at the start, removed at the end, and nobody else's.

use serde_json::Value;
use xdptun_lab::{Attached, Inside, link, udp, wait, xdptun};
use xdptun_test_net::traces::Traces;
use xdptun_test_net::translated::{CLIENTS, called, nat64, without_ipv4};
use xdptun_test_net::{LIMIT, cli};

/// What a refused start says.
fn refused(net: &Inside, more: &[&str]) -> String {
    let mut command = net.gateway.command(xdptun::binary().unwrap());
    command.args(["nat64", "--inside", CLIENTS]).args(more);
    let ended = cli::finish(&mut command).unwrap();
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    ended.stderr.join("\n")
}

/// What a start must leave as it was, if it fails or when it ends.
fn traces(net: &Inside) -> (Traces, [String; 2]) {
    let routes = ["-4", "-6"].map(|version| net.gateway.run("ip", [version, "route"]).unwrap());
    (Traces::on(&net.gateway, Inside::WAN).unwrap(), routes)
}

#[test]
fn nothing_is_left_in_the_end() {
    let net = Inside::new().unwrap();
    let before = traces(&net);
    let attached = nat64(&net, &[]);
    assert!(
        link::names(&net.gateway)
            .unwrap()
            .contains(&Attached::NAT64.to_owned())
    );
    attached.stop().unwrap();
    assert_eq!(traces(&net), before);
    // The same after a killed process.
    let remains = nat64_again(&net, &[]).kill().unwrap();
    let detach = ["detach", "--iface", Attached::NAT64];
    xdptun::run_in(&net.gateway, &detach).unwrap();
    assert_eq!(traces(&net), before);
    drop(remains);
}

/// As [`nat64`], where hosts have lost IPv4 already.
fn nat64_again(net: &Inside, more: &[&str]) -> Attached {
    let arguments = [
        "--inside",
        CLIENTS,
        "--iface",
        Inside::WAN,
        "--allow-private",
    ];
    let attached = Attached::nat64(&net.gateway, &[&arguments, more].concat()).unwrap();
    attached.wait_all_ready(&[Inside::WAN]).unwrap();
    attached
}

/// Waits for a line of the log.
fn wait_warning(attached: &Attached, text: &str) {
    let is_there = || {
        let lines = attached.process().stderr();
        lines.iter().any(|line| line.contains(text))
    };
    wait::until(LIMIT, text, is_there).unwrap();
}

#[test]
fn a_foreign_device_is_left_alone() {
    let net = Inside::new().unwrap();
    let add = ["tuntap", "add", Attached::NAT64, "mode", "tun"];
    net.gateway.run("ip", add).unwrap();
    let before = traces(&net);
    let said = refused(&net, &[]);
    assert!(
        said.contains("xdptun64: there is a device of this name"),
        "{said}"
    );
    assert_eq!(traces(&net), before);
}

#[test]
fn a_prefix_or_a_pool_that_is_routed_elsewhere_is_refused_with_the_device() {
    let net = Inside::new().unwrap();
    for (version, network, option) in [
        ("-6", "64:ff9b::/96", &[][..]),
        ("-6", "64:ff9b::100:0/104", &[]),
        ("-4", "100.64.7.0/24", &[]),
        ("-4", "10.7.0.0/20", &["--pool", "10.7.0.0/20"]),
    ] {
        let route = [network, "dev", Inside::LAN];
        net.gateway
            .run("ip", [&[version, "route", "add"], &route[..]].concat())
            .unwrap();
        let before = traces(&net);
        let said = refused(&net, option);
        let expected = format!("the route to {network} leads to {}", Inside::LAN);
        assert!(said.contains(&expected), "{said}");
        assert_eq!(traces(&net), before);
        net.gateway
            .run("ip", [&[version, "route", "del"], &route[..]].concat())
            .unwrap();
    }
}

/// Routes that lead nowhere, and an address of the host itself.
#[test]
fn a_prefix_or_a_pool_with_a_route_that_ends_is_refused() {
    let net = Inside::new().unwrap();
    for (version, route, expected) in [
        (
            "-6",
            &["blackhole", "64:ff9b::/96"][..],
            "is of type blackhole",
        ),
        (
            "-4",
            &["unreachable", "100.64.7.0/24"],
            "is of type unreachable",
        ),
        ("-4", &["prohibit", "100.64.0.0/16"], "is of type prohibit"),
        (
            "-4",
            &["local", "100.64.9.9", "dev", Inside::LAN],
            "is an address of this host",
        ),
    ] {
        let change = |verb| {
            net.gateway
                .run("ip", [&[version, "route", verb], route].concat())
                .unwrap();
        };
        change("add");
        let before = traces(&net);
        let said = refused(&net, &[]);
        assert!(said.contains(expected), "{said}");
        assert_eq!(traces(&net), before);
        change("del");
    }
}

/// The kernel removes the routes of a device that is set down.
#[test]
fn a_device_that_was_down_has_its_routes_again() {
    let net = Inside::new().unwrap();
    let attached = nat64(&net, &[]);
    let [server, _] = &net.outside;
    let _echo = udp::Server::echo(&server.netns, (server.v4, 7)).unwrap();
    let before = traces(&net);
    for state in ["down", "up"] {
        net.gateway
            .run("ip", ["link", "set", Attached::NAT64, state])
            .unwrap();
    }
    wait_warning(&attached, "has them again");
    assert_eq!(traces(&net), before);
    let socket = udp::bind(&net.a.netns, (net.a.v6, 0)).unwrap();
    udp::exchange(&socket, called(server.v4, 7), b"again", LIMIT).unwrap();
    attached.stop().unwrap();
}

/// Somebody routes a part of the pool elsewhere, after the start.
#[test]
fn what_translates_already_goes_on_beside_a_route_elsewhere() {
    let net = Inside::new().unwrap();
    let attached = nat64(&net, &[]);
    net.gateway
        .run("ip", ["route", "add", "100.64.7.0/24", "dev", Inside::LAN])
        .unwrap();
    let successor = nat64_again(&net, &["--take-over"]);
    let warned = format!("the route to 100.64.7.0/24 leads to {}", Inside::LAN);
    wait_warning(&successor, &warned);
    successor.stop().unwrap();
    drop(attached);
}

#[test]
fn a_second_process_is_refused() {
    let net = Inside::new().unwrap();
    let attached = nat64(&net, &[]);
    let before = traces(&net);
    let other = ["--pool", "10.7.0.0/16", "--prefix", "fd00:64::/96"];
    for options in [&[][..], &other, &["--mtu", "9000"]] {
        let said = refused(&net, options);
        assert!(said.contains("xdptun run"), "{said}");
        assert!(said.contains("xdptun64"), "{said}");
        assert_eq!(traces(&net), before, "{options:?}");
    }
    attached.stop().unwrap();
}

/// A device that somebody removes comes back, with its routes.
#[test]
fn a_device_that_was_removed_comes_back() {
    let net = Inside::new().unwrap();
    let attached = nat64(&net, &[]);
    let [server, _] = &net.outside;
    let _echo = udp::Server::echo(&server.netns, (server.v4, 7)).unwrap();
    net.gateway
        .run("ip", ["link", "del", Attached::NAT64])
        .unwrap();
    attached.wait_ready(Attached::NAT64, 2, LIMIT).unwrap();
    let socket = udp::bind(&net.a.netns, (net.a.v6, 0)).unwrap();
    socket.connect(called(server.v4, 7)).unwrap();
    wait::until(LIMIT, "an answer", || {
        let _ = socket.send(b"again");
        udp::receive(&socket, LIMIT / 10).is_ok()
    })
    .unwrap();
    attached.stop().unwrap();
}

/// nft translates the pool where `--iface` is not given.
#[test]
fn another_nat_may_translate_the_pool() {
    let net = Inside::new().unwrap();
    without_ipv4(&net);
    let rules = "table ip pool {\n chain post {\n type nat hook postrouting priority 100\n \
                 oifname \"wan0\" ip saddr 100.64.0.0/16 masquerade\n }\n}\n";
    net.gateway
        .run_with_input("nft", ["-f", "-"], rules)
        .unwrap();
    let arguments = ["--inside", CLIENTS, "--allow-private"];
    let attached = Attached::nat64(&net.gateway, &arguments).unwrap();
    let [server, _] = &net.outside;
    let _echo = udp::Server::echo(&server.netns, (server.v4, 7)).unwrap();
    let socket = udp::bind(&net.a.netns, (net.a.v6, 0)).unwrap();
    socket.connect(called(server.v4, 7)).unwrap();
    for length in [1, 1400, 5000] {
        let sent = udp::pattern(length, 2);
        socket.send(&sent).unwrap();
        let (received, _) = attached.explain(udp::receive(&socket, LIMIT)).unwrap();
        assert!(received == sent, "{length} bytes");
    }
    let status: Value = xdptun::status(&net.gateway).unwrap();
    assert!(status["gateways"].is_null(), "{status}");
    assert_eq!(status["nat64"]["client_states"]["answered"], 1);
    attached.stop().unwrap();
}

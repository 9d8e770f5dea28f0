//! The gateway in the file of `xdptun run`.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};

use serde_json::{Value, json};
use xdptun_lab::xdptun::{Attached, status};
use xdptun_lab::{Family, Host, Served, udp, wait};
use xdptun_test_net::service::{File, drains, reload, reloads, states};
use xdptun_test_net::traces::pins;
use xdptun_test_net::{LIMIT, tcp};

/// A rule of an interface.
pub fn rule(interface: &str, listen: u16, to: SocketAddr) -> String {
    format!("[[interface.{interface}.forward]]\nlisten = {listen}\nto = \"{to}\"\n")
}

/// A listener at an address of a host.
pub fn listen(host: &Host, at: SocketAddr) -> TcpListener {
    let listener = host.netns.enter(|| TcpListener::bind(at)).unwrap();
    listener.unwrap()
}

/// A connection that reaches a listener.
pub fn connect(client: &Host, to: SocketAddr, listener: &TcpListener) -> [TcpStream; 2] {
    let near = client.netns.enter(|| TcpStream::connect(to)).unwrap();
    let near = near.unwrap();
    let (far, _) = listener.accept().unwrap();
    [near, far]
}

/// A kilobyte each way.
pub fn talk([near, far]: &[TcpStream; 2], byte: u8) {
    for (from, to) in [(near, far), (far, near)] {
        tcp::send_and_receive(from, to, &[byte; 1000]).unwrap();
    }
}

fn is_refused(client: &Host, to: SocketAddr) -> bool {
    let connected = client.netns.enter(|| TcpStream::connect(to)).unwrap();
    connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// A connection outlives every change of the rules, and the end of its own.
#[test]
fn a_draining_reload_changes_the_rules_and_ends_no_session() {
    for family in Family::BOTH {
        let net = Served::new().unwrap();
        let [first, second] = [8080, 8081].map(|port| net.back_end.socket(family, port));
        let [one, other] = [first, second].map(|at| listen(&net.back_end, at));
        let [at, beside] = [7000, 7001].map(|port| net.listen_at(family, port));
        let file = File::new(&rule(Served::WAN, 7000, first));
        let service = file.forward(&net.gateway, &[]);
        let reported = json!([
            {"name": "eth0", "function": "gateway", "state": "carrying", "reason": null},
        ]);
        assert_eq!(states(&net.gateway), reported);
        let connection = connect(&net.client, at, &one);
        talk(&connection, 1);

        file.write(&(rule(Served::WAN, 7000, second) + &rule(Served::WAN, 7001, first)));
        drains(&net.gateway, &["eth0: new rules apply"]);
        talk(&connection, 2);
        talk(&connect(&net.client, at, &other), 3);
        talk(&connect(&net.client, beside, &one), 4);

        file.write(&rule(Served::WAN, 7001, first));
        drains(&net.gateway, &["eth0: new rules apply"]);
        assert!(is_refused(&net.client, at));
        talk(&connection, 5);
        talk(&connect(&net.client, beside, &one), 6);

        // What cannot be applied changes nothing.
        let twice = rule(Served::WAN, 7001, second) + &rule(Served::WAN, 7001, first);
        let served = rule(Served::WAN, 7002, first);
        let _server = net
            .gateway
            .enter(|| TcpListener::bind(net.listen_at(family, 7002)))
            .unwrap()
            .unwrap();
        for (text, words) in [
            (
                twice,
                &["nothing was changed", "both listen to TCP port 7001"][..],
            ),
            (served, &["nothing was changed", "7002/tcp", "steal = true"]),
            (
                format!("max-sessions = 7\n{}", rule(Served::WAN, 7003, first)),
                &["nothing was changed", "`max-sessions` 65536"],
            ),
        ] {
            file.write(&text);
            reload(&net.gateway).assert_one_line(words);
            talk(&connect(&net.client, beside, &one), 7);
        }

        file.write("");
        reloads(&net.gateway, &["eth0: no longer forwards or translates"]);
        assert!(is_refused(&net.client, beside));
        assert_eq!(states(&net.gateway), json!([]));
        assert_eq!(pins(&net.gateway).unwrap(), [""; 0]);
        file.write(&rule(Served::WAN, 7000, first));
        reloads(&net.gateway, &["eth0: forwards 1 port"]);
        talk(&connect(&net.client, at, &one), 8);
        service.stop().unwrap();
        assert_eq!(pins(&net.gateway).unwrap(), [""; 0]);
    }
}

/// The same port of two interfaces leads to two places.
#[test]
fn rules_are_those_of_the_interface_by_which_packets_come() {
    for family in Family::BOTH {
        let net = Served::new().unwrap();
        let [outside, inside] = [&net.client, &net.back_end].map(|host| host.socket(family, 8080));
        let [at_client, at_back_end] =
            [(&net.client, outside), (&net.back_end, inside)].map(|(host, at)| listen(host, at));
        let near = SocketAddr::new(net.listen(family), 7000);
        let far = SocketAddr::new(net.inner(family), 7000);
        let to_inside = rule(Served::WAN, 7000, inside);
        let file = File::new(&to_inside);
        let service = file.forward(&net.gateway, &[]);
        talk(&connect(&net.client, near, &at_back_end), 1);
        assert!(is_refused(&net.back_end, far));

        file.write(&(to_inside + &rule(Served::LAN, 7000, outside)));
        reloads(&net.gateway, &["lan0: forwards 1 port"]);
        talk(&connect(&net.client, near, &at_back_end), 2);
        talk(&connect(&net.back_end, far, &at_client), 3);
        let status = status(&net.gateway).unwrap();
        let gateways = status["gateways"].as_array().unwrap().iter();
        let back_ends: Vec<String> = gateways
            .map(|gateway| {
                let to = &gateway["forwards"][0]["to"][0]["address"];
                format!("{} {}", gateway["name"], to)
            })
            .collect();
        let shown = [(Served::WAN, inside), (Served::LAN, outside)];
        let shown = shown.map(|(name, to)| format!("\"{name}\" \"{to}\""));
        assert_eq!(back_ends, shown);

        file.write(&rule(Served::LAN, 7000, outside));
        reloads(&net.gateway, &["eth0: no longer forwards or translates"]);
        assert!(is_refused(&net.client, near));
        talk(&connect(&net.back_end, far, &at_client), 4);
        service.stop().unwrap();
    }
}

/// A service takes over from another, with the tunnel and the gateway of one interface.
#[test]
fn a_service_takes_over_without_losing_a_session() {
    let family = Family::V4;
    let net = Served::new().unwrap();
    let near = Attached::start(&net.client.netns, Host::DEV, &["--port", "7000"]).unwrap();
    let back_end = net.back_end.socket(family, 8080);
    let listener = listen(&net.back_end, back_end);
    let _echo = udp::Server::echo(&net.back_end.netns, back_end).unwrap();
    // The tunnel owns port 7000, so TCP comes by another one.
    let text = format!(
        "[interface.eth0]\nports = [7000]\n{}{}",
        rule(Served::WAN, 7000, back_end),
        rule(Served::WAN, 7001, back_end)
    );
    let file = File::new(&text);
    let first = file.forward(&net.gateway, &[]);
    first.wait_ready(Served::WAN, 2, LIMIT).unwrap();
    wait::until(LIMIT, "the warning", || {
        let log = first.process().stderr().join("\n");
        log.contains("the rule for 7000 forwards no TCP there")
    })
    .unwrap();
    let connection = connect(&net.client, net.listen_at(family, 7001), &listener);
    let socket = udp::bind(&net.client.netns, net.client.socket(family, 0)).unwrap();
    let remote = net.listen_at(family, 7000);
    let carry = |byte: u8| {
        talk(&connection, byte);
        udp::exchange(&socket, remote, &[byte; 1000], LIMIT).unwrap();
    };
    carry(1);
    let second = file.forward(&net.gateway, &["--take-over"]);
    second.wait_ready(Served::WAN, 2, LIMIT).unwrap();
    carry(2);
    let left = second.kill().unwrap();
    carry(3);
    let third = file.forward(&net.gateway, &[]);
    third.wait_ready(Served::WAN, 2, LIMIT).unwrap();
    carry(4);
    let sessions = xdptun_lab::xdptun::run_in(&net.gateway, &["sessions", "--json"]).unwrap();
    let sessions: Value = serde_json::from_str(&sessions).unwrap();
    assert_eq!(
        sessions["sessions"].as_array().unwrap().len(),
        2,
        "{sessions}"
    );
    third.stop().unwrap();
    near.stop().unwrap();
    drop((first, left));
    assert_eq!(pins(&net.gateway).unwrap(), [""; 0]);
}

/// The service waits for an interface that is not there, and forwards when it comes.
#[test]
fn an_interface_that_is_missing_is_waited_for() {
    let net = Served::new().unwrap();
    let inside = net.back_end.socket(Family::V4, 8080);
    let listener = listen(&net.back_end, inside);
    let file = File::new(&(rule(Served::WAN, 7000, inside) + &rule("late0", 7001, inside)));
    let service = file.forward(&net.gateway, &[]);
    let state = |name: &str, state: &str| json!({"name": name, "function": "gateway", "state": state, "reason": null});
    let [eth0, waiting] = [state("eth0", "carrying"), state("late0", "waiting")];
    assert_eq!(states(&net.gateway), json!([eth0, waiting]));

    let client = net.client.netns.name();
    let pair = [
        "link", "add", "late0", "type", "veth", "peer", "name", "far0", "netns", client,
    ];
    net.gateway.run("ip", pair).unwrap();
    for (netns, dev, address) in [
        (&net.gateway, "late0", "198.51.100.254/24"),
        (&net.client.netns, "far0", "198.51.100.1/24"),
    ] {
        netns
            .run("ip", ["address", "add", address, "dev", dev])
            .unwrap();
        netns.run("ip", ["link", "set", dev, "up"]).unwrap();
    }
    service
        .process()
        .wait_for_line("ready: late0 forwards 1 port", LIMIT)
        .unwrap();
    let at = "198.51.100.254:7001".parse().unwrap();
    talk(&connect(&net.client, at, &listener), 1);
    assert_eq!(
        states(&net.gateway),
        json!([eth0, state("late0", "carrying")])
    );
    file.write(&rule(Served::WAN, 7000, inside));
    reloads(&net.gateway, &["late0: no longer forwards or translates"]);
    assert!(is_refused(&net.client, at));
    service.stop().unwrap();
    assert_eq!(pins(&net.gateway).unwrap(), [""; 0]);
}

/// Rules belong to an interface, whatever it is called by now.
#[test]
fn an_interface_keeps_its_rules_under_another_name() {
    let net = Served::new().unwrap();
    let inside = net.back_end.socket(Family::V4, 8080);
    let listener = listen(&net.back_end, inside);
    let file = File::new(&rule(Served::WAN, 7000, inside));
    let service = file.forward(&net.gateway, &[]);
    for arguments in [
        &["link", "set", Served::WAN, "down"][..],
        &["link", "set", Served::WAN, "name", "wan0"],
        &["link", "set", "wan0", "up"],
    ] {
        net.gateway.run("ip", arguments).unwrap();
    }
    talk(
        &connect(&net.client, net.listen_at(Family::V4, 7000), &listener),
        1,
    );
    file.write(&rule(Served::WAN, 7001, inside));
    reloads(&net.gateway, &["eth0: new rules apply"]);
    talk(
        &connect(&net.client, net.listen_at(Family::V4, 7001), &listener),
        2,
    );
    service.stop().unwrap();
    assert_eq!(pins(&net.gateway).unwrap(), [""; 0]);
}

/// An interface of the tunnel in the same file cannot be attached.
#[test]
fn a_reload_that_fails_elsewhere_changes_no_rule() {
    let net = Served::new().unwrap();
    let [first, second] = [8080, 8081].map(|port| net.back_end.socket(Family::V4, port));
    let [one, other] = [first, second].map(|at| listen(&net.back_end, at));
    let at = net.listen_at(Family::V4, 7000);
    let file = File::new(&rule(Served::WAN, 7000, first));
    let service = file.forward(&net.gateway, &[]);
    let connection = connect(&net.client, at, &one);
    let add = ["link", "add", "poor0", "type", "bridge"];
    net.gateway.run("ip", add).unwrap();
    let poor = "[interface.poor0]\nports = [8000]\ningress = \"xdp\"\n";
    let before = states(&net.gateway);
    for rules in [
        String::new(),
        rule(Served::WAN, 7000, second),
        rule(Served::WAN, 7001, first) + &rule(Served::LAN, 7000, first),
    ] {
        file.write(&format!("{poor}{rules}"));
        let refused = reload(&net.gateway);
        refused.assert_one_line(&["nothing was changed: poor0"]);
        talk(&connection, 1);
        talk(&connect(&net.client, at, &one), 2);
        assert_eq!(states(&net.gateway), before);
    }
    file.write(&rule(Served::WAN, 7000, second));
    reloads(&net.gateway, &["eth0: new rules apply"]);
    talk(&connect(&net.client, at, &other), 3);
    service.stop().unwrap();
    assert_eq!(pins(&net.gateway).unwrap(), [""; 0]);
}

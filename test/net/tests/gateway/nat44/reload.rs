//! `nat` in the file of `xdptun run`, beside `forward` and the tunnel.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use serde_json::json;
use xdptun_lab::{Attached, Family, Host, Inside, udp, wait, xdptun};
use xdptun_test_net::inside::{counter, end, outside_end, sessions, socket};
use xdptun_test_net::service::{File, reload, reloads, states};
use xdptun_test_net::traces::pins;
use xdptun_test_net::{LIMIT, tcp};

/// The port of inside hosts.
const LOCAL: u16 = 5000;

/// A table of the interface that leads outside.
fn table(inside: &[&str], more: &str) -> String {
    format!("[interface.wan0.nat]\ninside = {inside:?}\n{more}\n")
}

/// A rule of that interface.
fn rule(listen: u16, to: SocketAddr) -> String {
    format!("[[interface.wan0.forward]]\nlisten = {listen}\nto = \"{to}\"\n")
}

fn listen(host: &Host, port: u16) -> TcpListener {
    let listen = || TcpListener::bind((host.v4, port));
    host.netns.enter(listen).unwrap().unwrap()
}

/// A connection that reaches a listener by an address, and from where it comes.
fn connect(from: &Host, to: SocketAddr, at: &TcpListener) -> ([TcpStream; 2], SocketAddr) {
    let near = tcp::connect(&from.netns, from.socket(Family::V4, 0), to).unwrap();
    let (far, seen) = at.accept().unwrap();
    ([near, far], seen)
}

/// A kilobyte each way.
fn talk([near, far]: &[TcpStream; 2], byte: u8) {
    for (from, to) in [(near, far), (far, near)] {
        tcp::send_and_receive(from, to, &[byte; 1000]).unwrap();
    }
}

/// Outside hosts reach an inside one by a rule, and that calls out: on one interface, with the
/// tunnel.
#[test]
fn a_host_is_called_and_calls() {
    let net = Inside::new().unwrap();
    let [server, other] = &net.outside;
    let near = Attached::start(&server.netns, Host::DEV, &["--port", "8000"]).unwrap();
    let ports = "[interface.wan0]\nports = [8000]\n";
    let service = net.a.socket(Family::V4, 8080);
    let rules = rule(7000, service) + &table(&[Inside::NETWORK], "");
    let file = File::new(&format!("{ports}{rules}"));
    let run = file.gateway(&net.gateway, Inside::WAN, &[]);
    run.wait_ready(Inside::WAN, 2, LIMIT).unwrap();

    let [inner, outer] = [listen(&net.a, 8080), listen(other, 8080)];
    let (called, caller) = connect(server, Inside::outside_at(7000), &inner);
    assert_eq!(caller, called[0].local_addr().unwrap());
    let (calls, seen) = connect(&net.a, outer.local_addr().unwrap(), &outer);
    assert_eq!(seen.ip(), Inside::ADDRESS);
    // The port of a rule is not lent.
    let forwarded = socket(&net.a, 7000);
    let outside = socket(other, 0);
    assert_ne!(outside_end(&forwarded, &outside).port(), 7000);
    let _echo = udp::Server::echo(&net.a.netns, service).unwrap();
    let remote = Inside::outside_at(7000);
    udp::exchange(&socket(other, 0), remote, b"hello", LIMIT).unwrap();
    // The tunnel carries what the gateway itself sends.
    let own = udp::bind(&net.gateway, Inside::outside_at(8000)).unwrap();
    let peer = socket(server, 8000);
    assert_eq!(outside_end(&own, &peer), end(&own));
    for round in 1..=3 {
        for connection in [&called, &calls] {
            talk(connection, round);
        }
    }
    let found = sessions(&net);
    let of = |function: &str| {
        found
            .iter()
            .filter(|one| one["function"] == function)
            .count()
    };
    assert_eq!([of("forward"), of("nat")], [2, 2], "{found:#?}");
    run.stop().unwrap();
    near.stop().unwrap();
    assert_eq!(pins(&net.gateway).unwrap(), [""; 0]);
}

/// By a rule of their own interface, as from the gateway's address there.
#[test]
fn inside_hosts_reach_a_forwarded_port_by_the_outside_address() {
    let net = Inside::new().unwrap();
    let service = net.a.socket(Family::V4, 8080);
    let listen_at = Inside::outside_at(7000);
    let of_lan = format!(
        "[[interface.{}.forward]]\nlisten = \"{listen_at}\"\nto = \"{service}\"\n\
         source = \"masquerade\"\n",
        Inside::LAN
    );
    let file = File::new(&(rule(7000, service) + &of_lan + &table(&[Inside::NETWORK], "")));
    let run = file.gateway(&net.gateway, Inside::WAN, &[]);
    run.wait_ready(Inside::LAN, 1, LIMIT).unwrap();
    let inner = listen(&net.a, 8080);
    let (from_inside, seen) = connect(&net.b, listen_at, &inner);
    assert_eq!(seen.ip(), Ipv4Addr::new(192, 168, 7, 1));
    let (from_outside, seen) = connect(&net.outside[0], listen_at, &inner);
    assert_eq!(seen, from_outside[0].local_addr().unwrap());
    for round in 1..=3 {
        for connection in [&from_inside, &from_outside] {
            talk(connection, round);
        }
    }
    run.stop().unwrap();
}

/// Other ports, another inside network, another filtering: what is open goes on.
#[test]
fn a_reload_changes_what_is_translated_and_ends_no_session() {
    let net = Inside::new().unwrap();
    let [server, _] = &net.outside;
    let outer = listen(server, 8080);
    let to = outer.local_addr().unwrap();
    let file = File::new(&table(&[Inside::NETWORK], "ports = \"20000-20999\""));
    let run = file.gateway(&net.gateway, Inside::WAN, &[]);
    let (connection, seen) = connect(&net.a, to, &outer);
    assert!((20_000..21_000).contains(&seen.port()), "{seen}");
    talk(&connection, 1);
    let inside = socket(&net.a, LOCAL);
    let outside = socket(server, 0);
    let before = outside_end(&inside, &outside);

    file.write(&table(&[Inside::NETWORK], "ports = \"21000-21999\""));
    reloads(&net.gateway, &["wan0: new rules apply"]);
    talk(&connection, 2);
    assert_eq!(outside_end(&inside, &outside), before);
    let (other, seen) = connect(&net.a, to, &outer);
    assert!((21_000..22_000).contains(&seen.port()), "{seen}");

    // Another network, behind an interface that has no programs yet.
    let more = "ports = \"21000-21999\"\nfiltering = \"address-and-port-dependent\"";
    file.write(&table(&[Inside::NETWORK, Inside::SECOND_NETWORK], more));
    reloads(&net.gateway, &["wan0: new rules apply"]);
    let (third, seen) = connect(&net.c, to, &outer);
    assert_eq!(seen.ip(), Inside::ADDRESS);
    let strange = socket(server, 0);
    strange.send_to(b"hello", before).unwrap();
    wait::until(LIMIT, "the drop", || counter(&net, "in_drop_filtered") == 1).unwrap();
    for connection in [&connection, &other, &third] {
        talk(connection, 3);
    }
    let gateways = xdptun::status(&net.gateway).unwrap()["gateways"].clone();
    let names = gateways.as_array().unwrap().iter();
    let names: Vec<_> = names.map(|one| &one["name"]).collect();
    assert_eq!(json!(names), json!(["lan0", "lan1", "wan0"]));

    // What cannot be applied changes nothing.
    file.write(&format!(
        "max-bindings = 7\n{}",
        table(&[Inside::NETWORK], "")
    ));
    reload(&net.gateway).assert_one_line(&["nothing was changed", "`max-bindings` 65536"]);
    talk(&connection, 4);

    // A rule beside it, then the rule alone: what is open goes on.
    let inner = listen(&net.a, 8080);
    file.write(&(rule(7000, net.a.socket(Family::V4, 8080)) + &table(&[Inside::NETWORK], more)));
    reloads(&net.gateway, &["wan0: new rules apply"]);
    let (called, _) = connect(server, Inside::outside_at(7000), &inner);
    for connection in [&connection, &other, &called] {
        talk(connection, 5);
    }
    file.write(&rule(7000, net.a.socket(Family::V4, 8080)));
    reloads(&net.gateway, &["wan0: new rules apply"]);
    for connection in [&connection, &other, &called] {
        talk(connection, 6);
    }
    file.write("");
    reloads(&net.gateway, &["wan0: no longer forwards or translates"]);
    assert_eq!(states(&net.gateway), json!([]));
    assert_eq!(pins(&net.gateway).unwrap(), [""; 0]);
    run.stop().unwrap();
}

//! The states of a service's interfaces, and where they are reported; and that slow
//! operations delay nothing else.

use std::fs;
use std::io::{self, Read as _};
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;

use nix::sys::signal::Signal;
use serde_json::json;
use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Attached, Direct, Family, Host, Netns, udp, wait};
use xdptun_test_net::cli::run;
use xdptun_test_net::service::{
    File, OTHER, add, attached, control_socket, delete, instead_of, ports, reload, reloads, states,
};
use xdptun_test_net::traces::Traces;
use xdptun_test_net::{LIMIT, PORT, mode};

/// Makes an interface whose driver has no XDP.
fn add_poor(netns: &Netns, dev: &str) {
    let arguments = ["link", "add", dev, "type", "bridge"];
    netns.run("ip", arguments).unwrap();
    netns.run("ip", ["link", "set", dev, "up"]).unwrap();
}

/// Replaces an interface by one that cannot be taken, and waits until that is told;
/// the reason.
fn lose(netns: &Netns, service: &Attached, dev: &str) -> String {
    let told = |text: &str| {
        let text = text.to_owned();
        move || service.process().stderr().join("\n").contains(&text)
    };
    let gone = format!("{dev}: the interface is gone");
    delete(netns, dev);
    wait::until(LIMIT, "the loss", told(&gone)).unwrap();
    add_poor(netns, dev);
    let given_up = format!("ERROR {dev}: given up: ");
    wait::until(LIMIT, "the end of it", told(&given_up)).unwrap();
    let log = service.process().stderr();
    let mut lines = log.iter().filter_map(|line| line.split_once(&given_up));
    let (_, reason) = lines.next().unwrap();
    assert!(lines.next().is_none(), "{log:#?}");
    reason.to_owned()
}

const ETH0: &str = "[interface.eth0]\nports = [8000]\n";

/// Each is told once, in every place, and a reload that takes them out cures it.
#[test]
fn interfaces_that_are_given_up_are_told_and_can_be_cured() {
    let net = Direct::new().unwrap();
    let netns = &net.a.netns;
    let before = Traces::of(&net.a).unwrap();
    let lost = ["eth1", "eth2"];
    let mut text = ETH0.to_owned();
    // Different ports: each is a group of its own.
    for (name, far, port) in [(lost[0], "far1", 9), (lost[1], "far2", 10)] {
        let pair = ["link", "add", name, "type", "veth", "peer", "name", far];
        netns.run("ip", pair).unwrap();
        netns.run("ip", ["link", "set", name, "up"]).unwrap();
        text += &format!("[interface.{name}]\nports = [{port}]\ningress = \"xdp\"\n");
    }
    let file = File::new(&(text.clone() + "[interface.eth3]\nports = [7]\n"));
    let running = file.run(&net.a);
    running
        .process()
        .wait_for_line("ready: eth2 ", LIMIT)
        .unwrap();
    let reasons = lost.map(|name| lose(netns, &running, name));
    for (name, reason) in lost.into_iter().zip(&reasons) {
        for words in [
            "it came back",
            "does not take the XDP program",
            "stay attached",
        ] {
            assert!(reason.contains(words), "{name}: {reason}");
        }
    }
    let given_up = |index: usize| json!({"name": lost[index], "function": "tunnel", "state": "given-up", "reason": reasons[index]});
    let expected = json!([
        {"name": "eth0", "function": "tunnel", "state": "carrying", "reason": null},
        given_up(0),
        given_up(1),
        {"name": "eth3", "function": "tunnel", "state": "waiting", "reason": null},
    ]);
    assert_eq!(states(netns), expected);
    let shown = run(netns, &["status"]).unwrap().stdout;
    let end = [
        format!("eth1: `xdptun run` gave it up: {}", reasons[0]),
        format!("eth2: `xdptun run` gave it up: {}", reasons[1]),
        "eth3: `xdptun run` waits for the interface".to_owned(),
    ];
    assert_eq!(shown[shown.len() - 3..], end, "{shown:#?}");
    // Its own line, and no word of the others.
    let of_one = run(netns, &["status", "--iface", "eth3"]).unwrap();
    assert_eq!(of_one.stdout, end[2..]);
    run(netns, &["status", "--iface", "eth9"])
        .unwrap()
        .assert_one_line(&["eth9: nothing is attached"]);
    assert_eq!(attached(netns), ["eth0", "eth1", "eth2"]);

    // Out of the file, it is taken away; with what it can do, it is carried again.
    file.write(&format!("{ETH0}[interface.eth2]\nports = [10]\n"));
    let refused = reload(netns);
    refused
        .assert_one_line(&["nothing was changed: eth2: its driver does not take the XDP program"]);
    file.write(ETH0);
    reloads(
        netns,
        &["eth1: detached", "eth2: detached", "eth3: detached"],
    );
    assert_eq!(states(netns), json!([expected[0]]));
    file.write(&format!(
        "{ETH0}[interface.eth2]\nports = [10]\n[interface.eth3]\nports = [7]\n"
    ));
    let waits = "eth3: waited for, as there is no such interface";
    reloads(netns, &["eth2: attached", waits]);
    running.stop().unwrap();
    for name in lost {
        delete(netns, name);
    }
    assert_eq!(Traces::of(&net.a).unwrap(), before);
}

#[test]
fn a_service_that_gave_interfaces_up_says_so_in_the_end() {
    let net = Direct::new().unwrap();
    let netns = &net.a.netns;
    add(netns, OTHER);
    let file = File::new(&format!(
        "{ETH0}[interface.eth1]\nports = [9]\ningress = \"xdp\"\n"
    ));
    let mut process = xdptun_lab::Process::spawn(&mut file.command(netns, &[])).unwrap();
    process.wait_for_line("ready: eth1 ", LIMIT).unwrap();
    delete(netns, OTHER);
    let told = |text: &str| process.stderr().join("\n").contains(text);
    wait::until(LIMIT, "the loss", || told("eth1: the interface is gone")).unwrap();
    add_poor(netns, OTHER);
    wait::until(LIMIT, "the end of it", || told("eth1: given up: ")).unwrap();
    process.signal(Signal::SIGTERM).unwrap();
    let ended = process.wait(LIMIT).unwrap();
    assert_eq!(ended.code(), Some(1));
    let last = process.stderr().pop().unwrap();
    assert_eq!(last, "xdptun: given up: eth1; the log tells why");
    // The programs that it could not go on with still let nothing out.
    assert_eq!(attached(netns), ["eth1"]);
    run(netns, &["detach", "--iface", OTHER]).unwrap();
    assert_eq!(attached(netns), [""; 0]);
}

/// The attachment comes back with the interface, so its settings still count.
#[test]
fn what_cannot_change_is_refused_also_while_the_interface_is_gone() {
    let net = Direct::new().unwrap();
    let netns = &net.a.netns;
    add(netns, OTHER);
    let file = File::new(&format!("{ETH0}[interface.eth1]\nports = [9]\n"));
    let service = file.run(&net.a);
    service
        .process()
        .wait_for_line("ready: eth1 ", LIMIT)
        .unwrap();
    delete(netns, OTHER);
    let log = || service.process().stderr().join("\n");
    wait::until(LIMIT, "the loss", || {
        log().contains("eth1: the interface is gone")
    })
    .unwrap();
    file.write(&format!(
        "{ETH0}[interface.eth1]\nports = [9]\nmax-flows = 99\n"
    ));
    reload(netns).assert_one_line(&["eth1: what is attached has `max-flows` 65536"]);
    file.write(&format!("{ETH0}[interface.eth1]\nports = [10]\n"));
    reloads(netns, &["eth1: changed"]);
    add(netns, OTHER);
    service.wait_ready(OTHER, 2, LIMIT).unwrap();
    assert_eq!(ports(netns, OTHER), "10");
    service.stop().unwrap();
}

/// A service whose reload looks up a name that no DNS server answers for.
struct Slow {
    net: Direct,
    file: File,
    service: Attached,
    _scratch: Scratch,
    _silent: UdpSocket,
}

impl Slow {
    fn new() -> Self {
        let net = Direct::new().unwrap();
        let scratch = Scratch::new().unwrap();
        let resolver = scratch.path().join("resolv.conf");
        let silent = udp::bind(&net.b.netns, net.b.socket(Family::V4, 53)).unwrap();
        fs::write(
            &resolver,
            format!("nameserver {}\n", net.b.address(Family::V4)),
        )
        .unwrap();
        let file = File::new(ETH0);
        let netns = &net.a.netns;
        let mut command = instead_of("/etc/resolv.conf", &resolver, &file.command(netns, &[]));
        netns.place(&mut command);
        let service = Attached::by(netns, Host::DEV, &mut command).unwrap();
        file.write("[interface.eth0]\nports = [9]\npeers = [\"slow.test\"]\n");
        service.process().signal(Signal::SIGHUP).unwrap();
        udp::receive(&silent, LIMIT).unwrap();
        Self {
            net,
            file,
            service,
            _scratch: scratch,
            _silent: silent,
        }
    }
}

#[test]
fn nothing_waits_for_names() {
    let slow = Slow::new();
    let netns = &slow.net.a.netns;
    assert_eq!(
        states(netns),
        json!([{"name": "eth0", "function": "tunnel", "state": "carrying", "reason": null}])
    );
    // It ends before the name server has had its time.
    let Slow { service, .. } = slow;
    let process = service.process();
    process.signal(Signal::SIGTERM).unwrap();
    wait::until(LIMIT, "the end", || !process.is_running().unwrap()).unwrap();
    let log = process.stderr().join("\n");
    assert!(log.contains("eth0: detached"), "{log}");
    assert!(!log.contains("no answer from the name server"), "{log}");
    assert!(!log.contains("reloaded"), "{log}");
}

#[test]
fn another_takes_over_also_while_names_are_looked_up() {
    let slow = Slow::new();
    let netns = &slow.net.a.netns;
    slow.file.write("[interface.eth0]\nports = [8001]\n");
    let mut command = slow.file.command(netns, &["--take-over"]);
    let new = Attached::by(netns, Host::DEV, &mut command).unwrap();
    assert_eq!(ports(netns, Host::DEV), "8001");
    let old = slow.service.process();
    wait::until(LIMIT, "the old one to end", || !old.is_running().unwrap()).unwrap();
    assert!(!old.stderr().join("\n").contains("reloaded"));
    new.stop().unwrap();
}

/// A client that connects and sends nothing delays no other client.
#[test]
fn a_reload_passes_those_who_ask_nothing() {
    let net = Direct::new().unwrap();
    let netns = &net.a.netns;
    let file = File::new(ETH0);
    let service = file.run(&net.a);
    let socket = control_socket(netns);
    let idle = [(); 20].map(|()| UnixStream::connect(&socket).unwrap());
    reloads(netns, &["no interface changed"]);
    for mut connection in idle {
        connection.set_nonblocking(true).unwrap();
        let state = connection.read(&mut [0]).unwrap_err().kind();
        assert_eq!(state, io::ErrorKind::WouldBlock);
    }
    service.stop().unwrap();
}

/// Packets are logged from the reload on that asks for it, until the next that does
/// not.
#[test]
fn a_reload_switches_the_log_of_packets_on_and_off() {
    let net = Direct::new().unwrap();
    let netns = &net.a.netns;
    let file = File::new(ETH0);
    let service = file.run(&net.a);
    let _peer = mode::TC.attach(&net.b, &["--port", "8000"]).unwrap();
    let echo = udp::Server::echo(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
    let socket = udp::bind(netns, net.a.socket(Family::V4, 0)).unwrap();
    let exchange = || udp::exchange(&socket, echo.address(), b"logged?", LIMIT).unwrap();
    let logged = || {
        let log = service.process().stderr();
        log.iter().filter(|line| line.contains("TRACE")).count()
    };
    exchange();
    assert_eq!(logged(), 0);
    file.write(&format!("log-level = \"trace\"\n{ETH0}"));
    reloads(netns, &["eth0: changed"]);
    exchange();
    wait::until(LIMIT, "packets in the log", || logged() >= 2).unwrap();
    file.write(ETH0);
    reloads(netns, &["eth0: changed"]);
    // Lines come in order.
    let told = |reloads: usize| {
        let log = service.process().stderr();
        let told = log.iter().filter(|line| line.contains("reloaded: "));
        told.count() == reloads
    };
    wait::until(LIMIT, "the second reload", || told(2)).unwrap();
    let before = logged();
    exchange();
    reloads(netns, &["no interface changed"]);
    wait::until(LIMIT, "the third reload", || told(3)).unwrap();
    assert_eq!(logged(), before);
    service.stop().unwrap();
}

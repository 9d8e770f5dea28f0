//! `xdptun run`, `check` and `reload`: a file with interfaces.

use std::fs;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Attached, Direct, Family, Host, Netns, WireStats, udp, wait};
use xdptun_test_net::cli::{finish, run};
use xdptun_test_net::service::{
    File, OTHER, add, attached, control_socket, delete, instead_of, ports, reload, reloads,
};
use xdptun_test_net::traces::Traces;
use xdptun_test_net::traffic::Traffic;
use xdptun_test_net::wire::Wire;
use xdptun_test_net::{LIMIT, PORT, mode, socket, status};

/// One that is not there yet is waited for; in the end nothing is left of either.
#[test]
fn all_interfaces_of_a_file_are_carried() {
    let net = Direct::new().unwrap();
    let before = Traces::of(&net.a).unwrap();
    let file = File::new("[interface.eth0]\nports = [8000]\n[interface.eth1]\nports = [\"1-9\"]\n");
    let service = file.run(&net.a);
    let _peer = mode::TC.attach(&net.b, &["--port", "8000"]).unwrap();
    let process = service.process();
    assert_eq!(attached(&net.a.netns), ["eth0"]);
    let echo = udp::Server::echo(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
    let socket = udp::bind(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
    udp::exchange(&socket, echo.address(), b"over eth0", LIMIT).unwrap();

    add(&net.a.netns, OTHER);
    process.wait_for_line("ready: eth1 ", LIMIT).unwrap();
    assert_eq!(attached(&net.a.netns), ["eth0", "eth1"]);
    assert_eq!(ports(&net.a.netns, OTHER), "1-9");
    // Gone and back again: the other one does not care.
    delete(&net.a.netns, OTHER);
    let waits = || {
        let log = process.stderr().join("\n");
        log.contains("eth1: the interface is gone; waiting for it to come back")
    };
    wait::until(LIMIT, "the loss to be noticed", waits).unwrap();
    udp::exchange(&socket, echo.address(), b"over eth0", LIMIT).unwrap();
    add(&net.a.netns, OTHER);
    service.wait_ready(OTHER, 2, LIMIT).unwrap();
    service.stop().unwrap();
    delete(&net.a.netns, OTHER);
    assert_eq!(Traces::of(&net.a).unwrap(), before);
    assert!(!control_socket(&net.a.netns).exists());
}

#[test]
fn a_reload_changes_what_changed_and_nothing_else() {
    let net = Direct::new().unwrap();
    let netns = &net.a.netns;
    add(netns, OTHER);
    let before = Traces::of(&net.a).unwrap();
    let file = File::new("[interface.eth0]\nports = [8000]\n");
    let service = file.run(&net.a);
    let _peer = mode::TC.attach(&net.b, &["--port", "8000-9000"]).unwrap();
    let servers = [8000, 9000]
        .map(|port| udp::Server::echo(&net.b.netns, net.b.socket(Family::V4, port)).unwrap());
    let socket = udp::bind(netns, net.a.socket(Family::V4, 0)).unwrap();
    let exchange = |server: usize| {
        udp::exchange(&socket, servers[server].address(), b"still there", LIMIT).unwrap();
    };
    exchange(0);
    let wire = Wire::watch(&[&net.a]).unwrap();
    reloads(netns, &["no interface changed"]);

    file.write("[interface.eth0]\nports = [8000, 9000]\n[interface.eth1]\nports = [7]\n");
    reloads(netns, &["eth1: attached", "eth0: changed"]);
    assert_eq!(ports(netns, Host::DEV), "8000 9000");
    assert_eq!(ports(netns, OTHER), "7");
    exchange(0);
    exchange(1);

    // Other programs in their place; the flows go on as well, and so do datagrams.
    let peer = net.b.address(Family::V4);
    let sink = udp::Server::sink(&net.b.netns, net.b.socket(Family::V4, 8001)).unwrap();
    let busy = socket::roomy(netns, net.a.socket(Family::V4, PORT)).unwrap();
    busy.send_to(b"opens the flow", sink.address()).unwrap();
    wait::until(LIMIT, "the flow", || sink.datagrams() == 1).unwrap();
    file.write(&format!(
        "[interface.eth0]\nports = [8000, 9000]\npeers = [\"{peer}\"]\nkeepalive = 5\n"
    ));
    let log = || service.process().stderr().join("\n");
    let traffic = Traffic::start(&busy, sink.address(), 1000).unwrap();
    service.process().signal(Signal::SIGHUP).unwrap();
    wait::until(LIMIT, "the reload", || {
        log().contains("reloaded: eth0: changed; eth1: detached")
    })
    .unwrap();
    // And the one that opened the flow.
    let sent = 1 + traffic.stop().unwrap();
    wait::until(LIMIT, "the last datagram", || sink.datagrams() == sent).unwrap();
    assert_eq!(attached(netns), ["eth0"]);
    exchange(0);
    exchange(1);
    let frames = wire.stop().unwrap();
    // To port 8000: the flow of the sink.
    for (port, syn) in [(8000, 1), (9000, 1)] {
        let stats = WireStats::of(port, &frames);
        let counts = (stats.udp_datagrams, stats.syn, stats.rst, stats.fin);
        assert_eq!(counts, (0, syn, 0, 0), "port {port}: {stats:#?}");
    }
    service.stop().unwrap();
    assert_eq!(Traces::of(&net.a).unwrap(), before);
}

/// The peers are told, and no entry is left of them; the other flows go on.
#[test]
fn what_a_reload_carries_no_more_ends() {
    let net = Direct::new().unwrap();
    let netns = &net.a.netns;
    let file = File::new("[interface.eth0]\nports = [8000, 9000]\n");
    let service = file.run(&net.a);
    let _peer = mode::TC.attach(&net.b, &["--port", "8000-9000"]).unwrap();
    let open = |port: u16| {
        let echo = udp::Server::echo(&net.b.netns, net.b.socket(Family::V4, port)).unwrap();
        let client = udp::bind(netns, net.a.socket(Family::V4, 0)).unwrap();
        udp::exchange(&client, echo.address(), b"hello", LIMIT).unwrap();
        (client, echo)
    };
    let (client, echo) = open(8000);
    let _ending = open(9000);
    let states = |port: u16| -> Vec<String> {
        let flows = status::flows(netns).unwrap().into_iter();
        let end = format!(":{port}");
        let of_port = flows.filter(|flow| flow.remote.ends_with(&end));
        of_port.map(|flow| flow.state).collect()
    };
    assert_eq!(states(9000), ["established"]);
    let wire = Wire::watch(&[&net.a]).unwrap();
    file.write("[interface.eth0]\nports = [8000]\n");
    reloads(netns, &["eth0: changed"]);
    wait::until(LIMIT, "the flow to be gone", || states(9000).is_empty()).unwrap();
    udp::exchange(&client, echo.address(), b"still there", LIMIT).unwrap();
    file.write("[interface.eth0]\nports = [8000]\npeers = [\"10.0.0.9\"]\n");
    reloads(netns, &["eth0: changed"]);
    wait::until(LIMIT, "the flow to be gone", || states(8000).is_empty()).unwrap();
    let frames = wire.stop().unwrap();
    for port in [8000, 9000] {
        let stats = WireStats::of(port, &frames);
        // What this host sends.
        assert_eq!(
            (stats.fin, stats.rst, stats.syn),
            (1, 0, 0),
            "port {port}: {stats:#?}"
        );
    }
    service.stop().unwrap();
}

#[test]
fn a_bad_file_changes_nothing_and_says_why() {
    let net = Direct::new().unwrap();
    let netns = &net.a.netns;
    let good = "[interface.eth0]\nports = [8000]\n";
    let file = File::new(good);
    let service = file.run(&net.a);
    let before = Traces::of(&net.a).unwrap();
    let secret = "[interface.eth0]\nports = [8000]\nsecret = \"/no/such/file\"\n";
    let fixed = "[interface.eth1]\nports = [9]\n[interface.eth0]\nports = [9]\nmax-flows = 9\n";
    for (text, complaints) in [
        (
            "[interface.eth0]\nprots = [1]\n",
            &["line 2, column 1", "`ports`"][..],
        ),
        (secret, &["eth0: cannot read the secret /no/such/file"]),
        // A new interface that would be attached comes with a change that cannot be.
        (
            fixed,
            &["eth0: what is attached has `max-flows` 65536", "become 9"],
        ),
    ] {
        file.write(text);
        let outcome = reload(netns);
        assert_eq!(
            (outcome.code, &outcome.stdout[..]),
            (Some(1), &[][..]),
            "{outcome:#?}"
        );
        let told = outcome.stderr.join("\n");
        assert!(told.starts_with("xdptun: nothing was changed: "), "{told}");
        for complaint in complaints {
            assert!(told.contains(complaint), "{complaint}: {told}");
        }
        assert_eq!(Traces::of(&net.a).unwrap(), before);
        assert_eq!(ports(netns, Host::DEV), "8000");
    }
    // An interface that cannot be attached takes nothing with it.
    add(netns, OTHER);
    let other = Attached::start(netns, OTHER, &["--port", "5"]).unwrap();
    file.write("[interface.eth0]\nports = [8001]\n[interface.eth1]\nports = [6]\n");
    let outcome = reload(netns);
    assert_eq!(outcome.code, Some(1), "{outcome:#?}");
    let told = outcome.stderr.join("\n");
    assert!(told.contains("eth1: xdptun is already attached"), "{told}");
    assert_eq!(
        (ports(netns, Host::DEV), ports(netns, OTHER)),
        ("8000".into(), "5".into())
    );
    other.stop().unwrap();
    delete(netns, OTHER);

    file.write(good);
    reloads(netns, &["no interface changed"]);
    service.stop().unwrap();
    reload(netns).assert_one_line(&["`xdptun run` does not run in this network namespace"]);
}

/// `--take-over` and `detach` would not do: the file decides.
#[test]
fn who_attaches_to_an_interface_of_the_service_is_sent_to_the_file() {
    let net = Direct::new().unwrap();
    let file = File::new("[interface.eth0]\nports = [8000]\n");
    let service = file.run(&net.a);
    for more in [&[][..], &["--take-over"]] {
        let attach = [&["attach", "--iface", Host::DEV, "--port", "9"][..], more].concat();
        let refused = run(&net.a.netns, &attach).unwrap();
        refused.assert_one_line(&["is `xdptun run`", "change the file", "`xdptun reload`"]);
    }
    service.stop().unwrap();
}

/// A service that cannot attach all its interfaces leaves none attached.
#[test]
fn a_service_begins_with_all_or_nothing() {
    let net = Direct::new().unwrap();
    let netns = &net.a.netns;
    add(netns, OTHER);
    let before = Traces::of(&net.a).unwrap();
    let other = Attached::start(netns, OTHER, &["--port", "5"]).unwrap();
    let file = File::new("[interface.eth0]\nports = [8000]\n[interface.eth1]\nports = [6]\n");
    let outcome = finish(&mut file.command(netns, &[])).unwrap();
    assert_eq!(outcome.code, Some(1), "{outcome:#?}");
    let told = outcome.stderr.last().unwrap();
    assert!(
        told.starts_with("xdptun: eth1: xdptun is already attached"),
        "{outcome:#?}"
    );
    other.stop().unwrap();
    assert_eq!(Traces::of(&net.a).unwrap(), before);
    assert!(!control_socket(netns).exists());
}

#[test]
fn another_takes_over_all_of_it() {
    let net = Direct::new().unwrap();
    let netns = &net.a.netns;
    add(netns, OTHER);
    let before = Traces::of(&net.a).unwrap();
    let file = File::new("[interface.eth0]\nports = [8000]\n[interface.eth1]\nports = [7]\n");
    let old = file.run(&net.a);
    old.process().wait_for_line("ready: eth1 ", LIMIT).unwrap();
    let _peer = mode::TC.attach(&net.b, &["--port", "8000"]).unwrap();
    let echo = udp::Server::echo(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
    let socket = udp::bind(netns, net.a.socket(Family::V4, 0)).unwrap();
    udp::exchange(&socket, echo.address(), b"before", LIMIT).unwrap();
    let wire = Wire::watch(&[&net.a]).unwrap();

    let second = finish(&mut file.command(netns, &[])).unwrap();
    second.assert_one_line(&["runs already in this network namespace"]);
    // It would leave the other one without a daemon.
    let one = ["attach", "--iface", "eth0", "--port", "8000", "--take-over"];
    run(netns, &one)
        .unwrap()
        .assert_one_line(&["is `xdptun run`", "`xdptun reload`"]);
    run(netns, &["detach", "--iface", "eth0"])
        .unwrap()
        .assert_one_line(&["`xdptun run`", "`xdptun reload`"]);
    // It would not leave for this one, would leave another without a daemon, and
    // would leave for one that then cannot begin.
    let eth1 = "[interface.eth1]\nports = [7]\n";
    let secret =
        "[interface.eth0]\nports = [8000]\n[interface.eth1]\nports = [7]\nsecret = \"/none\"\n";
    for (text, complaint) in [
        (
            "[interface.eth2]\nports = [7]\n",
            "has none of these interfaces",
        ),
        (eth1, "also keeps eth0"),
        (secret, "interface eth1: cannot read the secret /none"),
    ] {
        let other = File::new(text);
        finish(&mut other.command(netns, &["--take-over"]))
            .unwrap()
            .assert_one_line(&[complaint]);
    }
    assert!(old.process().is_running().unwrap());
    assert_eq!(attached(netns), ["eth0", "eth1"]);

    let mut command = file.command(netns, &["--take-over"]);
    let new = Attached::by(netns, Host::DEV, &mut command).unwrap();
    reloads(netns, &["no interface changed"]);
    new.process().wait_for_line("ready: eth1 ", LIMIT).unwrap();
    wait::until(LIMIT, "the old one to end", || {
        !old.process().is_running().unwrap()
    })
    .unwrap();
    udp::exchange(&socket, echo.address(), b"after", LIMIT).unwrap();
    // It takes over what there was when it began, and nothing later.
    file.write("[interface.eth0]\nports = [8000]\n");
    reloads(netns, &["eth1: detached"]);
    let other = Attached::start(netns, OTHER, &["--port", "7"]).unwrap();
    file.write("[interface.eth0]\nports = [8000]\n[interface.eth1]\nports = [7]\n");
    reload(netns).assert_one_line(&["nothing was changed: eth1: xdptun is already attached"]);
    other.stop().unwrap();
    let stats = WireStats::of(PORT, &wire.stop().unwrap());
    assert_eq!(
        (stats.udp_datagrams, stats.syn, stats.fin),
        (0, 0, 0),
        "{stats:#?}"
    );
    new.stop().unwrap();
    assert_eq!(Traces::of(&net.a).unwrap(), before);
    drop(old);
}

#[test]
fn check_tells_what_is_wrong_and_where() {
    let net = Direct::new().unwrap();
    let netns = &net.a.netns;
    let before = Traces::of(&net.a).unwrap();
    let file = File::new(
        "[interface.eth0]\nports = [8000, \"1-9\"]\npeers = [\"10.0.0.1\", \"peer.test\"]\n[interface.wan]\nports = [7]\nidle-timeout = 20\n",
    );
    let check = || run(netns, &["check", file.name()]).unwrap();
    let outcome = check();
    assert_eq!(outcome.code, Some(0), "{outcome:#?}");
    let expected = [
        "eth0: ports 8000, 1-9; only for 10.0.0.1/32, peer.test".to_owned(),
        "wan: ports 7 (no such interface now; `xdptun run` waits for it)".to_owned(),
        format!("ok: {}, 2 interfaces", file.name()),
    ];
    assert_eq!(outcome.stdout, expected, "{outcome:#?}");
    let as_run_takes_it = run(netns, &["check", "--config", file.name()]).unwrap();
    assert_eq!(as_run_takes_it.stdout, expected, "{as_run_takes_it:#?}");
    let [warning] = &outcome.stderr[..] else {
        panic!("{outcome:#?}");
    };
    assert!(
        warning.contains("wan: xdptun closes a flow after 20 s"),
        "{warning}"
    );
    file.write("[interface]\neth0 = 3\n");
    let told = check().stderr.join("\n");
    assert!(
        told.contains("expected a table like [interface.eth0]"),
        "{told}"
    );
    file.write("[interface.eth0]\nports = [8000]\ningress = \"fast\"\n");
    let outcome = check();
    assert_eq!(outcome.code, Some(1), "{outcome:#?}");
    let expected = [
        format!(
            "xdptun: {}: line 3, column 11: `fast` is not possible; expected one of `auto`, `xdp`, \
             `xdp-generic`, `tc`",
            file.name()
        ),
        "3 | ingress = \"fast\"".to_owned(),
        "  |           ^^^^^^".to_owned(),
    ];
    assert_eq!(outcome.stderr, expected, "{outcome:#?}");
    file.write("[interface.eth0]\nprots = [8000]\n[interface.eth1]\nports = [0]\n");
    let told = check().stderr;
    assert!(told[0].ends_with(": 2 mistakes"), "{told:#?}");
    assert!(told[1].ends_with("did you mean `ports`?"), "{told:#?}");
    assert!(told[4].starts_with("line 4, column 10: "), "{told:#?}");
    run(netns, &["check", "/no/such/file"])
        .unwrap()
        .assert_one_line(&["cannot read /no/such/file", "`xdptun check --sample`"]);
    let sample = run(netns, &["check", "--sample"]).unwrap();
    file.write(&sample.stdout.join("\n"));
    assert_eq!(check().code, Some(0));
    assert_eq!(Traces::of(&net.a).unwrap(), before);
}

/// An address that is no peer any more is left alone; a new peer is carried.
#[test]
fn names_of_peers_are_looked_up_again() {
    let net = Direct::new().unwrap();
    let scratch = Scratch::new().unwrap();
    let hosts = scratch.path().join("hosts");
    let name = |address: &str| fs::write(&hosts, format!("{address} peer.test\n")).unwrap();
    let file = File::new(
        "resolve-interval = 1\n[interface.eth0]\nports = [8000]\npeers = [\"peer.test\", \"192.0.2.1\"]\n",
    );
    let peer = net.b.address(Family::V4).to_string();
    fs::write(&hosts, "").unwrap();
    let mut command = instead_of("/etc/hosts", &hosts, &file.command(&net.a.netns, &[]));
    net.a.netns.place(&mut command);
    let service = Attached::by(&net.a.netns, Host::DEV, &mut command).unwrap();
    // Until the name is found, datagrams to every address are carried.
    let _peer = mode::TC.attach(&net.b, &["--port", "8000"]).unwrap();
    let echo = udp::Server::echo(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
    let socket = udp::bind(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
    let wire = Wire::watch(&[&net.a]).unwrap();
    udp::exchange(&socket, echo.address(), b"before the name", LIMIT).unwrap();
    name(&peer);
    let peers = || {
        let status = status::interface(&net.a.netns, Host::DEV).unwrap();
        let peers = status["peers"].as_array().unwrap().clone();
        let mut peers: Vec<_> = peers
            .iter()
            .map(|p| p.as_str().unwrap().to_owned())
            .collect();
        peers.sort();
        peers
    };
    let known = || peers() == [format!("{peer}/32"), "192.0.2.1/32".to_owned()];
    wait::until(LIMIT, "the name", known).unwrap();
    udp::exchange(&socket, echo.address(), b"by name", LIMIT).unwrap();
    let stats = WireStats::of(PORT, &wire.stop().unwrap());
    assert_eq!((stats.udp_datagrams, stats.syn), (0, 1), "{stats:#?}");

    name("192.0.2.9");
    wait::until(LIMIT, "the new address", || {
        peers() == ["192.0.2.1/32", "192.0.2.9/32"]
    })
    .unwrap();
    // A name that is not found any more keeps its address.
    fs::write(&hosts, "").unwrap();
    let told = || {
        let log = service.process().stderr();
        let mut lines = log
            .iter()
            .filter(|line| line.contains("peer peer.test: cannot"));
        lines.any(|line| line.ends_with("; its last addresses stay"))
    };
    wait::until(Duration::from_secs(20), "the failure to be told", told).unwrap();
    assert_eq!(peers(), ["192.0.2.1/32", "192.0.2.9/32"]);
    // Nor does it lose it when the file is read again.
    let text = file.read();
    file.write(&text.replace("[8000]", "[8000, 8001]"));
    reloads(&net.a.netns, &["eth0: changed"]);
    assert_eq!(peers(), ["192.0.2.1/32", "192.0.2.9/32"]);
    assert_eq!(ports(&net.a.netns, Host::DEV), "8000-8001");
    name(&peer);
    wait::until(LIMIT, "the address again", known).unwrap();
    udp::exchange(&socket, echo.address(), b"by name", LIMIT).unwrap();

    // Another name is another peer.
    fs::write(&hosts, format!("{peer} peer.test\n192.0.2.3 other.test\n")).unwrap();
    let text = file.read();
    file.write(&text.replace("peer.test", "other.test"));
    reloads(&net.a.netns, &["eth0: changed"]);
    assert_eq!(peers(), ["192.0.2.1/32", "192.0.2.3/32"]);
    // The old address of the name is not remembered: until the name is found, every
    // address is a peer again.
    fs::write(&hosts, "").unwrap();
    file.write(&file.read().replace("other.test", "peer.test"));
    reloads(&net.a.netns, &["eth0: changed"]);
    assert_eq!(peers(), [""; 0]);
    name(&peer);
    wait::until(LIMIT, "the address once more", known).unwrap();
    fs::write(&hosts, "192.0.2.3 other.test\n").unwrap();
    file.write(&file.read().replace("peer.test", "other.test"));
    reloads(&net.a.netns, &["eth0: changed"]);
    let many: Vec<String> = (0..1025)
        .map(|n| format!("\"10.{}.{}.0/24\"", n / 256, n % 256))
        .collect();
    file.write(&format!(
        "[interface.eth0]\nports = [9]\npeers = [{}]\n",
        many.join(", ")
    ));
    let refused = reload(&net.a.netns);
    refused.assert_first_line(&["nothing was changed", "line 3", "1025 peers are too many"]);
    assert_eq!(peers(), ["192.0.2.1/32", "192.0.2.3/32"]);
    assert_eq!(ports(&net.a.netns, Host::DEV), "8000-8001");
    service.stop().unwrap();
}

/// A signal to read the file again that comes too early is not lost, and ends nothing.
#[test]
fn a_reload_while_it_starts_comes_after() {
    let net = Direct::new().unwrap();
    let netns = &net.a.netns;
    let scratch = Scratch::new().unwrap();
    let resolver = scratch.path().join("resolv.conf");
    // It listens, and does not answer.
    let silent = udp::bind(&net.b.netns, net.b.socket(Family::V4, 53)).unwrap();
    let server = net.b.address(Family::V4);
    fs::write(&resolver, format!("nameserver {server}\n")).unwrap();
    let file = File::new("[interface.eth0]\nports = [8000]\npeers = [\"slow.test\"]\n");
    let mut command = instead_of("/etc/resolv.conf", &resolver, &file.command(netns, &[]));
    netns.place(&mut command);
    let service = thread::scope(|scope| {
        let starting = scope.spawn(|| Attached::by(netns, Host::DEV, &mut command).unwrap());
        udp::receive(&silent, LIMIT).unwrap();
        file.write("[interface.eth0]\nports = [9000]\n");
        let running = processes(netns);
        assert_eq!(running.len(), 1);
        kill(running[0], Signal::SIGHUP).unwrap();
        starting.join().unwrap()
    });
    wait::until(LIMIT, "the reload", || ports(netns, Host::DEV) == "9000").unwrap();
    service.stop().unwrap();
}

/// The processes of xdptun in a namespace.
fn processes(netns: &Netns) -> Vec<Pid> {
    let pids = netns.run("ip", ["netns", "pids", netns.name()]).unwrap();
    let name = |pid: &str| fs::read_to_string(format!("/proc/{pid}/comm"));
    let pids = pids.lines().map(str::trim);
    pids.filter(|pid| name(pid).is_ok_and(|name| name.trim() == "xdptun"))
        .map(|pid| Pid::from_raw(pid.parse().unwrap()))
        .collect()
}

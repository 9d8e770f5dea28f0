//! Refused commands and their error messages; the output of `status`.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use aya::Ebpf;
use aya::programs::{Xdp, XdpMode};
use nix::sys::signal::Signal;
use serde_json::Value;
use xdptun_lab::{Direct, Family, Host, udp, wait, xdptun as product};
use xdptun_lab::{scratch::Scratch, secret};
use xdptun_test_net::cli::{ATTACH, Outcome, finish, run};
use xdptun_test_net::doctor;
use xdptun_test_net::traces::{Traces, pins};
use xdptun_test_net::{LIMIT, PORT, kernel, mode};

fn attach(host: &Host, args: &[&str]) -> Outcome {
    let mut all = vec!["attach", "--iface", Host::DEV];
    all.extend(args);
    run(&host.netns, &all).unwrap()
}

#[test]
fn bad_arguments_are_refused_by_name() {
    let net = Direct::new().unwrap();
    let before = Traces::of(&net.a).unwrap();
    for port in [
        "0",
        "65536",
        "http",
        "",
        "-1",
        "8000-",
        "9-8",
        "0-5",
        "8000-65536",
        "80 81",
    ] {
        let argument = format!("--port={port}");
        let outcome = attach(&net.a, &[&argument]);
        outcome.assert_first_line(&["error:", "--port", port]);
        assert_eq!(outcome.code, Some(2), "{outcome:#?}");
    }
    // One good port does not excuse a bad one.
    attach(&net.a, &["--port", "8000", "--port", "0"])
        .assert_first_line(&["error:", "--port", "0"]);
    attach(&net.a, &["--port", "8000,65536"]).assert_first_line(&["--port", "65536"]);
    for peer in ["10.0.0.0/33", "ho_st", "10.0.0", "fd00::/129"] {
        attach(&net.a, &["--port", "8000", "--peer", peer]).assert_first_line(&["--peer", peer]);
    }
    let unknown = "no-such-host.invalid";
    attach(&net.a, &["--port", "8000", "--peer", unknown]).assert_one_line(&[
        "peer",
        unknown,
        "cannot look up the name",
    ]);
    attach(&net.a, &["--port", "8000", "--ingress", "magic"])
        .assert_first_line(&["--ingress", "magic"]);
    attach(&net.a, &[]).assert_first_line(&["error:"]);
    let scratch = Scratch::new().unwrap();
    let secret = |name, content: &str| secret::write(scratch.path(), name, content).unwrap();
    let missing = scratch.path().join("none").to_str().unwrap().to_owned();
    for (file, complaint) in [
        (missing, "No such file"),
        (
            secret("short", "fifteen bytes.."),
            "15 bytes can be guessed",
        ),
        (secret("long", &"x".repeat(5000)), "more than 4096 bytes"),
    ] {
        let refused = attach(&net.a, &["--port", "8000", "--secret", &file]);
        refused.assert_one_line(&[&file, complaint]);
    }
    let files = ["a", "b", "c", "d", "e"].map(|name| secret(name, &name.repeat(16)));
    let same = secret("same", &"a".repeat(16));
    for (files, complaint) in [
        (
            vec![&files[0], &files[0]],
            "the same secret twice; name it once",
        ),
        (
            files.iter().collect(),
            "5 secrets are too many, 4 are allowed at once",
        ),
        (
            vec![&files[0], &same],
            "hold the same secret; leave one of them out",
        ),
    ] {
        let secrets = files.into_iter().flat_map(|file| ["--secret", file]);
        let args: Vec<&str> = ["--port", "8000"].into_iter().chain(secrets).collect();
        attach(&net.a, &args).assert_one_line(&[complaint]);
    }
    assert_eq!(Traces::of(&net.a).unwrap(), before);
}

/// xdptun takes such a port away from this host's own TCP.
#[test]
fn a_tcp_server_on_an_owned_port_is_told() {
    let net = Direct::new().unwrap();
    let server = net.a.socket(Family::V6, PORT);
    let server = net.a.netns.enter(|| TcpListener::bind(server)).unwrap();
    let summary = |args: &[&str]| {
        let args = [&["--port", "7999-8001"], args].concat();
        let attached = mode::TC.attach(&net.a, &args).unwrap();
        let status = run(&net.a.netns, &["status"]).unwrap().stdout.join("\n");
        let summary = attached.summary().join("\n");
        let warnings = attached.process().stderr();
        attached.stop().unwrap();
        (summary, status, warnings)
    };
    let told = "the TCP server on port 8000 cannot be reached here any more";
    assert!(summary(&[]).0.contains(told));
    let scratch = Scratch::new().unwrap();
    let secret = secret::write(scratch.path(), "secret", "correct horse battery").unwrap();
    let (with_secret, status, warnings) = summary(&["--secret", &secret]);
    assert!(warnings.is_empty(), "{warnings:?}");
    assert!(!with_secret.contains(told), "{with_secret}");
    assert!(
        with_secret.contains("answers only callers that know the secret"),
        "{with_secret}"
    );
    assert!(status.contains("secret callers must know it"), "{status}");
    drop(server);
    assert!(!summary(&[]).0.contains(told));
    fs::set_permissions(&secret, Permissions::from_mode(0o640)).unwrap();
    let (_, _, warnings) = summary(&["--secret", &secret]);
    assert!(warnings.join("\n").contains("chmod 600"), "{warnings:?}");
}

/// A port that the kernel may give away is told, with the command that reserves it;
/// what was reserved before stays so.
#[test]
fn an_owned_port_that_is_not_reserved_is_told() {
    const TOLD: &str = "to a UDP socket that asks for any port";
    let net = Direct::new().unwrap();
    let sysctl = |setting: &str| net.a.netns.run("sysctl", ["-w", setting]).unwrap();
    sysctl("net.ipv4.ip_local_port_range=40000 50000");
    sysctl("net.ipv4.ip_local_reserved_ports=8080,40005-40006");
    let told = |port: &str, more: &[&str]| {
        let args = [&["--port", port], more].concat();
        let attached = mode::TC.attach(&net.a, &args).unwrap();
        let summary = attached.summary();
        attached.stop().unwrap();
        summary.into_iter().find(|line| line.contains(TOLD))
    };
    assert_eq!(told("39999,40005,50001", &[]), None);
    assert_eq!(
        told("39999-40001,40004-40006,50000", &[]).unwrap(),
        "eth0: the kernel may give port 40000-40001, 40004, 50000 to a UDP socket that asks for \
         any port; its datagrams would leave as TCP; `sysctl -w \
         net.ipv4.ip_local_reserved_ports=8080,40000-40001,40004-40006,50000` prevents it"
    );
    let scratch = Scratch::new().unwrap();
    let secret = secret::write(scratch.path(), "secret", "correct horse battery").unwrap();
    assert!(told("40000", &["--secret", &secret]).is_some());
    sysctl("net.ipv4.ip_local_reserved_ports=40000");
    assert_eq!(told("40000", &[]), None);
}

#[test]
fn an_interface_that_is_not_there_is_named() {
    let net = Direct::new().unwrap();
    let netns = &net.a.netns;
    let before = Traces::of(&net.a).unwrap();
    for name in ["eth9", "a-name-that-is-too-long-for-any-interface"] {
        let refused = run(netns, &["attach", "--iface", name, "--port", "8000"]).unwrap();
        refused.assert_one_line(&[name, "no such interface"]);
        let refused = run(netns, &["detach", "--iface", name]).unwrap();
        refused.assert_one_line(&[name, "no such interface"]);
    }
    let idle = run(netns, &["detach", "--iface", Host::DEV]).unwrap();
    idle.assert_one_line(&[Host::DEV, "nothing is attached"]);
    assert_eq!(Traces::of(&net.a).unwrap(), before);
}

/// The interface may be that by which the peer is reached.
#[test]
fn the_way_to_a_peer_names_the_interface() {
    let net = Direct::new().unwrap();
    let netns = &net.a.netns;
    let attach_to = |peer: &str| ["attach", "--port", "8000", "--to", peer].map(str::to_owned);
    for family in Family::BOTH {
        let peer = net.b.socket(family, 0).ip().to_string();
        let args = attach_to(&peer);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut process = product::spawn(netns, &args).unwrap();
        process.wait_for_line("ready: eth0 ", LIMIT).unwrap();
        process.signal(Signal::SIGTERM).unwrap();
        assert!(process.wait(LIMIT).unwrap().success());
    }
    let own = net.a.socket(Family::V4, 0).ip().to_string();
    for (peer, why) in [
        (own.as_str(), "this host itself"),
        ("203.0.113.7", "no route leads there"),
        ("no.such.host.invalid", "cannot find its address"),
    ] {
        let args = attach_to(peer);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        run(netns, &args).unwrap().assert_one_line(&[peer, why]);
    }
    let both = [
        "attach",
        "--port",
        "8000",
        "--to",
        &own,
        "--iface",
        Host::DEV,
    ];
    run(netns, &both)
        .unwrap()
        .assert_first_line(&["--to", "cannot be used with"]);
}

#[test]
fn a_second_attach_is_refused_and_the_first_goes_on() {
    for first in [mode::TC, mode::XDP, mode::TC_CLSACT] {
        let net = Direct::new().unwrap();
        let _attached = first.attach_both(&net).unwrap();
        let before = Traces::of(&net.a).unwrap();
        for args in [
            &["--port", "8000"][..],
            &["--port", "9000", "--ingress", "xdp-generic"],
        ] {
            attach(&net.a, args).assert_one_line(&[Host::DEV, "already attached"]);
        }
        assert_eq!(Traces::of(&net.a).unwrap(), before);
        let echo = udp::Server::echo(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
        let socket = udp::bind(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
        udp::exchange(&socket, echo.address(), b"still attached", LIMIT).unwrap();
    }
}

/// `detach` removes everything that a killed process left.
#[test]
fn what_a_killed_process_left_can_be_detached() {
    for first in [mode::TC, mode::XDP, mode::TC_CLSACT] {
        let net = Direct::new().unwrap();
        let before = Traces::of(&net.a).unwrap();
        let attached = first.attach(&net.a, &["--port", "8000"]).unwrap();
        let remains = attached.kill().unwrap();
        assert_ne!(Traces::of(&net.a).unwrap(), before);
        let detached = run(&net.a.netns, &["detach", "--iface", Host::DEV]).unwrap();
        assert_eq!(detached.code, Some(0), "{detached:#?}");
        assert_eq!(Traces::of(&net.a).unwrap(), before, "{first:?}");
        let again = first.attach(&net.a, &["--port", "8000"]).unwrap();
        again.stop().unwrap();
        assert_eq!(Traces::of(&net.a).unwrap(), before, "{first:?}");
        drop(remains);
    }
}

/// Holds the XDP hook of the interface with a program that passes everything,
/// until dropped.
fn occupy_xdp(host: &Host, mode: XdpMode) -> Ebpf {
    let attach = || {
        let mut ebpf = Ebpf::load(&xdptun_object::TUNNEL.bytes()).unwrap();
        let program = ebpf.program_mut("xdptun_xdp").unwrap();
        let program: &mut Xdp = program.try_into().unwrap();
        program.load().unwrap();
        program.attach(Host::DEV, mode).unwrap();
        ebpf
    };
    host.netns.enter(attach).unwrap()
}

#[test]
fn an_interface_with_another_xdp_program_is_refused() {
    for occupant in [XdpMode::Driver, XdpMode::Skb] {
        let net = Direct::new().unwrap();
        let ebpf = occupy_xdp(&net.a, occupant);
        let before = Traces::of(&net.a).unwrap();
        assert!(before.details.contains("prog/xdp"), "{before:#?}");
        for ingress in ["xdp", "xdp-generic"] {
            for tc in kernel::tc_hooks() {
                let args = ["--port", "8000", "--ingress", ingress, "--tc", tc];
                let refused = attach(&net.a, &args);
                refused.assert_one_line(&[Host::DEV, "another XDP program"]);
                assert_eq!(
                    Traces::of(&net.a).unwrap(),
                    before,
                    "{occupant:?} {ingress} {tc}"
                );
            }
        }
        // tc has no quarrel with it, and leaves it there.
        let args = ["--port", "8000", "--ingress", "tc"];
        let attached = product_attach(&net.a, &args);
        attached.stop().unwrap();
        assert_eq!(Traces::of(&net.a).unwrap(), before, "{occupant:?}");
        drop(ebpf);
    }
}

fn product_attach(host: &Host, args: &[&str]) -> xdptun_lab::Attached {
    xdptun_lab::Attached::start(&host.netns, Host::DEV, args).unwrap()
}

/// A copy of the program that everybody may run: the build folder may be closed
/// to other users.
fn public_binary(scratch: &Scratch) -> PathBuf {
    let copy = scratch.path().join("xdptun");
    fs::copy(product::binary().unwrap(), &copy).unwrap();
    for path in [scratch.path(), &copy] {
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    copy
}

#[test]
fn without_privileges_it_says_what_is_missing() {
    let scratch = Scratch::new().unwrap();
    let binary = public_binary(&scratch);
    let net = Direct::new().unwrap();
    let before = Traces::of(&net.a).unwrap();
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let bare_root = [
        "--bounding-set=-all",
        "--inh-caps=-all",
        "--ambient-caps=-all",
    ];
    let file = scratch.path().join("config.toml");
    fs::write(&file, "[interface.eth0]\nports = [8000]\n").unwrap();
    let file = file.to_str().unwrap();
    for identity in [nobody, bare_root] {
        let run = |args: &[&str]| {
            let mut command = net.a.netns.command("setpriv");
            finish(command.args(identity).arg(&binary).args(args)).unwrap()
        };
        let refused = run(&["attach", "--iface", Host::DEV, "--port", "8000"]);
        refused.assert_one_line(&["CAP_NET_ADMIN", "CAP_BPF", "root"]);
        run(&["run", "--config", file]).assert_one_line(&["CAP_NET_ADMIN", "root"]);
        run(&["detach", "--iface", Host::DEV]).assert_one_line(&["CAP_NET_ADMIN", "root"]);
    }
    assert_eq!(Traces::of(&net.a).unwrap(), before);

    // Where something is attached, what is pinned is root's.
    let _attached = mode::TC.attach(&net.a, &["--port", "8000"]).unwrap();
    let mut status = net.a.netns.command("setpriv");
    let refused = finish(status.args(nobody).arg(&binary).args(["status", "--json"])).unwrap();
    refused.assert_one_line(&["root"]);
}

/// Of root's powers those stay that it takes to go on.
#[test]
fn what_is_not_needed_any_more_is_given_up() {
    // CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_IPC_LOCK; CAP_NET_ADMIN, CAP_NET_RAW,
    // CAP_PERFMON, CAP_BPF.
    const KEPT: u64 = 1 | 1 << 1 | 1 << 14 | 1 << 12 | 1 << 13 | 1 << 38 | 1 << 39;
    let net = Direct::new().unwrap();
    let attached = mode::TC.attach(&net.a, &["--port", "8000"]).unwrap();
    let path = format!("/proc/{}/status", attached.process().pid());
    let given_up = || {
        let status = fs::read_to_string(&path).unwrap();
        let has = |line: &str| status.lines().any(|found| found == line);
        let sets = ["CapPrm", "CapEff"].map(|set| format!("{set}:\t{KEPT:016x}"));
        sets.iter().all(|set| has(set)) && has("NoNewPrivs:\t1")
    };
    wait::until(LIMIT, "the rest to be given up", given_up).unwrap();
    attached.stop().unwrap();
    assert_eq!(pins(&net.a.netns).unwrap(), [""; 0]);
}

#[test]
fn status_shows_what_is_attached() {
    let net = Direct::new().unwrap();
    let status = || product::status(&net.a.netns).unwrap();
    assert_eq!(status(), serde_json::json!({"schema": 1, "interfaces": []}));
    let text = run(&net.a.netns, &["status"]).unwrap();
    assert_eq!(
        text.stdout,
        ["nothing is attached in this network namespace"]
    );

    let args = [
        "--port",
        "8000",
        "--peer",
        "10.0.0.0/24",
        "--peer",
        "fd00::2",
    ];
    let attached = mode::TC.attach(&net.a, &args).unwrap();
    let _far = mode::TC.attach(&net.b, &["--port", "8000"]).unwrap();
    let echo = udp::Server::echo(&net.b.netns, net.b.socket(Family::V6, PORT)).unwrap();
    let socket = udp::bind(&net.a.netns, net.a.socket(Family::V6, 0)).unwrap();
    udp::exchange(&socket, echo.address(), &[7; 100], LIMIT).unwrap();

    let shown = status();
    let interfaces = shown["interfaces"].as_array().unwrap();
    assert_eq!(interfaces.len(), 1, "{shown:#}");
    let interface = &interfaces[0];
    assert_eq!(interface["name"], "eth0");
    assert_eq!(interface["ports"], serde_json::json!(["8000"]));
    assert_eq!(
        interface["peers"],
        serde_json::json!(["10.0.0.0/24", "fd00::2/128"])
    );
    assert_eq!(interface["ingress"], "tc");
    let counters = interface["counters"].as_object().unwrap();
    assert!(counters.values().all(Value::is_u64), "{shown:#}");
    assert_eq!(counters["tx_disguised"], 1, "{shown:#}");
    let flow = &interface["flows"][0];
    assert_eq!(flow["local"], socket.local_addr().unwrap().to_string());
    assert_eq!(flow["remote"], "[fd00::2]:8000");
    assert_eq!(flow["state"], "established");
    assert_eq!(interface["flow_states"]["established"], 1, "{shown:#}");
    assert_eq!(interface["flow_states"]["closed"], 0, "{shown:#}");
    for (name, value) in [
        ("tx_packets", 1),
        ("tx_bytes", 100),
        ("rx_packets", 1),
        ("rx_bytes", 100),
    ] {
        assert_eq!(flow[name], value, "{name}: {shown:#}");
    }
    for name in ["age_s", "idle_s"] {
        let seconds = flow[name].as_f64().unwrap();
        assert!((0.0..60.0).contains(&seconds), "{name}: {shown:#}");
    }
    let daemon = interface["daemon"].as_i64().unwrap();
    assert_eq!(daemon, i64::from(attached.process().pid().as_raw()));

    let text = run(&net.a.netns, &["status"]).unwrap().stdout.join("\n");
    for word in [
        "eth0",
        "8000",
        "established",
        "flows  1 established",
        "[fd00::2]:8000",
        "tx_disguised",
    ] {
        assert!(text.contains(word), "no {word} in\n{text}");
    }
    let of_one = ["status", "--iface", "eth0", "--no-flows"];
    let text = run(&net.a.netns, &of_one).unwrap().stdout.join("\n");
    assert!(text.contains("tx_disguised"), "{text}");
    assert!(!text.contains("[fd00::2]:8000"), "{text}");
    run(&net.a.netns, &["status", "--iface", "lo"])
        .unwrap()
        .assert_one_line(&["lo: nothing is attached"]);
    // `localhost` is a name that every host knows, and no peer has.
    for (peer, shows) in [
        ("fd00::2", true),
        ("10.0.0.0/24", false),
        ("localhost", false),
    ] {
        let text = run(&net.a.netns, &["status", "--peer", peer]).unwrap();
        let text = text.stdout.join("\n");
        assert_eq!(text.contains("[fd00::2]:8000"), shows, "{peer}: {text}");
        assert!(text.contains("flows  1 established"), "{peer}: {text}");
    }
    attached.stop().unwrap();
    assert_eq!(status(), serde_json::json!({"schema": 1, "interfaces": []}));
}

/// The words of the issue: what it attached and where, and what WireGuard needs.
#[test]
fn attach_says_what_it_did_and_logs_flows() {
    let chosen = if kernel::has_tcx() { "TCX" } else { "clsact" };
    for (mode, hook, ingress) in [
        (mode::TC, chosen, "tc"),
        (mode::XDP_CLSACT, "clsact", "xdp"),
    ] {
        let net = Direct::new().unwrap();
        let [near, far] = mode.attach_both(&net).unwrap();
        let summary = near.summary().join("\n");
        for word in [
            "eth0",
            "egress",
            "ingress",
            hook,
            ingress,
            "MTU",
            "WireGuard",
            "1428",
            "1408",
        ] {
            assert!(summary.contains(word), "no {word} in\n{summary}");
        }
        let echo = udp::Server::echo(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
        let socket = udp::bind(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
        udp::exchange(&socket, echo.address(), b"hello", LIMIT).unwrap();
        let logged = |process: &xdptun_lab::Process, words: [&str; 2]| {
            let has = |line: &String| words.iter().all(|word| line.contains(word));
            wait::until(LIMIT, &format!("the log to say {words:?}"), || {
                process.stderr().iter().any(has)
            })
            .unwrap();
        };
        let end = socket.local_addr().unwrap().to_string();
        logged(near.process(), [&end, "up"]);
        logged(far.process(), [&end, "up"]);
        near.stop().unwrap();
        logged(far.process(), [&end, "down"]);
    }
}

/// `detach` ends a running daemon too, as SIGINT would.
#[test]
fn detach_stops_a_running_daemon() {
    let net = Direct::new().unwrap();
    let before = Traces::of(&net.a).unwrap();
    let mut process = product::spawn(&net.a.netns, &ATTACH).unwrap();
    process.wait_for_line("ready:", LIMIT).unwrap();
    let detached = run(&net.a.netns, &["detach", "--iface", Host::DEV]).unwrap();
    assert_eq!(detached.code, Some(0), "{detached:#?}");
    assert!(process.wait(LIMIT).unwrap().success());
    assert_eq!(Traces::of(&net.a).unwrap(), before);
    assert_eq!(pins(&net.a.netns).unwrap(), [""; 0]);
}

/// Every counter that `status` knows is explained, and a misspelt one is not lost.
/// As a shell asks when its user presses Tab.
#[test]
fn bash_completes_with_the_script_that_is_printed() {
    let net = Direct::new().unwrap();
    let line = "source <(xdptun completions bash)
        COMP_WORDS=(xdptun attach --iface et) COMP_CWORD=3 COMP_TYPE=9
        _clap_complete_xdptun xdptun et 2>/dev/null
        echo \"${COMPREPLY[@]}\"";
    let mut bash = doctor::shell(&net.a.netns, "exec bash -c \"$LINE\"");
    let completed = finish(bash.env("LINE", line)).unwrap();
    assert_eq!(completed.stdout, ["eth0"], "{completed:#?}");
}

#[test]
fn every_counter_is_explained() {
    let net = Direct::new().unwrap();
    let attached = mode::TC.attach(&net.a, &["--port", "8000"]).unwrap();
    let netns = &net.a.netns;
    let status = product::status(netns).unwrap();
    let counters = status["interfaces"][0]["counters"].as_object().unwrap();
    assert!(counters.contains_key("tx_lost_in_queue"));
    let all = run(netns, &["explain"]).unwrap().stdout;
    for name in counters.keys() {
        let told = run(netns, &["explain", name]).unwrap();
        assert_eq!(told.code, Some(0), "{told:#?}");
        assert!(
            told.stdout[0].starts_with(&format!("{name}: ")),
            "{told:#?}"
        );
        assert!(all.contains(&told.stdout[0]), "{name}");
    }
    run(netns, &["explain", "no_flow"])
        .unwrap()
        .assert_one_line(&["no_flow", "rx_drop_no_flow"]);
    attached.stop().unwrap();
}

//! The findings of `doctor` on misconfigured hosts, and that the command it prints
//! fixes each.

use std::fs;
use std::net::TcpListener;

use aya::Ebpf;
use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, SchedClassifier, TcAttachType, Xdp, XdpMode, loaded_links};
use nix::sys::signal::Signal;
use serde_json::Value;
use xdptun_lab::{Direct, Family, Host, Process, udp, wait, xdptun as product};
use xdptun_lab::{scratch::Scratch, secret};
use xdptun_test_net::cli::{finish, run};
use xdptun_test_net::doctor::{self, mend_of, only, parsed, shell, succeed};
use xdptun_test_net::traces::Traces;
use xdptun_test_net::{LIMIT, PORT, kernel, mode, status};

/// The arguments of most of these tests.
const LOOK: [&str; 5] = ["doctor", "--iface", Host::DEV, "--port", "8000"];

/// All findings, after a line that is run in a mount namespace of its own.
fn findings_after(host: &Host, line: &str) -> Vec<Value> {
    doctor::findings_after(&host.netns, line, &LOOK)
}

fn findings(host: &Host) -> Vec<Value> {
    doctor::findings(&host.netns, &LOOK)
}

fn assert_ok(host: &Host, check: &str) {
    let all = findings(host);
    let found = only(&all, check);
    assert_eq!(found["level"], "ok", "{found:#}");
}

#[test]
fn a_healthy_host_is_fine_and_stays_as_it_is() {
    let net = Direct::new().unwrap();
    let before = Traces::of(&net.a).unwrap();
    let told = run(&net.a.netns, &LOOK).unwrap();
    assert_eq!(told.code, Some(0), "{told:#?}");
    let [lines @ .., beyond, count] = &told.stdout[..] else {
        panic!("{told:#?}");
    };
    assert_eq!(*count, format!("{} ok, 0 warn, 0 fail", lines.len()));
    assert!(beyond.starts_with("not looked at: firewalls"), "{beyond}");
    assert!(
        lines.iter().all(|line| line.starts_with("ok  ")),
        "{told:#?}"
    );
    let all = findings(&net.a);
    assert_eq!(all.len(), lines.len());
    for (finding, line) in all.iter().zip(lines) {
        let object = finding.as_object().unwrap();
        let keys: Vec<&String> = object.keys().collect();
        assert_eq!(keys.len(), 4, "{finding:#}");
        assert_eq!(finding["mend"], Value::Null);
        for key in ["check", "what", "level"] {
            assert!(line.contains(finding[key].as_str().unwrap()), "{line}");
        }
    }
    assert_eq!(Traces::of(&net.a).unwrap(), before);

    let _attached = mode::TC.attach_both(&net).unwrap();
    let before = Traces::of(&net.a).unwrap();
    // The interface is one because xdptun is attached to it.
    let told = run(&net.a.netns, &["doctor"]).unwrap();
    assert_eq!(told.code, Some(0), "{told:#?}");
    assert!(
        told.stdout.iter().all(|line| !line.starts_with("warn")),
        "{told:#?}"
    );
    for check in ["daemon", "hooks"] {
        assert_ok(&net.a, check);
    }
    assert_eq!(Traces::of(&net.a).unwrap(), before);
}

/// Everything that takes one command to break and one to mend.
#[test]
fn what_it_prints_mends_what_it_found() {
    for (check, breaking, level, words) in [
        (
            "interface",
            "ip link set eth0 down",
            "fail",
            &["eth0", "down"][..],
        ),
        (
            "mtu",
            "ip link set mtu 1291 dev eth0",
            "warn",
            &["1291", "1232"],
        ),
        (
            "rp-filter",
            "ip tuntap add other mode tun && ip link set other up && \
             ip route add default dev other && sysctl -qw net.ipv4.conf.eth0.rp_filter=1",
            "warn",
            &["strict", "elsewhere"],
        ),
        (
            "conntrack",
            "sysctl -qw net.netfilter.nf_conntrack_udp_timeout_stream=25",
            "warn",
            &["forgotten after 25 s", "WireGuard"],
        ),
        (
            "conntrack",
            "sysctl -qw net.ipv4.ip_forward=1 \
             net.netfilter.nf_conntrack_tcp_timeout_established=20",
            "warn",
            &["forwards", "forgotten after 20 s"],
        ),
        (
            "conntrack",
            "sysctl -qw net.ipv6.conf.all.forwarding=1 net.netfilter.nf_conntrack_tcp_loose=0",
            "warn",
            &["forwards", "not taken up again"],
        ),
    ] {
        let net = Direct::new().unwrap();
        assert_ok(&net.a, check);
        succeed(&net.a.netns, breaking);
        let mend = mend_of(&findings(&net.a), check, level, words);
        succeed(&net.a.netns, &mend);
        assert_ok(&net.a, check);
    }
}

#[test]
fn an_interface_that_is_not_there_fails() {
    let net = Direct::new().unwrap();
    let told = run(&net.a.netns, &["doctor", "--iface", "eth9"]).unwrap();
    assert_eq!(told.code, Some(1), "{told:#?}");
    let line = told.stdout.iter().find(|line| line.starts_with("fail"));
    let line = line.unwrap_or_else(|| panic!("{told:#?}"));
    assert!(line.contains("eth9: no such interface"), "{line}");
    assert!(told.stdout.last().unwrap().ends_with("1 fail"), "{told:#?}");
}

/// The rules of a host that let a TCP server in; real datagrams confirm both what is
/// found and the mending.
#[test]
fn rules_for_tcp_do_not_let_udp_in() {
    let net = Direct::new().unwrap();
    assert_ok(&net.a, "firewall");
    let rules = "table inet filter {
        chain input {
            type filter hook input priority 0; policy drop;
            ct state established,related accept
            iifname lo accept
            meta l4proto icmpv6 accept
            tcp dport { 22, 8000 } counter accept
        }
    }";
    let netns = &net.a.netns;
    netns.run_with_input("nft", ["-f", "-"], rules).unwrap();
    let _attached = mode::TC.attach_both(&net).unwrap();
    let server = udp::Server::echo(netns, net.a.socket(Family::V4, PORT)).unwrap();
    let client = udp::bind(&net.b.netns, net.b.socket(Family::V4, 0)).unwrap();
    client.send_to(b"too early", server.address()).unwrap();
    let restored = || status::counter(netns, "rx_restored").unwrap() == 1;
    wait::until(LIMIT, "the datagram to arrive at netfilter", restored).unwrap();
    let mend = mend_of(
        &findings(&net.a),
        "firewall",
        "warn",
        &["`inet filter input` accepts TCP port 8000", "sees UDP"],
    );
    assert_eq!(
        mend,
        "nft insert rule inet filter input udp dport 8000 accept"
    );
    assert_eq!(server.datagrams(), 0);
    succeed(&net.a.netns, &mend);
    assert_ok(&net.a, "firewall");
    udp::exchange(&client, server.address(), b"welcome", LIMIT).unwrap();
}

#[test]
fn a_policy_without_a_rule_is_told() {
    let net = Direct::new().unwrap();
    for hook in ["input", "output"] {
        let rules = format!(
            "table ip own {{
                chain c {{
                    type filter hook {hook} priority 0; policy drop;
                }}
            }}"
        );
        let netns = &net.a.netns;
        netns.run_with_input("nft", ["-f", "-"], &rules).unwrap();
        let mend = mend_of(
            &findings(&net.a),
            "firewall",
            "warn",
            &["`ip own c`", "8000"],
        );
        succeed(&net.a.netns, &mend);
        assert_ok(&net.a, "firewall");
        succeed(&net.a.netns, "nft flush ruleset");
    }
}

#[test]
fn a_wireguard_device_must_fit() {
    let net = Direct::new().unwrap();
    succeed(
        &net.a.netns,
        "ip tuntap add dev wg0 mode tun && ip link set mtu 1500 dev wg0",
    );
    // As an implementation in user space makes it.
    let socket = "mount -t tmpfs run /run && mkdir /run/wireguard && touch /run/wireguard/wg0.sock";
    let look = || findings_after(&net.a, socket);
    assert!(
        findings(&net.a)
            .iter()
            .all(|finding| finding["check"] != "wireguard-mtu")
    );
    let mend = mend_of(
        &look(),
        "wireguard-mtu",
        "warn",
        &[
            "wg0: MTU 1500",
            "1428 over IPv4",
            "`MTU = 1420` in wg0.conf",
        ],
    );
    assert_eq!(mend, "ip link set mtu 1420 dev wg0");
    succeed(&net.a.netns, &mend);
    assert_eq!(only(&look(), "wireguard-mtu")["level"], "ok");
    // A peer that is reached over IPv6 leaves less.
    let _attached = mode::TC
        .attach(&net.a, &["--port", "8000", "--peer", "fd00::2"])
        .unwrap();
    let mend = mend_of(&look(), "wireguard-mtu", "warn", &["1408 over IPv6"]);
    assert_eq!(mend, "ip link set mtu 1408 dev wg0");
    succeed(&net.a.netns, &mend);
    assert_eq!(only(&look(), "wireguard-mtu")["level"], "ok");
}

#[test]
fn a_tcp_server_on_an_owned_port_is_told() {
    let net = Direct::new().unwrap();
    let address = net.a.socket(Family::V4, PORT);
    let server = net
        .a
        .netns
        .enter(|| TcpListener::bind(address))
        .unwrap()
        .unwrap();
    mend_of(
        &findings(&net.a),
        "tcp-server",
        "warn",
        &["port 8000", "--secret"],
    );
    let scratch = Scratch::new().unwrap();
    let secret = secret::write(scratch.path(), "secret", "correct horse battery").unwrap();
    let attached = mode::TC
        .attach(&net.a, &["--port", "8000", "--secret", &secret])
        .unwrap();
    let all = findings(&net.a);
    assert_eq!(only(&all, "tcp-server")["level"], "ok", "{all:#?}");
    // Both hosts must agree on the time.
    only(&all, "clock");
    attached.stop().unwrap();
    drop(server);
    let all = findings(&net.a);
    assert_eq!(only(&all, "tcp-server")["level"], "ok", "{all:#?}");
    assert!(
        all.iter().all(|finding| finding["check"] != "clock"),
        "{all:#?}"
    );
}

#[test]
fn an_owned_port_that_is_not_reserved_is_told() {
    let net = Direct::new().unwrap();
    let all = findings(&net.a);
    assert_eq!(only(&all, "ephemeral-port")["level"], "ok", "{all:#?}");
    let set = |setting: &str| succeed(&net.a.netns, &format!("sysctl -w '{setting}'"));
    set("net.ipv4.ip_local_port_range=7000 9000");
    set("net.ipv4.ip_local_reserved_ports=7001");
    let words = ["port 8000", "UDP socket"];
    let mend = mend_of(&findings(&net.a), "ephemeral-port", "warn", &words);
    assert_eq!(mend, "sysctl -w net.ipv4.ip_local_reserved_ports=7001,8000");
    succeed(&net.a.netns, &mend);
    let all = findings(&net.a);
    assert_eq!(only(&all, "ephemeral-port")["level"], "ok", "{all:#?}");
}

/// From a call to a peer without xdptun to a tunnel that works.
#[test]
fn a_peer_that_does_not_answer_is_told_with_the_reason() {
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach(&net.a, &["--port", "8000"]).unwrap();
    mend_of(&findings(&net.a), "flows", "ok", &["none yet"]);
    let client = udp::bind(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
    let peer = net.b.socket(Family::V4, PORT);
    // The client keeps sending: a flow without an answer is removed after a while.
    let told = |level: &str, words: &str| {
        let says = || {
            client.send_to(b"anybody?", peer).unwrap();
            let all = findings(&net.a);
            let found = only(&all, "flows");
            found["level"] == level && found["what"].as_str().unwrap().contains(words)
        };
        wait::until(LIMIT, words, says).unwrap();
    };
    let silent = "table inet own { chain c { type filter hook input priority 0; drop; }; }";
    net.b
        .netns
        .run_with_input("nft", ["-f", "-"], silent)
        .unwrap();
    told("fail", &format!("no answer from {peer}: let TCP"));
    succeed(&net.b.netns, "nft flush ruleset");
    told(
        "fail",
        &format!("no answer from {peer}: a host or a firewall refuses"),
    );
    let _peer = mode::TC.attach(&net.b, &["--port", "8000"]).unwrap();
    told("ok", "1 is established");
}

#[test]
fn a_peer_that_sends_undisguised_is_told() {
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach(&net.a, &["--port", "8000"]).unwrap();
    let client = udp::bind(&net.b.netns, net.b.socket(Family::V4, 0)).unwrap();
    let address = net.a.socket(Family::V4, PORT);
    client.send_to(b"bare", address).unwrap();
    let dropped = || status::counter(&net.a.netns, "rx_drop_plain_udp").unwrap() == 1;
    wait::until(LIMIT, "the datagram", dropped).unwrap();
    let words = [
        "undisguised and were dropped (1)",
        "attach xdptun at the peer",
    ];
    mend_of(&findings(&net.a), "flows", "warn", &words);
}

/// Rules count, by which wg-quick and hosts with several uplinks choose the way.
#[test]
fn a_peer_that_is_reached_another_way_is_told() {
    let net = Direct::new().unwrap();
    succeed(
        &net.a.netns,
        "ip tuntap add other mode tun && ip link set other up && \
         ip route add 192.0.2.0/24 dev other && ip -6 route add 2001:db8::/64 dev other",
    );
    let [v4, v6] = Family::BOTH.map(|family| net.b.address(family));
    let peers = format!("{v4},{v6},192.0.2.1,2001:db8::1,198.51.100.1,203.0.113.0/24,fe80::7");
    let _attached = mode::TC
        .attach(&net.a, &["--port", "8000", "--peer", &peers])
        .unwrap();
    let told = |level: &str, words: &[&str]| {
        mend_of(&findings(&net.a), "route", level, words);
    };
    told("warn", &["192.0.2.1", "2001:db8::1", "leave by other"]);
    let own = net.a.address(Family::V6);
    succeed(
        &net.a.netns,
        "ip rule add fwmark 7 lookup 100 && ip route add 192.0.2.0/24 dev eth0 table 100",
    );
    told("warn", &["datagrams to 2001:db8::1 leave"]);
    succeed(
        &net.a.netns,
        &format!(
            "ip -6 rule add from {own} lookup 100 && \
             ip -6 route add 2001:db8::/64 dev eth0 table 100"
        ),
    );
    told("ok", &["leads to 4 of 5 peers"]);
}

#[test]
fn peers_without_a_route_are_told() {
    let net = Direct::new().unwrap();
    let _attached = mode::TC
        .attach(&net.a, &["--port", "8000", "--peer", "198.51.100.1"])
        .unwrap();
    let words = ["no route to 198.51.100.1"];
    mend_of(&findings(&net.a), "route", "warn", &words);
}

/// The programs of xdptun, renamed so that they count as another program's.
fn others() -> Ebpf {
    let mut object = xdptun_object::TUNNEL.bytes();
    let (own, other) = (b"xdptun_", b"others_");
    for start in 0..object.len() - own.len() {
        if object[start..].starts_with(own) {
            object[start..start + own.len()].copy_from_slice(other);
        }
    }
    Ebpf::load(&object).unwrap()
}

fn other_xdp(ebpf: &mut Ebpf) -> &mut Xdp {
    let program = ebpf.program_mut("others_xdp").unwrap();
    let program: &mut Xdp = program.try_into().unwrap();
    program.load().unwrap();
    program
}

#[test]
fn another_xdp_program_is_named_and_can_be_taken_off() {
    for mode in ["xdpdrv", "xdpgeneric"] {
        let net = Direct::new().unwrap();
        let before = Traces::of(&net.a).unwrap();
        assert_ok(&net.a, "xdp");
        let mut ebpf = others();
        let pin = format!("/sys/fs/bpf/{}", net.a.netns.name());
        other_xdp(&mut ebpf).pin(&pin).unwrap();
        succeed(
            &net.a.netns,
            &format!("ip link set dev eth0 {mode} pinned {pin}; rm {pin}"),
        );
        let mend = mend_of(
            &findings(&net.a),
            "xdp",
            "warn",
            &["others_xdp", "takes tc"],
        );
        succeed(&net.a.netns, &mend);
        assert_ok(&net.a, "xdp");
        assert_eq!(Traces::of(&net.a).unwrap(), before);
    }
}

/// By the kernel's word: the loopback has no XDP, a veth has.
#[test]
fn whether_the_driver_has_xdp_is_told() {
    let net = Direct::new().unwrap();
    for (interface, told) in [
        ("lo", "lo: the driver has no XDP; `attach` takes tc"),
        (
            "eth0",
            "eth0: no XDP program; `attach` takes tc, because it would switch TSO off",
        ),
    ] {
        let look = run(&net.a.netns, &["doctor", "--json", "--iface", interface]).unwrap();
        assert_eq!(mend_of(&parsed(&look), "xdp", "ok", &[told]), "");
    }
}

/// `ip` cannot take off what a link holds.
#[test]
fn another_xdp_program_with_a_link_is_told_with_the_link() {
    let net = Direct::new().unwrap();
    let mut ebpf = others();
    let program = other_xdp(&mut ebpf);
    let attached = net
        .a
        .netns
        .enter(|| program.attach(Host::DEV, XdpMode::Driver));
    attached.unwrap().unwrap();
    let id = program.info().unwrap().id();
    let mut links = loaded_links().map(Result::unwrap);
    let link = links.find(|link| link.program_id() == id).unwrap().id();
    let mend = mend_of(&findings(&net.a), "xdp", "warn", &["others_xdp"]);
    assert_eq!(mend, format!("bpftool link detach id {link}"));
    drop(ebpf);
    assert_ok(&net.a, "xdp");
}

/// Where ours is not the last on the way out, others see segments.
#[test]
fn tc_programs_of_others_are_judged_by_their_place() {
    if !kernel::has_tcx() {
        eprintln!("skipped: the kernel has no TCX");
        return;
    }
    let net = Direct::new().unwrap();
    let attach_other = || {
        let mut ebpf = others();
        let program = ebpf.program_mut("others_egress").unwrap();
        let program: &mut SchedClassifier = program.try_into().unwrap();
        program.load().unwrap();
        let last = TcAttachOptions::TcxOrder(LinkOrder::last());
        let attach = || program.attach_with_options(Host::DEV, TcAttachType::Egress, last);
        net.a.netns.enter(attach).unwrap().unwrap();
        ebpf
    };
    let first = attach_other();
    let _attached = mode::TC.attach(&net.a, &["--port", "8000"]).unwrap();
    let all = findings(&net.a);
    let tc = only(&all, "tc");
    assert_eq!(tc["level"], "ok", "{tc:#}");
    assert!(
        tc["what"].as_str().unwrap().contains("others_egress"),
        "{tc:#}"
    );
    drop(first);
    let last = attach_other();
    mend_of(
        &findings(&net.a),
        "tc",
        "warn",
        &["others_egress", "on the way out"],
    );
    drop(last);
    assert_ok(&net.a, "tc");
}

#[test]
fn gro_and_generic_xdp_do_not_go_together() {
    let net = Direct::new().unwrap();
    net.offload("gro", true).unwrap();
    assert_ok(&net.a, "gro");
    let attached = mode::XDP_GENERIC
        .attach(&net.a, &["--port", "8000"])
        .unwrap();
    net.offload("gro", true).unwrap();
    let mend = mend_of(&findings(&net.a), "gro", "warn", &["eth0", "generic XDP"]);
    succeed(&net.a.netns, &mend);
    assert_ok(&net.a, "gro");
    assert_ok(&net.a, "xdp");
    attached.stop().unwrap();
}

/// Runs a printed `xdptun attach`, and returns when it is ready.
fn attach_as_told(host: &Host, mend: &str) -> Process {
    assert!(
        mend.starts_with("xdptun attach --iface eth0 --port 8000"),
        "{mend}"
    );
    let process = Process::spawn(&mut shell(&host.netns, &format!("exec {mend}"))).unwrap();
    process.wait_for_line("ready:", LIMIT).unwrap();
    process
}

fn end(mut process: Process) {
    process.signal(Signal::SIGINT).unwrap();
    assert!(process.wait(LIMIT).unwrap().success());
}

#[test]
fn a_killed_daemon_is_told_with_the_command_that_goes_on() {
    let args = [
        "--port",
        "8000,9000-9010",
        "--peer",
        "10.0.0.0/24",
        "--max-flows",
        "1000",
    ];
    for mode in [mode::TC, mode::XDP, mode::TC_CLSACT] {
        let net = Direct::new().unwrap();
        let before = Traces::of(&net.a).unwrap();
        let remains = mode.attach(&net.a, &args).unwrap().kill().unwrap();
        let mend = mend_of(&findings(&net.a), "daemon", "warn", &["eth0", "no daemon"]);
        assert_eq!(
            mend,
            "xdptun attach --iface eth0 --port 8000,9000-9010 --peer 10.0.0.0/24 --max-flows 1000"
        );
        let process = attach_as_told(&net.a, &mend);
        for check in ["daemon", "hooks"] {
            assert_ok(&net.a, check);
        }
        end(process);
        drop(remains);
        assert_eq!(Traces::of(&net.a).unwrap(), before);
    }
}

/// As another manager of the interface takes programs off.
#[test]
fn an_empty_hook_fails_until_it_is_filled_again() {
    let take_off: &[(&str, &str, mode::Mode)] = &[
        (
            "tc egress",
            "tc filter del dev eth0 egress",
            mode::TC_CLSACT,
        ),
        (
            "tc ingress",
            "tc filter del dev eth0 ingress",
            mode::TC_CLSACT,
        ),
    ];
    for (hook, command, mode) in take_off {
        let net = Direct::new().unwrap();
        let attached = mode.attach(&net.a, &["--port", "8000"]).unwrap();
        assert_ok(&net.a, "hooks");
        succeed(&net.a.netns, command);
        let mend = mend_of(&findings(&net.a), "hooks", "fail", &[hook, "eth0"]);
        assert!(mend.ends_with(" --take-over"), "{mend}");
        let process = attach_as_told(&net.a, &mend);
        assert_ok(&net.a, "hooks");
        end(process);
        drop(attached);
    }
    for (hook, program, mode) in [
        ("tc egress", "xdptun_egress", mode::TC),
        ("xdp", "xdptun_xdp", mode::XDP),
    ] {
        if mode == mode::TC && !kernel::has_tcx() {
            continue;
        }
        let net = Direct::new().unwrap();
        let remains = mode
            .attach(&net.a, &["--port", "8000"])
            .unwrap()
            .kill()
            .unwrap();
        let pins = product::pin_dir(&net.a.netns, Host::DEV).unwrap();
        let index = xdptun_lab::link::index(&net.a.netns, Host::DEV).unwrap();
        let links = pins.join(index.to_string());
        fs::remove_file(links.join(format!("link_{program}"))).unwrap();
        let mend = mend_of(&findings(&net.a), "hooks", "fail", &[hook]);
        end(attach_as_told(&net.a, &mend));
        drop(remains);
    }
}

#[test]
fn what_is_left_of_an_interface_that_is_gone_can_be_removed() {
    let net = Direct::new().unwrap();
    let remains = mode::TC
        .attach(&net.a, &["--port", "8000"])
        .unwrap()
        .kill()
        .unwrap();
    succeed(&net.a.netns, "ip link del eth0");
    let look = || parsed(&run(&net.a.netns, &["doctor", "--json"]).unwrap());
    let mend = mend_of(&look(), "attachment", "fail", &["eth0", "is gone"]);
    assert_eq!(mend, "xdptun detach --iface eth0");
    succeed(&net.a.netns, &mend);
    let all = look();
    assert!(
        all.iter().all(|finding| finding["check"] != "attachment"),
        "{all:#?}"
    );
    drop(remains);
}

#[test]
fn without_bpffs_it_says_how_to_mount_it() {
    let net = Direct::new().unwrap();
    let hidden = "umount /sys/fs/bpf";
    let mend = mend_of(
        &findings_after(&net.a, hidden),
        "bpffs",
        "warn",
        &["/sys/fs/bpf"],
    );
    let mended = findings_after(&net.a, &format!("{hidden}; {mend}"));
    assert_eq!(only(&mended, "bpffs")["level"], "ok");
    // The attachment still exists, but its pins are out of sight.
    let _attached = mode::TC.attach(&net.a, &["--port", "8000"]).unwrap();
    if kernel::has_tcx() {
        mend_of(
            &findings_after(&net.a, hidden),
            "attachment",
            "fail",
            &["not in this mount"],
        );
    }
}

#[test]
fn without_privileges_it_looks_at_what_it_may() {
    let net = Direct::new().unwrap();
    let before = Traces::of(&net.a).unwrap();
    let mut command = net.a.netns.command("setpriv");
    command
        .arg("--bounding-set=-net_admin,-sys_admin")
        .arg("--inh-caps=-all");
    let all = parsed(
        &finish(
            command
                .arg(product::binary().unwrap())
                .args(LOOK)
                .arg("--json"),
        )
        .unwrap(),
    );
    let mend = mend_of(&all, "capabilities", "fail", &["missing CAP_NET_ADMIN"]);
    assert_eq!(mend, "sudo xdptun doctor");
    for check in ["kernel", "interface", "mtu"] {
        assert_eq!(only(&all, check)["level"], "ok", "{all:#?}");
    }
    mend_of(
        &all,
        "tc",
        "warn",
        &["eth0: cannot be looked at", "not permitted"],
    );
    for check in ["programs", "tcx"] {
        assert!(
            all.iter().all(|finding| finding["check"] != check),
            "{all:#?}"
        );
    }
    assert_eq!(Traces::of(&net.a).unwrap(), before);
}

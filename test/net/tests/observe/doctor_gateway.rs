//! The findings of `doctor` on hosts that forward ports: each problem is made to happen, found,
//! and mended.

use std::net::{SocketAddr, TcpListener};

use serde_json::Value;
use xdptun_lab::{Attached, Family, Netns, Served};
use xdptun_test_net::doctor::{self, findings_after, mend_of, only, succeed};
use xdptun_test_net::kernel;

/// The port of the back end.
const SERVICE: u16 = 8080;

/// Forwards port 7000 over IPv4.
fn forward(net: &Served, to: SocketAddr, more: &[&str]) -> Attached {
    let to = to.to_string();
    let rule = ["--listen", "7000", "--to", &to];
    Attached::forward(&net.gateway, Served::WAN, &[&rule, more].concat()).unwrap()
}

fn listen(netns: &Netns, at: SocketAddr) -> TcpListener {
    netns.enter(|| TcpListener::bind(at)).unwrap().unwrap()
}

/// The findings about the interface by which clients come.
fn findings(net: &Served) -> Vec<Value> {
    doctor::findings(&net.gateway, &["doctor", "--iface", Served::WAN])
}

/// The checks that have a finding about an interface, in order.
fn checks(findings: &[Value], interface: &str) -> Vec<String> {
    let begin = format!("{interface}: ");
    let about = findings.iter().filter(|finding| {
        let what = finding["what"].as_str().unwrap();
        what.starts_with(&begin)
    });
    about
        .map(|finding| finding["check"].as_str().unwrap().to_owned())
        .collect()
}

fn assert_ok(net: &Served, check: &str) {
    let all = findings(net);
    let found = only(&all, check);
    assert_eq!(found["level"], "ok", "{found:#}");
}

/// Everything that takes one command to break and one to mend.
#[test]
fn forwarding_is_examined() {
    let net = Served::new().unwrap();
    let [v4, v6] = Family::BOTH.map(|family| net.back_end.socket(family, SERVICE));
    let _servers = [v4, v6].map(|at| listen(&net.back_end.netns, at));
    let to = v6.to_string();
    let attached = forward(&net, v4, &["--listen", "7001", "--to", &to]);
    let all = findings(&net);
    // Nothing of the tunnel.
    let of_gateway = [
        "interface",
        "rp-filter",
        "gateway-daemon",
        "gateway-hooks",
        "forwarding",
        "back-end",
        "served-port",
        "drops",
    ];
    assert_eq!(checks(&all, Served::WAN), of_gateway);
    for check in of_gateway {
        assert_eq!(only(&all, check)["level"], "ok", "{all:#?}");
    }
    // The interface is one because the gateway is attached to it.
    let unasked = doctor::findings(&net.gateway, &["doctor"]);
    assert_eq!(checks(&unasked, Served::WAN), of_gateway);

    for (breaking, words, setting) in [
        (
            "sysctl -qw net.ipv4.ip_forward=0",
            &["eth0", "IPv4"][..],
            "net.ipv4.ip_forward=1",
        ),
        (
            "sysctl -qw net.ipv4.conf.lan0.forwarding=0",
            &["eth0", "IPv4"],
            "net.ipv4.conf.lan0.forwarding=1",
        ),
        (
            "sysctl -qw net.ipv6.conf.all.forwarding=0",
            &["eth0", "IPv6"],
            "net.ipv6.conf.all.forwarding=1",
        ),
    ] {
        succeed(&net.gateway, breaking);
        let mend = mend_of(&findings(&net), "forwarding", "fail", words);
        assert_eq!(mend, format!("sysctl -w {setting}"));
        succeed(&net.gateway, &mend);
        assert_ok(&net, "forwarding");
    }

    succeed(
        &net.gateway,
        "sysctl -qw net.ipv6.conf.eth0.accept_ra=1 && \
         ip -6 route add default via fe80::1 dev eth0 proto ra",
    );
    let mend = mend_of(&findings(&net), "accept-ra", "warn", &["eth0", "expires"]);
    assert_eq!(mend, "sysctl -w net.ipv6.conf.eth0.accept_ra=2");
    succeed(&net.gateway, &mend);
    assert_eq!(checks(&findings(&net), Served::WAN), of_gateway);
    attached.stop().unwrap();
}

#[test]
fn back_ends_are_tried() {
    let net = Served::new().unwrap();
    let to = net.back_end.socket(Family::V4, SERVICE);
    let attached = forward(&net, to, &[]);
    let told = |level: &str, words: &[&str]| {
        let mend = mend_of(&findings(&net), "back-end", level, words);
        assert_eq!(mend, "");
    };
    let reached = || told("ok", &["TCP from this host reaches 10.5.0.5:8080"]);
    told("warn", &["refused by 10.5.0.5:8080", "/udp"]);
    let _server = listen(&net.back_end.netns, to);
    reached();
    let silent = "table inet own { chain c { type filter hook input priority 0; drop; }; }";
    let netns = &net.back_end.netns;
    netns.run_with_input("nft", ["-f", "-"], silent).unwrap();
    told("warn", &["not answered within 1 s by 10.5.0.5:8080"]);
    succeed(netns, "nft flush ruleset");
    reached();
    succeed(&net.gateway, "ip route delete 10.5.0.0/24");
    told("fail", &["no route leads to 10.5.0.5;", "ip route get"]);
    succeed(&net.gateway, "ip route add 10.5.0.0/24 dev lan0");
    reached();
    attached.stop().unwrap();
}

/// Then nothing is forwarded, and the back end is tried all the same.
#[test]
fn a_back_end_can_be_this_host() {
    let net = Served::new().unwrap();
    let to = SocketAddr::new(net.inner(Family::V4), SERVICE);
    succeed(&net.gateway, "sysctl -qw net.ipv4.ip_forward=0");
    let attached = forward(&net, to, &[]);
    mend_of(&findings(&net), "back-end", "warn", &["10.5.0.254:8080"]);
    let _server = listen(&net.gateway, to);
    let all = findings(&net);
    mend_of(&all, "back-end", "ok", &["10.5.0.254:8080"]);
    let checks = checks(&all, Served::WAN);
    assert!(
        !checks.iter().any(|check| check == "forwarding"),
        "{all:#?}"
    );
    attached.stop().unwrap();
}

#[test]
fn ports_of_this_hosts_sockets_are_told() {
    let net = Served::new().unwrap();
    let to = net.back_end.socket(Family::V4, SERVICE);
    let server = listen(&net.gateway, SocketAddr::from(([0, 0, 0, 0], 7000)));
    let source = ["--source", "10.5.0.254:40000-40009", "--steal"];
    let attached = forward(&net, to, &source);
    let all = findings(&net);
    let mend = mend_of(&all, "served-port", "warn", &["7000/tcp", "--steal"]);
    assert_eq!(mend, "");
    drop(server);
    assert_ok(&net, "served-port");
    let mend = mend_of(&all, "source-ports", "warn", &["40000-40009"]);
    assert_eq!(
        mend,
        "sysctl -w net.ipv4.ip_local_reserved_ports=40000-40009"
    );
    succeed(&net.gateway, &mend);
    assert_ok(&net, "source-ports");
    // Sessions begin by the other one only.
    let all = doctor::findings(&net.gateway, &["doctor"]);
    let of_far_end = ["interface", "gateway-daemon", "gateway-hooks", "drops"];
    assert_eq!(checks(&all, Served::LAN), of_far_end);
    attached.stop().unwrap();
}

#[test]
fn a_killed_daemon_and_an_empty_hook_are_told_with_the_way_on() {
    let net = Served::new().unwrap();
    let to = net.back_end.socket(Family::V4, SERVICE);
    let start = |more: &[&str]| forward(&net, to, &[&["--tc", "clsact"], more].concat());
    let remains = start(&[]).kill().unwrap();
    let words = [
        "no daemon of `forward` or `nat` runs",
        "65536",
        "xdptun forward",
        "xdptun run",
    ];
    mend_of(&findings(&net), "gateway-daemon", "warn", &words);
    let mut running = vec![start(&[])];
    assert_ok(&net, "gateway-daemon");

    for hook in ["ingress", "egress"] {
        assert_ok(&net, "gateway-hooks");
        succeed(&net.gateway, &format!("tc filter del dev eth0 {hook}"));
        let words = [&format!("tc {hook}"), "--take-over"];
        mend_of(&findings(&net), "gateway-hooks", "fail", &words);
        running.push(start(&["--take-over"]));
    }
    assert_ok(&net, "gateway-hooks");
    running.pop().unwrap().stop().unwrap();
    drop((running, remains));
}

/// To the tunnel, the programs of the gateway are not those of others.
#[test]
fn with_the_tunnel_both_are_examined() {
    let net = Served::new().unwrap();
    let tunnel = Attached::start(&net.gateway, Served::WAN, &["--port", "8000"]).unwrap();
    let gateway = forward(&net, net.back_end.socket(Family::V4, SERVICE), &[]);
    let all = findings(&net);
    for check in [
        "mtu",
        "daemon",
        "hooks",
        "flows",
        "tcp-server",
        "gateway-daemon",
        "gateway-hooks",
        "forwarding",
    ] {
        assert_eq!(only(&all, check)["level"], "ok", "{all:#?}");
    }
    mend_of(&all, "tc", "ok", &["no tc programs of others"]);
    gateway.stop().unwrap();
    tunnel.stop().unwrap();
}

#[test]
fn what_cannot_be_seen_or_is_left_is_told() {
    let net = Served::new().unwrap();
    let attached = forward(&net, net.back_end.socket(Family::V4, SERVICE), &[]);
    if kernel::has_tcx() {
        let hidden = findings_after(&net.gateway, "umount /sys/fs/bpf", &["doctor"]);
        mend_of(
            &hidden,
            "attachment",
            "fail",
            &["eth0", "not in this mount"],
        );
    }
    let remains = attached.kill().unwrap();
    succeed(&net.gateway, "ip link delete eth0");
    let look = || doctor::findings(&net.gateway, &["doctor"]);
    let mend = mend_of(&look(), "attachment", "fail", &["eth0", "is gone"]);
    assert_eq!(mend, "xdptun detach --iface eth0");
    succeed(&net.gateway, &mend);
    let all = look();
    assert!(
        all.iter().all(|finding| finding["check"] != "attachment"),
        "{all:#?}"
    );
    drop(remains);
}

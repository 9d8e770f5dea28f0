//! Faults that a host can have, made one by one: `doctor` names each, and the command that it prints
//! ends the finding.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use xdptun_lab::{Attached, Direct, Family, Host, scratch::Scratch, secret, udp, wait};
use xdptun_test_net::doctor::{self, succeed};
use xdptun_test_net::socket::discover_path;
use xdptun_test_net::{LIMIT, PORT, mode, status};

/// Nothing needs to be attached to judge rules, and without an attachment the doctor does not wait a
/// second for counters.
const LOOK: [&str; 5] = ["doctor", "--iface", Host::DEV, "--port", "8000"];

/// The findings of a check that are not `ok`.
fn faults(host: &Host, check: &str) -> Vec<Value> {
    let all = doctor::findings(&host.netns, &LOOK).into_iter();
    all.filter(|finding| finding["check"] == check && finding["level"] != "ok")
        .collect()
}

/// Requires one finding with these words.
fn fault(host: &Host, check: &str, words: &[&str]) -> Value {
    let found = faults(host, check);
    let [finding] = &found[..] else {
        panic!("{check}, {words:?}: {found:#?}");
    };
    let what = finding["what"].as_str().unwrap();
    for word in words {
        assert!(what.contains(word), "no `{word}` in {what}");
    }
    finding.clone()
}

/// Requires such a finding, and that its command ends it.
fn mended(host: &Host, check: &str, words: &[&str]) {
    let finding = fault(host, check, words);
    let mend = finding["mend"].as_str();
    succeed(&host.netns, mend.unwrap_or_else(|| panic!("{finding:#}")));
    let left = faults(host, check);
    assert_eq!(left, [] as [Value; 0], "after {mend:?}");
}

/// A chain of a table on a hook, with a policy and a rule.
fn chain(family: &str, kind: &str, hook: &str, policy: &str, rule: &str) -> String {
    let device = match hook {
        "ingress" | "egress" => " device eth0",
        _ => "",
    };
    format!(
        "table {family} own {{ chain c {{
            type {kind} hook {hook}{device} priority 0; policy {policy};
            {rule}
        }}; }}"
    )
}

/// Each hook that sees datagrams of the tunnel, and each way to drop them there.
#[test]
fn rules_of_nftables_are_found_on_every_hook() {
    let net = Direct::new().unwrap();
    let netns = &net.a.netns;
    for (family, kind, hook, policy, rule, says) in [
        (
            "netdev",
            "filter",
            "ingress",
            "drop",
            "",
            "drops UDP port 8000",
        ),
        (
            "netdev",
            "filter",
            "ingress",
            "accept",
            "udp dport 8000 drop",
            "no peer can call",
        ),
        (
            "inet",
            "filter",
            "ingress",
            "accept",
            "udp sport 8000 drop",
            "no answer of a peer",
        ),
        (
            "inet",
            "filter",
            "prerouting",
            "drop",
            "",
            "on hook prerouting drops UDP port 8000",
        ),
        (
            "ip",
            "filter",
            "prerouting",
            "accept",
            "udp dport 8000-8010 drop",
            "no peer can call",
        ),
        (
            "ip6",
            "filter",
            "prerouting",
            "accept",
            "udp sport 8000 drop",
            "no answer of a peer",
        ),
        (
            "inet",
            "filter",
            "input",
            "drop",
            "ct state established accept",
            "no peer can call",
        ),
        (
            "inet",
            "filter",
            "input",
            "accept",
            "udp dport 8000 reject",
            "no peer can call",
        ),
        (
            "inet",
            "filter",
            "input",
            "accept",
            "udp sport 8000 drop",
            "no answer of a peer",
        ),
        (
            "inet",
            "filter",
            "output",
            "drop",
            "",
            "drops UDP port 8000",
        ),
        (
            "inet",
            "filter",
            "output",
            "accept",
            "udp dport 8000 drop",
            "can call no peer",
        ),
        (
            "ip",
            "route",
            "output",
            "accept",
            "udp sport 8000 drop",
            "no answer of this host",
        ),
        (
            "inet",
            "filter",
            "postrouting",
            "drop",
            "",
            "on hook postrouting drops UDP port 8000",
        ),
        (
            "ip",
            "filter",
            "postrouting",
            "accept",
            "udp dport 8000 drop",
            "can call no peer",
        ),
        (
            "netdev",
            "filter",
            "egress",
            "drop",
            "",
            "on hook egress drops UDP port 8000",
        ),
        (
            "netdev",
            "filter",
            "egress",
            "accept",
            "udp sport 8000 drop",
            "no answer of this host",
        ),
    ] {
        let rules = chain(family, kind, hook, policy, rule);
        netns.run_with_input("nft", ["-f", "-"], &rules).unwrap();
        mended(&net.a, "firewall", &[&format!("`{family} own c`"), says]);
        succeed(netns, "nft flush ruleset");
    }
}

/// Rules that do no harm here: of TCP, of other interfaces and ports, of datagrams of other hosts.
#[test]
fn rules_that_drop_nothing_of_the_tunnel_are_no_fault() {
    let net = Direct::new().unwrap();
    let netns = &net.a.netns;
    for (family, hook, policy, rule) in [
        ("inet", "input", "accept", "tcp dport 8000 drop"),
        ("inet", "input", "drop", "udp dport 8000 accept"),
        (
            "inet",
            "prerouting",
            "accept",
            "iifname \"eth1\" udp dport 8000 drop",
        ),
        ("inet", "output", "accept", "udp dport 8001 drop"),
        ("inet", "output", "drop", "udp sport 8000 accept"),
        ("netdev", "ingress", "accept", "tcp dport 8000 drop"),
        ("inet", "forward", "drop", ""),
    ] {
        let rules = chain(family, "filter", hook, policy, rule);
        netns.run_with_input("nft", ["-f", "-"], &rules).unwrap();
        let found = faults(&net.a, "firewall");
        assert_eq!(found, [] as [Value; 0], "{rules}");
        succeed(netns, "nft flush ruleset");
    }
}

/// `nft` does not list those of iptables-legacy, and of the others not what their matches say.
#[test]
fn rules_of_iptables_are_found() {
    let net = Direct::new().unwrap();
    for (program, rule, words) in [
        (
            "iptables-legacy",
            "-t raw -A PREROUTING -p udp --dport 8000 -j DROP",
            ["`ip raw PREROUTING`", "no peer can call"],
        ),
        (
            "iptables-legacy",
            "-t mangle -A PREROUTING -p udp -m multiport --sports 53,8000 -j DROP",
            ["`ip mangle PREROUTING`", "no answer of a peer"],
        ),
        (
            "ip6tables-legacy",
            "-A INPUT -i eth+ -p udp --dport 8000 -j REJECT",
            ["`ip6 filter INPUT`", "no peer can call"],
        ),
        (
            "iptables-legacy",
            "-P OUTPUT DROP",
            ["`ip filter OUTPUT`", "drops UDP port 8000"],
        ),
        (
            "iptables-legacy",
            "-t mangle -A POSTROUTING -o eth0 -p udp --dport 8000:8010 -j DROP",
            ["`ip mangle POSTROUTING`", "can call no peer"],
        ),
        (
            "iptables-nft",
            "-A INPUT -p udp -m multiport --dports 8000,8001 -m comment --comment -a -j REJECT",
            ["`ip filter INPUT`", "no peer can call"],
        ),
        (
            "ip6tables-nft",
            "-t raw -A PREROUTING -p udp -m multiport --sports 53,8000 -j DROP",
            ["`ip6 raw PREROUTING`", "no answer of a peer"],
        ),
    ] {
        succeed(&net.a.netns, &format!("{program} {rule}"));
        mended(&net.a, "firewall", &words);
        let tables = ["filter", "raw", "mangle"];
        for table in tables {
            succeed(&net.a.netns, &format!("{program} -t {table} -F"));
        }
        succeed(&net.a.netns, &format!("{program} -P OUTPUT ACCEPT"));
    }
    let accepted = "iptables-legacy -P INPUT DROP && \
                    iptables-legacy -A INPUT -p udp --dport 8000 -m comment --comment 'a b' -j ACCEPT";
    succeed(&net.a.netns, accepted);
    assert_eq!(faults(&net.a, "firewall"), [] as [Value; 0]);
}

/// That they are not looked at is said, not passed over.
#[test]
fn rules_that_cannot_be_listed_are_told() {
    let net = Direct::new().unwrap();
    succeed(
        &net.a.netns,
        "iptables-legacy -A INPUT -p udp --dport 8000 -j DROP",
    );
    // Only the folder of xdptun, so that nft and iptables-legacy-save are not found.
    let all = doctor::findings_after(&net.a.netns, "PATH=${PATH%%:*}", &LOOK);
    let said: Vec<&str> = all
        .iter()
        .filter(|finding| finding["check"] == "firewall")
        .filter_map(|finding| finding["what"].as_str())
        .collect();
    for words in [
        "iptables-legacy-save is not installed",
        "nft is not installed",
    ] {
        assert!(said.iter().any(|what| what.contains(words)), "{said:?}");
    }
    assert_eq!(said.len(), 2, "nothing is ok: {said:?}");
}

/// Packets from a peer come in by one interface, and those to it leave by another.
#[test]
fn the_route_to_a_peer_is_told_by_its_interface() {
    let net = Direct::new().unwrap();
    let netns = &net.a.netns;
    succeed(
        netns,
        "ip tuntap add uplink mode tun && ip link set uplink up && \
         ip route add 10.0.0.2/32 dev uplink && sysctl -qw net.ipv4.conf.eth0.rp_filter=1",
    );
    let _attached = mode::TC
        .attach(&net.a, &["--port", "8000", "--peer", "10.0.0.2"])
        .unwrap();
    fault(&net.a, "route", &["10.0.0.2 leave by uplink"]);
    mended(
        &net.a,
        "rp-filter",
        &["strict", "the route to 10.0.0.2 leads elsewhere"],
    );
}

/// The peers are those with flows, where none is named.
#[test]
fn reverse_path_filtering_of_peers_with_flows_is_told() {
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach_both(&net).unwrap();
    let echo = udp::Server::echo(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
    let client = udp::bind(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
    udp::exchange(&client, echo.address(), b"hello", LIMIT).unwrap();
    succeed(&net.a.netns, "sysctl -qw net.ipv4.conf.eth0.rp_filter=1");
    assert_eq!(faults(&net.a, "rp-filter"), [] as [Value; 0]);
    let away = "ip tuntap add uplink mode tun && ip link set uplink up && \
                ip route add 10.0.0.2/32 dev uplink";
    succeed(&net.a.netns, away);
    mended(&net.a, "rp-filter", &["the route to 10.0.0.2"]);
}

/// Stops the sending thread, also if the test panics.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends fifty times a second while the doctor looks.
fn while_sending(send: impl Fn() + Sync, look: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ending = Ending(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                send();
                thread::sleep(Duration::from_millis(20));
            }
        });
        look();
    });
}

/// A ping works, and a download hangs.
#[test]
fn counters_that_grow_are_told() {
    let net = Direct::new().unwrap();
    let [_near, far] = mode::TC.attach_both(&net).unwrap();
    let echo = udp::Server::echo(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
    let client = udp::bind(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
    client.connect(echo.address()).unwrap();
    let exchange = || udp::exchange(&client, echo.address(), b"ping", LIMIT).unwrap();
    exchange();
    assert_eq!(faults(&net.a, "drops"), [] as [Value; 0]);
    discover_path(&client, Family::V4).unwrap();
    let too_long = || {
        // Refused at once where the kernel remembers the MTU of the path.
        let _ = client.send(&[7; 1470]);
        succeed(&net.a.netns, "ip route flush cache");
    };
    while_sending(too_long, || {
        let has_grown = || status::counter(&net.a.netns, "tx_too_big").unwrap() > 0;
        wait::until(LIMIT, "a datagram that is too big", has_grown).unwrap();
        let words = ["`tx_too_big` grew by", "lower the MTU"];
        fault(&net.a, "drops", &words);
    });
    // It was counted, and is over.
    assert_eq!(faults(&net.a, "drops"), [] as [Value; 0]);
    far.stop().unwrap();
    let stray = udp::bind(&net.b.netns, net.b.socket(Family::V4, 0)).unwrap();
    let to = net.a.socket(Family::V4, PORT);
    let undisguised = || {
        stray.send_to(b"plain", to).unwrap();
    };
    while_sending(undisguised, || {
        fault(&net.a, "drops", &["`rx_drop_plain_udp` grew by"]);
    });
}

/// Requires that the log and the doctor name the silent peer, and this reason.
fn assert_silence_is_told(net: &Direct, near: &Attached, reason: &str) {
    let client = udp::bind(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
    let peer = net.b.socket(Family::V4, PORT);
    let call = || {
        client.send_to(b"anybody?", peer).unwrap();
    };
    while_sending(call, || {
        let line = format!("no answer from {peer} to 4 SYNs");
        let is_logged = || {
            near.process()
                .stderr()
                .iter()
                .any(|logged| logged.contains(&line))
        };
        wait::until(LIMIT, &line, is_logged).unwrap();
        let finding = fault(&net.a, "flows", &["no answer from 10.0.0.2:8000", reason]);
        assert_eq!(finding["level"], "fail", "{finding:#}");
    });
}

#[test]
fn tcp_that_is_dropped_on_the_way_is_told() {
    let net = Direct::new().unwrap();
    let near = mode::TC.attach(&net.a, &["--port", "8000"]).unwrap();
    // There is no xdptun that would meet the segments first.
    let rules = chain(
        "netdev",
        "filter",
        "ingress",
        "accept",
        "meta l4proto tcp drop",
    );
    let peer = &net.b.netns;
    peer.run_with_input("nft", ["-f", "-"], &rules).unwrap();
    assert_silence_is_told(&net, &near, "every firewall");
}

#[test]
fn another_secret_is_told_at_both_ends() {
    let net = Direct::new().unwrap();
    let scratch = Scratch::new().unwrap();
    let attach = |host: &Host, name: &str, text: &str| {
        let file = secret::write(scratch.path(), name, text).unwrap();
        let more = ["--port", "8000", "--secret", &file];
        mode::TC.attach(host, &more).unwrap()
    };
    let near = attach(&net.a, "near", "correct horse battery");
    let _far = attach(&net.b, "far", "another horse battery");
    assert_silence_is_told(&net, &near, "the same secret");
    fault(&net.b, "flows", &["without a proof of the secret"]);
}

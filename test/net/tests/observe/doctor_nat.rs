//! The findings of `doctor` on hosts that translate: each problem is made to happen, found, and
//! mended.

use serde_json::Value;
use xdptun_lab::{Attached, Family, Served, udp, wait};
use xdptun_test_net::doctor::{self, mend_of, only, succeed};
use xdptun_test_net::{LIMIT, status};

/// Translates the back end, which is inside.
fn nat(net: &Served, more: &[&str]) -> Attached {
    let inside = ["--inside", "10.5.0.0/24"];
    Attached::nat(&net.gateway, Served::WAN, &[&inside, more].concat()).unwrap()
}

/// The findings about the interface that leads outside.
fn findings(net: &Served) -> Vec<Value> {
    doctor::findings(&net.gateway, &["doctor", "--iface", Served::WAN])
}

fn assert_ok(net: &Served, check: &str) {
    let all = findings(net);
    assert_eq!(only(&all, check)["level"], "ok", "{all:#?}");
}

#[test]
fn translation_is_examined() {
    let net = Served::new().unwrap();
    let attached = nat(&net, &[]);
    let checks = [
        "rp-filter",
        "gateway-daemon",
        "gateway-hooks",
        "outside-address",
        "inside-route",
        "forwarding",
        "outside-ports",
        "masquerade",
        "destination-rules",
    ];
    for check in checks {
        assert_ok(&net, check);
    }
    for (breaking, check, level, words, mend) in [
        (
            "sysctl -qw net.ipv4.ip_forward=0",
            "forwarding",
            "fail",
            &["eth0", "IPv4"][..],
            "sysctl -w net.ipv4.ip_forward=1",
        ),
        (
            "nft add table ip t && nft add chain ip t c \
             '{ type nat hook postrouting priority 100; }' && \
             nft add rule ip t c oifname eth0 masquerade",
            "masquerade",
            "warn",
            &["`ip t c`", "netfilter"],
            "nft delete rule ip t c handle 2",
        ),
    ] {
        succeed(&net.gateway, breaking);
        assert_eq!(mend_of(&findings(&net), check, level, words), mend);
        succeed(&net.gateway, mend);
        assert_ok(&net, check);
    }
    succeed(&net.gateway, "ip route delete 10.5.0.0/24");
    let mend = mend_of(&findings(&net), "inside-route", "fail", &["10.5.0.0/24"]);
    assert_eq!(mend, "");
    succeed(&net.gateway, "ip route add 10.5.0.0/24 dev lan0");
    assert_ok(&net, "inside-route");
    attached.stop().unwrap();
}

#[test]
fn addresses_and_ports_of_others_are_told() {
    let net = Served::new().unwrap();
    let attached = nat(&net, &["--outside", "192.0.2.99", "--ports", "40000-40009"]);
    let all = findings(&net);
    let words = ["192.0.2.99", "not this host's"];
    let mend = mend_of(&all, "outside-address", "warn", &words);
    assert_eq!(mend, "ip route add blackhole 192.0.2.99/32");
    let mend = mend_of(&all, "outside-ports", "warn", &["40000-40009", "--ports"]);
    succeed(&net.gateway, &mend);
    assert_ok(&net, "outside-ports");
    succeed(&net.gateway, "ip address add 192.0.2.99/24 dev eth0");
    assert_ok(&net, "outside-address");
    attached.stop().unwrap();
}

/// A rule of nftables sends packets to an outside port on to the back end.
#[test]
fn rules_for_outside_ports_are_told() {
    const PORT: u16 = 8080;
    let net = Served::new().unwrap();
    let attached = nat(&net, &[]);
    let _service = udp::Server::echo(&net.back_end.netns, (net.back_end.v4, PORT)).unwrap();
    succeed(
        &net.gateway,
        "nft add table ip t && nft add chain ip t c '{ type nat hook prerouting priority -100; }' && \
         nft add rule ip t c iifname eth0 udp dport { 53, 8080 } dnat to 10.5.0.5 && \
         nft add rule ip t c iifname lan0 udp dport 9000 redirect to :53",
    );
    let client = udp::bind(&net.client.netns, (net.client.v4, 0)).unwrap();
    let to = net.listen_at(Family::V4, PORT);
    client.send_to(b"lost", to).unwrap();
    wait::until(LIMIT, "the drop", || {
        let gateway = status::gateway(&net.gateway, Served::WAN).unwrap();
        gateway["counters"]["in_drop_filtered"] == 1
    })
    .unwrap();
    let words = ["8080/udp", "`ip t c handle 3`", "such as 8081-32767"];
    let mend = mend_of(&findings(&net), "destination-rules", "warn", &words);
    assert_eq!(mend, "");
    let next = nat(&net, &["--ports", "8081-32767", "--take-over"]);
    assert_ok(&net, "destination-rules");
    next.explain(udp::exchange(&client, to, b"hello", LIMIT))
        .unwrap();
    next.stop().unwrap();
    drop(attached);
}

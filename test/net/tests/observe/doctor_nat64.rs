//! The findings of `doctor` on hosts that run NAT64: each problem is made to happen, found, and
//! mended.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::thread;

use serde_json::Value;
use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Attached, Inside, udp};
use xdptun_test_net::LIMIT;
use xdptun_test_net::doctor::{self, findings_after, mend_of, only, succeed};

const DOCTOR: [&str; 3] = ["doctor", "--iface", Attached::NAT64];

fn nat64(net: &Inside, more: &[&str]) -> Attached {
    let options = ["--inside", "fd00:7::/64", "--allow-private"];
    Attached::nat64(&net.gateway, &[&options, more].concat()).unwrap()
}

fn findings(net: &Inside) -> Vec<Value> {
    doctor::findings(&net.gateway, &DOCTOR)
}

/// All findings of a check.
fn levels<'a>(all: &'a [Value], check: &str) -> Vec<&'a str> {
    let of_check = all.iter().filter(|one| one["check"] == check);
    of_check.map(|one| one["level"].as_str().unwrap()).collect()
}

#[test]
fn nat64_is_examined() {
    let net = Inside::new().unwrap();
    let attached = nat64(&net, &["--iface", Inside::WAN]);
    attached.wait_all_ready(&[Inside::WAN]).unwrap();
    let all = findings(&net);
    for check in [
        "nat64-daemon",
        "nat64-hooks",
        "nat64-pool",
        "nat64-masquerade",
    ] {
        assert_eq!(only(&all, check)["level"], "ok", "{all:#?}");
    }
    for check in ["nat64-route", "forwarding"] {
        assert_eq!(levels(&all, check), ["ok", "ok"], "{all:#?}");
    }
    for (breaking, check, words, mend) in [
        (
            "sysctl -qw net.ipv6.conf.all.forwarding=0",
            "forwarding",
            &["IPv6"][..],
            "sysctl -w net.ipv6.conf.all.forwarding=1",
        ),
        (
            "sysctl -qw net.ipv4.ip_forward=0",
            "forwarding",
            &["IPv4"],
            "sysctl -w net.ipv4.ip_forward=1",
        ),
        (
            "ip route add 64:ff9b::c000:200/120 dev lan0",
            "nat64-route",
            &["64:ff9b::/96", "leads to lan0"],
            "ip route del 64:ff9b::c000:200/120 dev lan0",
        ),
        (
            "ip route add 100.64.9.0/24 dev lan0",
            "nat64-route",
            &["100.64.0.0/16", "leads to lan0"],
            "ip route del 100.64.9.0/24 dev lan0",
        ),
        (
            "ip route del 64:ff9b::/96 dev xdptun64",
            "nat64-route",
            &["64:ff9b::/96", "no route leads to xdptun64"],
            "ip route add 64:ff9b::/96 dev xdptun64",
        ),
    ] {
        // It would put a route back as soon as it hears of any link.
        let _still = attached.process().suspend().unwrap();
        succeed(&net.gateway, breaking);
        let all = findings(&net);
        let failed: Vec<&Value> = all
            .iter()
            .filter(|one| one["check"] == check && one["level"] == "fail")
            .collect();
        let [failed] = failed[..] else {
            panic!("{all:#?}");
        };
        let what = failed["what"].as_str().unwrap();
        assert!(words.iter().all(|word| what.contains(word)), "{what}");
        assert_eq!(failed["mend"], mend);
        succeed(&net.gateway, mend);
        assert_eq!(levels(&findings(&net), check), ["ok", "ok"]);
    }
    succeed(&net.gateway, "ip route add 100.64.0.0/10 dev lan0");
    let words = ["100.64.0.0/10", "lan0"];
    assert_eq!(mend_of(&findings(&net), "nat64-pool", "warn", &words), "");
    attached.stop().unwrap();
}

#[test]
fn a_pool_without_an_address_outside_is_told() {
    let net = Inside::new().unwrap();
    let attached = nat64(&net, &[]);
    let words = ["100.64.0.0/16", "--iface"];
    assert_eq!(
        mend_of(&findings(&net), "nat64-masquerade", "warn", &words),
        ""
    );
    succeed(
        &net.gateway,
        "nft add table ip t && nft add chain ip t c \
         '{ type nat hook postrouting priority 100; }' && \
         nft add rule ip t c ip saddr 100.64.0.0/16 masquerade",
    );
    assert_eq!(levels(&findings(&net), "nat64-masquerade"), ["ok"]);
    let remains = attached.kill().unwrap();
    assert_eq!(levels(&findings(&net), "nat64-daemon"), ["warn"]);
    drop(remains);
}

/// A resolver of this host answers with what DNS64 makes, with another prefix, or with nothing.
#[test]
fn the_resolver_of_this_host_is_asked() {
    let net = Inside::new().unwrap();
    let attached = nat64(&net, &[]);
    let scratch = Scratch::new().unwrap();
    let file = scratch.path().join("resolv.conf");
    fs::write(&file, "nameserver 127.0.0.1\n").unwrap();
    let mount = format!("mount --bind {} /etc/resolv.conf", file.display());
    let behind = |text: &str| Some(text.parse::<Ipv6Addr>().unwrap());
    const REFUSED: u8 = 5;
    for (made, code, level, words) in [
        (behind("64:ff9b::c000:aa"), 0, "ok", "behind 64:ff9b::/96"),
        (behind("fd00::c000:aa"), 0, "warn", "another prefix"),
        (None, 0, "warn", "are no DNS64"),
        (None, REFUSED, "warn", "(127.0.0.1 refuses)"),
    ] {
        let resolver = udp::bind(&net.gateway, (Ipv4Addr::LOCALHOST, 53)).unwrap();
        let answers = thread::spawn(move || {
            let (mut answer, from) = udp::receive(&resolver, LIMIT).unwrap();
            answer[2] |= 0x80;
            answer[3] |= code;
            if let Some(made) = made {
                answer[7] = 1;
                answer.extend([0xc0, 12, 0, 28, 0, 1, 0, 0, 0, 0, 0, 16]);
                answer.extend(made.octets());
            }
            resolver.send_to(&answer, from).unwrap();
        });
        let all = findings_after(&net.gateway, &mount, &DOCTOR);
        let finding = only(&all, "nat64-dns64");
        assert_eq!(finding["level"], level, "{finding:#?}");
        let what = finding["what"].as_str().unwrap();
        assert!(what.contains(words), "{what}");
        answers.join().unwrap();
    }
    // Nobody answers there any more.
    let all = findings_after(&net.gateway, &mount, &DOCTOR);
    let words = ["(127.0.0.1 does not answer)"];
    assert_eq!(mend_of(&all, "nat64-dns64", "warn", &words), "");
    attached.stop().unwrap();
}

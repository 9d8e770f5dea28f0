//! Rules in the file of `xdptun run`, and what outlives a process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::json;
use xdptun_lab::{Attached, Direct, Family, Host, link, udp, wait, xdptun};
use xdptun_test_net::service::{File, OTHER, add, delete, reload, reloads, states};
use xdptun_test_net::socket::roomy;
use xdptun_test_net::status::{expected, hits, policy, policy_counters};
use xdptun_test_net::traces::pins;
use xdptun_test_net::{LIMIT, cli, http};

use crate::wait_counted;

const PORT: u16 = 4000;

/// A rule for what comes in.
fn rule(interface: &str, name: &str, pattern: &str, action: &str) -> String {
    format!(
        "[[interface.{interface}.policy]]\nname = \"{name}\"\ndirection = \"in\"\n\
         contains = \"{pattern}\"\naction = \"{action}\"\n"
    )
}

#[test]
fn a_reload_changes_rules_and_keeps_the_hits_of_those_that_stay() {
    let net = Direct::new().unwrap();
    let [one, two] = ["one", "two"].map(|word| rule(Host::DEV, word, word, "count"));
    let file = File::new(&one);
    let service = file.policy(&net.b, &[]);
    let reported = json!([
        {"name": "eth0", "function": "policy", "state": "carrying", "reason": null},
    ]);
    assert_eq!(states(&net.b.netns), reported);
    let server = udp::Server::echo(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
    let client = udp::bind(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
    let talk = || udp::exchange(&client, server.address(), b"one two", LIMIT).unwrap();
    talk();
    assert_eq!(hits(&net.b.netns).unwrap(), expected(&[("one", 1)]));
    reloads(&net.b.netns, &["no interface changed"]);
    // Before the one that stays.
    file.write(&(two.clone() + &one));
    reloads(&net.b.netns, &["eth0: new policy rules apply"]);
    talk();
    let both = expected(&[("one", 2), ("two", 1)]);
    assert_eq!(hits(&net.b.netns).unwrap(), both);
    // What cannot be applied changes nothing.
    let twice = one.clone() + &one;
    for (text, words) in [
        (twice, "two rules have the name `one`"),
        (one.repeat(33), "33 rules are too many"),
    ] {
        file.write(&text);
        reload(&net.b.netns).assert_one_line(&["nothing was changed", words]);
        assert_eq!(hits(&net.b.netns).unwrap(), both);
    }
    // A rule that changes begins anew.
    file.write(&(rule(Host::DEV, "two", "two ", "count") + &one));
    reloads(&net.b.netns, &["eth0: new policy rules apply"]);
    talk();
    let counted = [("one", 3), ("two", 0)];
    let counted = counted.map(|(name, hits)| (name.to_owned(), hits)).into();
    assert_eq!(hits(&net.b.netns).unwrap(), counted);
    // Interfaces come and go.
    add(&net.b.netns, OTHER);
    file.write(&(one.clone() + &rule(OTHER, "three", "x", "drop")));
    reloads(
        &net.b.netns,
        &[
            "eth0: new policy rules apply",
            "eth1: searches payloads by 1 rule",
        ],
    );
    file.write(&one);
    reloads(&net.b.netns, &["eth1: no longer searched"]);
    file.write("");
    reloads(&net.b.netns, &["eth0: no longer searched"]);
    assert_eq!(states(&net.b.netns), json!([]));
    assert_eq!(pins(&net.b.netns).unwrap(), [""; 0]);
    file.write(&one);
    reloads(&net.b.netns, &["eth0: searches payloads by 1 rule"]);
    talk();
    assert_eq!(hits(&net.b.netns).unwrap(), expected(&[("one", 1)]));
    service.stop().unwrap();
    assert_eq!(pins(&net.b.netns).unwrap(), [""; 0]);
}

/// Each packet has both patterns, of which one set of rules drops one and the other the other: a
/// packet that met a mixture of both sets, or none, would arrive.
#[test]
fn no_packet_meets_a_mixture_of_rules() {
    let net = Direct::new().unwrap();
    let sets = [
        rule(Host::DEV, "first", "OLD", "drop") + &rule(Host::DEV, "second", "absent", "drop"),
        rule(Host::DEV, "first", "absent", "drop") + &rule(Host::DEV, "second", "NEW", "drop"),
    ];
    let file = File::new(&sets[0]);
    let service = file.policy(&net.b, &[]);
    let server = udp::Server::sink(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
    let client = roomy(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
    let ended = AtomicBool::new(false);
    let sent = thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut sent = 0;
            while !ended.load(Ordering::Relaxed) {
                client.send_to(b"OLD and NEW", server.address()).unwrap();
                sent += 1;
            }
            sent
        });
        for round in 1..=20 {
            file.write(&sets[round % 2]);
            reloads(&net.b.netns, &["eth0: new policy rules apply"]);
        }
        ended.store(true, Ordering::Relaxed);
        sender.join().unwrap()
    });
    assert!(sent > 1000, "{sent} datagrams are no load");
    wait_counted(&net.b.netns, &[("in_drop_matched", sent)]);
    assert_eq!(server.datagrams(), 0);
    service.stop().unwrap();
}

/// Another process goes on with the rules and hits of one that runs, and of one that was killed.
#[test]
fn a_successor_goes_on() {
    let net = Direct::new().unwrap();
    let rule = ["--direction", "in", "--contains", "STEPH"];
    let rule = [&rule[..], &["--action", "drop", "--take-over"]].concat();
    let server = udp::Server::echo(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
    let client = udp::bind(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
    let mut dropped = 0;
    let mut drops = || {
        client.send_to(b"STEPH", server.address()).unwrap();
        dropped += 1;
        wait_counted(&net.b.netns, &[("in_drop_matched", dropped)]);
        assert_eq!(hits(&net.b.netns).unwrap(), expected(&[("rule1", dropped)]));
    };
    let first = Attached::policy(&net.b.netns, Host::DEV, &rule).unwrap();
    drops();
    let second = Attached::policy(&net.b.netns, Host::DEV, &rule).unwrap();
    wait::until(LIMIT, "the first process to leave", || {
        !first.process().is_running().unwrap()
    })
    .unwrap();
    let summary = second.summary();
    let told = summary.iter().any(|line| line.contains("took over"));
    assert!(told, "{summary:#?}");
    drops();
    let remains = second.kill().unwrap();
    drops();
    assert_eq!(policy(&net.b.netns).unwrap()["daemon"], json!(null));
    let third = Attached::policy(&net.b.netns, Host::DEV, &rule).unwrap();
    drops();
    third.stop().unwrap();
    drop(remains);
    assert_eq!(pins(&net.b.netns).unwrap(), [""; 0]);
    drop(first);
}

/// What a killed process left is removed.
#[test]
fn detach_removes_what_is_left() {
    let net = Direct::new().unwrap();
    let rule = ["--direction", "in", "--contains", "x", "--action", "count"];
    let attached = Attached::policy(&net.b.netns, Host::DEV, &rule).unwrap();
    let remains = attached.kill().unwrap();
    let findings = cli::run(&net.b.netns, &["doctor", "--iface", Host::DEV]).unwrap();
    let text = format!("{findings:?}");
    assert!(text.contains("no daemon of `policy` runs"), "{text}");
    xdptun::run_in(&net.b.netns, &["detach", "--iface", Host::DEV]).unwrap();
    assert_eq!(pins(&net.b.netns).unwrap(), [""; 0]);
    drop(remains);
}

/// An interface that is made anew is searched again, by the same rules.
#[test]
fn an_interface_that_comes_back_is_searched() {
    let net = Direct::new().unwrap();
    add(&net.b.netns, OTHER);
    let file = File::new(&(rule(Host::DEV, "a", "x", "count") + &rule(OTHER, "b", "y", "count")));
    let service = file.policy(&net.b, &[]);
    let before = link::index(&net.b.netns, OTHER).unwrap();
    delete(&net.b.netns, OTHER);
    add(&net.b.netns, OTHER);
    service
        .wait_ready(OTHER, 2, LIMIT)
        .unwrap_or_else(|error| panic!("{error:#}"));
    assert_ne!(link::index(&net.b.netns, OTHER).unwrap(), before);
    let shown = xdptun::status(&net.b.netns).unwrap();
    let policies = shown["policies"].as_array().unwrap();
    let rules: Vec<_> = policies
        .iter()
        .map(|one| one["rules"][0]["name"].as_str())
        .collect();
    assert_eq!(rules, [Some("a"), Some("b")]);
    service.stop().unwrap();
}

/// Metrics, JSON and rates tell what the status tells.
#[test]
fn hits_are_told_everywhere() {
    let net = Direct::new().unwrap();
    let text = rule(Host::DEV, "word", "STEPH", "count");
    let file = File::new(&format!("metrics = \"127.0.0.1:9469\"\n{text}"));
    let service = file.policy(&net.b, &[]);
    let server = udp::Server::echo(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
    let client = udp::bind(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
    let watch = ["watch", "--json", "--interval", "0.2"];
    let watch = xdptun::spawn(&net.b.netns, &watch).unwrap();
    watch.wait_for_line("{", LIMIT).unwrap();
    for payload in ["STEPH", "other", "a STEPH"] {
        udp::exchange(&client, server.address(), payload.as_bytes(), LIMIT).unwrap();
    }
    let counted = expected(&[("in_matched", 2), ("in_searched", 1)]);
    assert_eq!(policy_counters(&net.b.netns).unwrap(), counted);
    wait::until(LIMIT, "the rates", || {
        let lines = watch.stdout();
        lines.iter().any(|line| line.contains("\"total\":2"))
    })
    .unwrap_or_else(|error| panic!("{error:#}: {:#?}", watch.stdout()));
    let address = "127.0.0.1:9469".parse().unwrap();
    let metrics = http::request(&net.b.netns, address, "GET", "/metrics").unwrap();
    let line = "xdptun_policy_hits_total{interface=\"eth0\",direction=\"in\",rule=\"word\",\
                action=\"count\"} 2";
    assert!(metrics.body.lines().any(|one| one == line), "{metrics:?}");
    service.stop().unwrap();
}

//! What docs/configuration.md says that a reload can change.

use std::collections::BTreeMap;
use std::fs;

use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Attached, Direct, Host, workspace, xdptun};
use xdptun_test_net::{cli, kernel};

/// A table of the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Table {
    Whole,
    Interface,
    Forward,
    Nat,
    Policy,
    Nat64,
}

/// A change of every key, from its default.
fn changes(secret: &str) -> Vec<(Table, &'static str, String)> {
    let other_tc = if kernel::has_tcx() { "clsact" } else { "tcx" };
    let back_ends = "[\"10.0.0.3:7000\", \"10.0.0.4:7000=2\"]";
    let secret = format!("\"{secret}\"");
    let veil = format!("256\nsecret = {secret}");
    let other_tc = format!("\"{other_tc}\"");
    let all = [
        (Table::Whole, "log-level", "\"debug\""),
        (Table::Whole, "max-bindings", "1000"),
        (Table::Whole, "max-sessions", "1000"),
        (Table::Whole, "metrics", "\"127.0.0.1:9469\""),
        (Table::Whole, "resolve-interval", "5"),
        (Table::Whole, "tcp-timeout", "1000"),
        (Table::Whole, "tcp-transitory-timeout", "100"),
        (Table::Whole, "udp-timeout", "30"),
        (Table::Interface, "compat", "\"phantun\""),
        (Table::Interface, "gro", "\"off\""),
        (Table::Interface, "idle-timeout", "60"),
        (Table::Interface, "ingress", "\"xdp-generic\""),
        (Table::Interface, "keepalive", "10"),
        (Table::Interface, "max-flows", "1000"),
        (Table::Interface, "peers", "[\"10.0.0.0/24\"]"),
        (Table::Interface, "ports", "[8001]"),
        (Table::Interface, "secret", &secret),
        (Table::Interface, "tc", &other_tc),
        // It takes a secret.
        (Table::Interface, "veil", &veil),
        (Table::Forward, "listen", "7001"),
        (Table::Forward, "source", "\"masquerade\""),
        (Table::Forward, "steal", "true"),
        (Table::Forward, "to", back_ends),
        (Table::Nat, "filtering", "\"address-and-port-dependent\""),
        (Table::Nat, "inside", "[\"192.168.8.0/24\", \"10.9.0.1\"]"),
        (Table::Nat, "max-bindings-per-host", "100"),
        (Table::Nat, "outside", "\"10.0.0.1\""),
        (Table::Nat, "ports", "\"20000-29999\""),
        (Table::Policy, "action", "\"drop\""),
        (Table::Policy, "contains", "[\"a\", \"hex:00ff\"]"),
        (Table::Policy, "direction", "\"out\""),
        (Table::Policy, "dry-run", "true"),
        (Table::Policy, "from", "\"10.0.0.2\""),
        (Table::Policy, "ignore-case", "true"),
        (Table::Policy, "name", "\"word\""),
        (Table::Policy, "offset", "\"4-\""),
        (Table::Policy, "port", "80"),
        (Table::Policy, "protocol", "\"udp\""),
        (Table::Policy, "to", "\"10.0.0.0/24\""),
        (Table::Nat64, "allow-private", "true"),
        (Table::Nat64, "inside", "[\"fd00:6::/64\", \"fd00:8::9\"]"),
        (Table::Nat64, "mtu", "1400"),
        (Table::Nat64, "per-prefix", "100"),
        (Table::Nat64, "pool", "\"10.64.0.0/24\""),
        (Table::Nat64, "prefix", "\"fd00:64::/96\""),
        (Table::Nat64, "static", "\"100.64.0.9=fd00:6::9\""),
        (Table::Nat64, "tc", &other_tc),
    ];
    all.map(|(table, key, value)| (table, key, value.to_owned()))
        .into()
}

/// The lines of a table, with another value of one key or that key as well.
fn lines(usual: &[(&str, &str)], change: Option<(&str, &str)>) -> String {
    let mut keys: BTreeMap<_, _> = usual.iter().copied().collect();
    keys.extend(change);
    let lines = keys.iter().map(|(key, value)| format!("{key} = {value}\n"));
    lines.collect()
}

/// A file in which one key is not as in the others.
fn file(changed: Table, key: &str, value: &str) -> String {
    let table = |table: Table, usual: &[(&str, &str)]| {
        let change = (table == changed).then_some((key, value));
        lines(usual, change)
    };
    let whole = table(Table::Whole, &[]);
    let interface = table(Table::Interface, &[("ports", "[8000]")]);
    let rule = [("listen", "7000"), ("to", "\"10.0.0.2:7000\"")];
    let forward = table(Table::Forward, &rule);
    let nat = table(Table::Nat, &[("inside", "\"192.168.7.0/24\"")]);
    let rule = [
        ("direction", "\"in\""),
        ("contains", "\"x\""),
        ("action", "\"reset\""),
    ];
    let policy = table(Table::Policy, &rule);
    let nat64 = table(Table::Nat64, &[("inside", "\"fd00:6::/64\"")]);
    format!(
        "{whole}[interface.eth0]\n{interface}[[interface.eth0.forward]]\n{forward}\
         [interface.eth0.nat]\n{nat}[[interface.eth0.policy]]\n{policy}[nat64]\n{nat64}"
    )
}

/// The keys of the page and whether a reload changes each, in their order.
fn documented() -> Vec<(String, bool)> {
    let page = fs::read_to_string(workspace::root().join("docs/configuration.md")).unwrap();
    let rows = page.lines().filter_map(|line| {
        let (key, rest) = line.strip_prefix("| `")?.split_once("` |")?;
        let reloads = match rest.rsplit(" | ").nth(1)? {
            "yes" => true,
            "no" => false,
            other => panic!("{key}: neither yes nor no: {other}"),
        };
        Some((key.to_owned(), reloads))
    });
    rows.collect()
}

#[test]
fn a_reload_changes_what_the_page_says() {
    let net = Direct::new().unwrap();
    let netns = &net.a.netns;
    let scratch = Scratch::new().unwrap();
    let (path, secret) = (
        scratch.path().join("config.toml"),
        scratch.path().join("secret"),
    );
    fs::write(&secret, "known to both hosts").unwrap();
    let write = |table: Table, key: &str, value: &str| {
        fs::write(&path, file(table, key, value)).unwrap();
    };
    write(Table::Interface, "ingress", "\"tc\"");
    let mut command = netns.command(xdptun::binary().unwrap());
    command.arg("run").arg("--config").arg(&path);
    let service = Attached::by(netns, Host::DEV, &mut command).unwrap();
    let mut found = Vec::new();
    for (table, key, value) in changes(secret.to_str().unwrap()) {
        write(table, key, &value);
        let outcome = cli::run(netns, &["reload"]).unwrap();
        let refused = format!("has `{key}` ");
        let reloads = outcome.code == Some(0);
        assert!(
            reloads || outcome.stderr.join("\n").contains(&refused),
            "{key}: {outcome:#?}"
        );
        found.push((key.to_owned(), reloads));
    }
    assert_eq!(found, documented());
    service.stop().unwrap();
}

//! What docs/configuration.md says that a reload can change.

use std::collections::BTreeMap;
use std::fs;

use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Attached, Direct, Host, workspace, xdptun};
use xdptun_test_net::{cli, kernel};

/// A change of every key, from its default.
fn changes(secret: &str) -> Vec<(&'static str, String)> {
    let other_tc = if kernel::has_tcx() { "clsact" } else { "tcx" };
    vec![
        ("log-level", "\"debug\"".to_owned()),
        ("max-sessions", "1000".to_owned()),
        ("metrics", "\"127.0.0.1:9469\"".to_owned()),
        ("resolve-interval", "5".to_owned()),
        ("tcp-timeout", "1000".to_owned()),
        ("tcp-transitory-timeout", "100".to_owned()),
        ("udp-timeout", "30".to_owned()),
        ("idle-timeout", "60".to_owned()),
        ("ingress", "\"xdp-generic\"".to_owned()),
        ("keepalive", "10".to_owned()),
        ("max-flows", "1000".to_owned()),
        ("peers", "[\"10.0.0.0/24\"]".to_owned()),
        ("ports", "[8001]".to_owned()),
        ("secret", format!("\"{secret}\"")),
        ("tc", format!("\"{other_tc}\"")),
        ("listen", "7001".to_owned()),
        ("source", "\"masquerade\"".to_owned()),
        ("steal", "true".to_owned()),
        ("to", "[\"10.0.0.3:7000\", \"10.0.0.4:7000=2\"]".to_owned()),
    ]
}

/// The keys of the whole file, and those of a rule.
const WHOLE: [&str; 7] = [
    "log-level",
    "max-sessions",
    "metrics",
    "resolve-interval",
    "tcp-timeout",
    "tcp-transitory-timeout",
    "udp-timeout",
];
/// See [`WHOLE`].
const OF_RULE: [&str; 4] = ["listen", "source", "steal", "to"];

/// The lines of a table, with another value of one key or that key as well.
fn table(usual: &[(&str, &str)], change: Option<(&str, &str)>) -> String {
    let mut keys: BTreeMap<_, _> = usual.iter().copied().collect();
    keys.extend(change);
    let lines = keys.iter().map(|(key, value)| format!("{key} = {value}\n"));
    lines.collect()
}

/// A file in which one key is not as in the others.
fn file(key: &str, value: &str) -> String {
    let (is_of_whole, is_of_rule) = (WHOLE.contains(&key), OF_RULE.contains(&key));
    let change = |is_there: bool| is_there.then_some((key, value));
    let whole = table(&[], change(is_of_whole));
    let interface = table(&[("ports", "[8000]")], change(!is_of_whole && !is_of_rule));
    let usual = [("listen", "7000"), ("to", "\"10.0.0.2:7000\"")];
    let rule = table(&usual, change(is_of_rule));
    format!("{whole}[interface.eth0]\n{interface}[[interface.eth0.forward]]\n{rule}")
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
    let write = |key: &str, value: &str| fs::write(&path, file(key, value)).unwrap();
    write("ingress", "\"tc\"");
    let mut command = netns.command(xdptun::binary().unwrap());
    command.arg("run").arg("--config").arg(&path);
    let service = Attached::by(netns, Host::DEV, &mut command).unwrap();
    let mut found = Vec::new();
    for (key, value) in changes(secret.to_str().unwrap()) {
        write(key, &value);
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

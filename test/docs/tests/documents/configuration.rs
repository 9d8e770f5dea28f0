//! What docs/configuration.md says that a reload can change.

use std::fs;

use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Attached, Direct, Host, workspace, xdptun};
use xdptun_test_net::{cli, kernel};

/// A change of every key, from its default.
fn changes(secret: &str) -> [(&'static str, String); 11] {
    let other_tc = if kernel::has_tcx() { "clsact" } else { "tcx" };
    [
        ("log-level", "\"debug\"".to_owned()),
        ("metrics", "\"127.0.0.1:9469\"".to_owned()),
        ("resolve-interval", "5".to_owned()),
        ("idle-timeout", "60".to_owned()),
        ("ingress", "\"xdp-generic\"".to_owned()),
        ("keepalive", "10".to_owned()),
        ("max-flows", "1000".to_owned()),
        ("peers", "[\"10.0.0.0/24\"]".to_owned()),
        ("ports", "[8001]".to_owned()),
        ("secret", format!("\"{secret}\"")),
        ("tc", format!("\"{other_tc}\"")),
    ]
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
    let write = |key: &str, value: &str| {
        let text = match key {
            "ports" => format!("[interface.eth0]\nports = {value}\n"),
            "log-level" | "metrics" | "resolve-interval" => {
                format!("{key} = {value}\n[interface.eth0]\nports = [8000]\n")
            }
            _ => format!("[interface.eth0]\nports = [8000]\n{key} = {value}\n"),
        };
        fs::write(&path, text).unwrap();
    };
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

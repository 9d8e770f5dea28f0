//! The printed fields are those that docs/json.md names.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;
use xdptun_lab::{Direct, Family, udp, wait, workspace, xdptun as product};
use xdptun_test_net::service::File;
use xdptun_test_net::{LIMIT, PORT, mode, raw};

/// Objects whose names are data, and what the document writes for one of them.
const MAPS: [(&str, &str); 4] = [
    ("interfaces[].bytes", "NAME"),
    ("interfaces[].counters", "NAME"),
    ("interfaces[].flow_states", "STATE"),
    ("interfaces[].drops", "NAME"),
];

#[test]
fn every_field_is_documented_and_no_other() {
    let document = fs::read_to_string(workspace::root().join("docs/json.md")).unwrap();
    let net = Direct::new().unwrap();
    let file = "[interface.eth0]\nports = [8000]\npeers = [\"10.0.0.0/24\"]\ningress = \"tc\"\n";
    let file = File::new(file);
    let _near = file.run(&net.a);
    let _far = mode::TC.attach(&net.b, &["--port", "8000"]).unwrap();
    let echo = udp::Server::echo(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
    let client = udp::bind(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
    let talk = || udp::exchange(&client, echo.address(), b"hello", LIMIT).unwrap();
    talk();
    for verb in ["status", "flows", "doctor"] {
        let text = product::run_in(&net.a.netns, &[verb, "--json"]).unwrap();
        let printed: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(fields(&printed), documented(&document, verb), "{verb}");
    }

    let watch = ["watch", "--json", "--interval", "0.1"];
    let watch = product::spawn(&net.a.netns, &watch).unwrap();
    watch.wait_for_line("{", LIMIT).unwrap();
    talk();
    let (from, to) = (
        net.b.socket(Family::V4, 4000),
        net.a.socket(Family::V4, PORT),
    );
    raw::send_segment(&net.b.netns, from, to, |header| header.rst = true, b"").unwrap();
    let documented = documented(&document, "watch");
    let mut printed = BTreeSet::new();
    let all = wait::until(LIMIT, "every documented field", || {
        let lines = watch.stdout();
        let lines = lines.iter().map(|line| serde_json::from_str(line).unwrap());
        printed = lines.flat_map(|line| fields(&line)).collect();
        printed.is_superset(&documented)
    });
    assert_eq!(printed, documented, "{all:?}");
}

/// The fields that a section of the document lists.
fn documented(document: &str, verb: &str) -> BTreeSet<String> {
    let title = format!("## xdptun {verb}\n");
    let (_, section) = document.split_once(&title).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let fields = section.lines().filter_map(|line| {
        let (field, _) = line.strip_prefix("| `")?.split_once('`')?;
        Some(field.to_owned())
    });
    fields.collect()
}

/// The paths of all values that are neither lists nor objects.
fn fields(value: &Value) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    walk(value, "", &mut paths);
    paths
}

fn walk(value: &Value, path: &str, paths: &mut BTreeSet<String>) {
    let placeholder = MAPS.iter().find(|(map, _)| *map == path);
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let name = placeholder.map_or(name.as_str(), |(_, placeholder)| placeholder);
                let dot = if path.is_empty() { "" } else { "." };
                walk(value, &format!("{path}{dot}{name}"), paths);
            }
        }
        Value::Array(values) => {
            let path = format!("{path}[]");
            values.iter().for_each(|value| walk(value, &path, paths));
        }
        _ => {
            paths.insert(path.to_owned());
        }
    }
}

//! docs/configuration.md, made from the types of the file and from the command line.

mod schema;

use clap::Arg;
use expect_test::expect_file;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::config::Config;

const ABOUT: &str = "\
# The configuration file

`xdptun run` reads `/etc/xdptun/config.toml`, or the file that `--config` names, in
[TOML](https://toml.io). `xdptun check` names the mistakes in it at once, `xdptun reload` applies a
change. A file with an error changes nothing. If a change fails later, `xdptun reload` says `only in
part`, and what was done. The commented [sample](../xdptun/package/config.toml) has an example of
every key.

A time is a number of seconds, or a text with a unit: `\"25s\"`, `\"10m\"`, `\"2h\"`, `\"1d\"`. A relative path
is one in the directory of the file. `xdptun check --sample` prints the sample.

`xdptun attach`, `xdptun forward`, `xdptun nat`, `xdptun nat64` and `xdptun policy` have options for
nearly every key, with the same meaning and default. Options that repeat (`--port`, `--peer`, `--to`,
`--inside`, `--static`, `--contains`) are lists in the file.

A key with `no` under *reload changes it* is fixed while the interface is attached; only a
change to `\"auto\"` is accepted. To change it: take all interfaces that share its flows or sessions
out of the file, reload, put them back, reload. Between the two reloads packets leave as they are:
UDP of `ports` as UDP, packets of inside hosts with inside addresses. Stop their senders first; for
inside hosts `sysctl -w net.ipv4.ip_forward=0` does.

This page is generated from the code: `UPDATE_EXPECT=1 cargo test -p xdptun reference`
writes it again.
";

const WHOLE: &str = "
## The whole file

";

const INTERFACE: &str = "
## `[interface.NAME]`

One table for each interface. Quote a name with dots: `[interface.\"eth0.100\"]`. `xdptun run`
waits for an interface that does not exist yet.

With `ports`, the interface carries UDP as TCP. With `forward`, it forwards ports. With `nat`, it
translates packets of inside hosts. With `policy`, it searches payloads. It can do all of them. All
keys except `forward`, `nat`, `policy` and `tc` concern the tunnel.

Interfaces whose tables are equal, `forward`, `nat` and `policy` aside, form a group and share their flows
([operating.md](operating.md)), unless they are in different VRFs. All tables of a group must
change together: to separate one interface, take it out of the file, reload, put it back with
its new table, and reload again. Flows of a port or a peer that a reload takes away end.

";

const FORWARD: &str = "
## `[[interface.NAME.forward]]`

One table for each rule ([forward.md](forward.md)); the double brackets make it one of a list.
All interfaces with rules share their sessions. When a reload takes a rule or a back end away, its
sessions are cut, or go on with `xdptun reload --drain`. All others go on.

";

const NAT: &str = "
## `[interface.NAME.nat]`

IPv4 packets of inside hosts that leave by the interface get an outside address and port; answers
go back to the inside host. Several interfaces can have a table; each has its own outside address.

";

const POLICY: &str = "
## `[[interface.NAME.policy]]`

One table for each rule ([policy.md](policy.md)). Rules apply in their order: `count` and `log` go on
to the next rule, `drop` and `reset` end the packet. A reload replaces all rules of an interface at
once; a rule that stays as it is keeps its hits.

";

const NAT64: &str = "
## `[nat64]`

IPv6-only clients reach IPv4 behind a prefix ([nat64.md](nat64.md)). To let addresses of the pool
leave with that of an interface, as `xdptun nat64` does with `--iface`, give the interface a table
`[interface.NAME.nat]` with `inside` set to the pool.

";

const HEAD: &str = "\
| key | type | unit | default | meaning | reload changes it | option |
|---|---|---|---|---|---|---|
";

/// The verbs that have keys of the file as options.
const VERBS: [&str; 5] = ["attach", "forward", "nat", "policy", "nat64"];

#[test]
fn the_page_is_as_the_code_makes_it() {
    let schema = schema();
    let whole = &schema["properties"];
    let interface = &whole["interface"]["additionalProperties"];
    let forward = &interface["properties"]["forward"]["items"];
    let nat = &interface["properties"]["nat"];
    let policy = &interface["properties"]["policy"]["items"];
    let nat64 = &whole["nat64"];
    let page = [
        ABOUT,
        WHOLE,
        &table(whole, &Value::Null, &VERBS),
        INTERFACE,
        &table(
            &interface["properties"],
            &interface["required"],
            &["attach"],
        ),
        FORWARD,
        &table(&forward["properties"], &forward["required"], &["forward"]),
        NAT,
        &table(&nat["properties"], &nat["required"], &["nat"]),
        POLICY,
        &table(&policy["properties"], &policy["required"], &["policy"]),
        NAT64,
        &table(&nat64["properties"], &nat64["required"], &["nat64"]),
    ]
    .concat();
    expect_file!["../../../../docs/configuration.md"].assert_eq(&page);
}

/// Same name, same meaning, in both places.
#[test]
fn the_command_line_has_the_same_keys_and_defaults() {
    let schema = schema();
    let whole = &schema["properties"];
    let interface = &whole["interface"]["additionalProperties"]["properties"];
    let forward = &interface["forward"]["items"]["properties"];
    let nat = &interface["nat"]["properties"];
    let policy = &interface["policy"]["items"]["properties"];
    let nat64 = &whole["nat64"]["properties"];
    let keys = |table: &Value| table.as_object().unwrap().clone();
    let of_interface = || keys(whole).into_iter().chain(keys(interface));
    for (command, keys, rest) in [
        (
            "attach",
            of_interface().collect::<Vec<_>>(),
            &["iface", "take-over", "to"][..],
        ),
        (
            "forward",
            of_interface().collect(),
            &[
                "iface",
                "listen",
                "to",
                "source",
                "table",
                "steal",
                "drain",
                "take-over",
            ],
        ),
        // Its `ports` are not those of the tunnel.
        (
            "nat",
            of_interface()
                .filter(|(key, _)| key != "ports")
                .chain(keys(nat))
                .collect(),
            &["iface", "take-over"],
        ),
        (
            "policy",
            of_interface().chain(keys(policy)).collect(),
            &["iface", "take-over"],
        ),
        (
            "nat64",
            of_interface().chain(keys(nat64)).collect(),
            &["iface", "take-over"],
        ),
    ] {
        let mut options: Vec<String> = options_of(command).filter_map(|one| name(&one)).collect();
        for (key, schema) in keys {
            let Some(option) = options_of(command).find(|option| is_option_of(option, &key)) else {
                continue;
            };
            let default = option.get_default_values().first();
            let default = default.map(|default| default.to_str().unwrap().to_owned());
            let expected = match &schema["default"] {
                // A flag.
                Value::Null | Value::Bool(false) => None,
                Value::Array(list) if list.is_empty() => None,
                Value::String(text) => Some(text.clone()),
                other => Some(other.to_string()),
            };
            assert_eq!(default, expected, "{command}: {key}");
            options.retain(|other| Some(other) != name(&option).as_ref());
        }
        let sorted = |mut names: Vec<String>| {
            names.sort_unstable();
            names
        };
        let rest = rest.iter().map(ToString::to_string).collect();
        assert_eq!(sorted(options), sorted(rest), "{command}");
    }
    // A rule has the same words, and each rule of the file its own.
    for key in keys(forward).keys() {
        assert!(option(&["forward"], key).is_some(), "{key}");
    }
}

/// The types of the file, with what doc comments and attributes say of them.
fn schema() -> Value {
    SchemaSettings::default()
        .with(|settings| settings.inline_subschemas = true)
        .into_generator()
        .into_root_schema_for::<Config>()
        .to_value()
}

/// The rows of keys, with the options of some verbs.
fn table(keys: &Value, required: &Value, verbs: &[&str]) -> String {
    let mut rows = String::from(HEAD);
    for (key, schema) in keys.as_object().unwrap() {
        if ["interface", "forward", "nat", "policy", "nat64"].contains(&key.as_str()) {
            continue;
        }
        let is_required = required
            .as_array()
            .is_some_and(|keys| keys.contains(&key.as_str().into()));
        let default = match &schema["default"] {
            _ if is_required => "required".to_owned(),
            Value::Null => "none".to_owned(),
            Value::Array(list) if list.is_empty() => "none".to_owned(),
            value => format!("`{value}`"),
        };
        let fixed = schema["fixed"] == true;
        let option = option(verbs, key).and_then(|option| name(&option));
        rows += &format!(
            "| `{key}` | {} | {} | {default} | {} | {} | {} |\n",
            kind(schema),
            schema["unit"].as_str().unwrap_or_default(),
            meaning(schema),
            if fixed { "no" } else { "yes" },
            option.map_or_else(String::new, |option| format!("`--{option}`")),
        );
    }
    rows
}

/// The type of a key, as the table shows it.
fn kind(schema: &Value) -> String {
    if let Some(title) = schema["title"].as_str() {
        return title.to_owned();
    }
    if schema["type"] == "array" {
        return format!("list of {}", kind(&schema["items"]));
    }
    if schema["type"] == "boolean" {
        return "`true` or `false`".to_owned();
    }
    if schema["type"] == "integer" {
        let (least, most) = (&schema["minimum"], &schema["maximum"]);
        return format!("{least} to {most}");
    }
    let values = choices(schema).into_iter();
    let values: Vec<String> = values.map(|(value, _)| format!("`\"{value}\"`")).collect();
    assert!(!values.is_empty(), "neither title nor values: {schema:#}");
    values.join(", ")
}

/// The doc comment, and those of the choices.
fn meaning(schema: &Value) -> String {
    let mut text = unwrapped(schema);
    for (value, meaning) in choices(schema) {
        if let Some(meaning) = meaning {
            text += &format!(" `{value}`: {}", lower_case(&meaning));
        }
    }
    text
}

fn unwrapped(schema: &Value) -> String {
    let text = schema["description"].as_str();
    let text = text.unwrap_or_else(|| panic!("no doc comment: {schema:#}"));
    text.replace('\n', " ")
}

/// A sentence that goes on after a colon; "XDP" and "TCX" stay.
fn lower_case(sentence: &str) -> String {
    let second = sentence.chars().nth(1);
    if second.is_some_and(char::is_uppercase) {
        return sentence.to_owned();
    }
    let (first, rest) = sentence.split_at(1);
    first.to_lowercase() + rest
}

/// The values of an enum, each with its doc comment if it has one.
fn choices(schema: &Value) -> Vec<(String, Option<String>)> {
    let list = |key: &str| schema[key].as_array().cloned().unwrap_or_default();
    let plain = list("enum").into_iter().map(|value| (value, None));
    let documented = list("oneOf").into_iter().map(|choice| {
        let meaning = unwrapped(&choice);
        (choice["const"].clone(), Some(meaning))
    });
    plain
        .chain(documented)
        .map(|(value, meaning)| (value.as_str().unwrap().to_owned(), meaning))
        .collect()
}

/// The options of a verb.
fn options_of(verb: &str) -> impl Iterator<Item = Arg> {
    let command = super::command();
    let verb = command.find_subcommand(verb).unwrap();
    let options: Vec<Arg> = verb.get_arguments().cloned().collect();
    options.into_iter()
}

fn name(option: &Arg) -> Option<String> {
    option.get_long().map(str::to_owned)
}

/// The first option of these verbs that is the same as a key.
fn option(verbs: &[&str], key: &str) -> Option<Arg> {
    let mut all = verbs.iter().flat_map(|verb| options_of(verb));
    all.find(|option| is_option_of(option, key))
}

/// Whether an option is the same as a key: a list has the plural.
fn is_option_of(option: &Arg, key: &str) -> bool {
    let long = option.get_long();
    long == Some(key) || long == key.strip_suffix('s')
}

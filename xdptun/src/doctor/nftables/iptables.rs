//! Rules of iptables that `nft` does not list, or not whole, in the words of nft.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::iter::Peekable;
use std::process::Command;
use std::vec::IntoIter;

use serde_json::{Value, json};

use super::{Ruleset, Tool};
use crate::error::{Context as _, Result, bail};

/// A family of addresses, the kernel's list of its tables, and the program that prints their rules.
const FAMILIES: [(&str, &str, &str); 2] = [
    ("ip", "/proc/net/ip_tables_names", "iptables-legacy-save"),
    ("ip6", "/proc/net/ip6_tables_names", "ip6tables-legacy-save"),
];

/// Matches that test nothing but what their options say.
const TOLD_BY_OPTIONS: [&str; 6] = ["comment", "conntrack", "multiport", "state", "tcp", "udp"];

/// The rules of this network namespace, if there are any, of each family.
///
/// # Errors
///
/// If there are some, and the program that prints them is missing or fails.
pub fn list() -> Result<Vec<Ruleset>> {
    let mut rulesets = Vec::new();
    for (family, list, program) in FAMILIES {
        let tables = match fs::read_to_string(list) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            tables => tables.with_context(|| format!("cannot read {list}"))?,
        };
        // The program would make tables that are not there.
        if !tables.trim().is_empty() {
            rulesets.push(parse(family, &saved(program)?, Tool::IptablesLegacy));
        }
    }
    Ok(rulesets)
}

/// The families of nft that an iptables makes tables of, and the program that prints their rules.
const OF_NFT: [(&str, &str); 2] = [("ip", "iptables-nft-save"), ("ip6", "ip6tables-nft-save")];

/// Takes the rules of a family out of what nft listed, if one of them has a match or target of
/// iptables, and returns them as that iptables lists them.
///
/// # Errors
///
/// If there are some, and the program that prints them is missing or fails.
pub fn instead_of(ruleset: &mut Ruleset) -> Result<Vec<Ruleset>> {
    let mut rulesets = Vec::new();
    for (family, program) in OF_NFT {
        let is_extended = |statement: &Value| statement.get("xt").is_some();
        let rules = ruleset.all_rules();
        let mut rules = rules.filter(|rule| rule.table.family == family);
        let are_extended = rules.any(|rule| rule.statements.iter().any(is_extended));
        drop(rules);
        if are_extended {
            let listed = parse(family, &saved(program)?, Tool::Nft);
            // Tables that it did not make it does not list.
            let tables: BTreeSet<String> = listed.tables().map(str::to_owned).collect();
            ruleset.remove(family, &tables);
            rulesets.push(listed);
        }
    }
    Ok(rulesets)
}

fn saved(program: &str) -> Result<String> {
    let output = match Command::new(program).output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!(
            Other,
            "there are rules of iptables, but {program} is not installed"
        ),
        output => output.with_context(|| format!("cannot run {program}"))?,
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!(Other, "`{program}`: {}", said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Reads what `iptables-save` printed.
fn parse(family: &str, text: &str, tool: Tool) -> Ruleset {
    let mut objects = Vec::new();
    let mut table = "";
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = name;
        } else if let Some(chain) = line.strip_prefix(':') {
            objects.push(chain_object(family, table, chain));
        } else if let Some(rule) = line.strip_prefix("-A ") {
            objects.extend(rule_object(family, table, rule));
        }
    }
    Ruleset { objects, tool }
}

/// Options with a text of the user.
const TAKE_TEXT: [&str; 3] = ["--comment", "--log-prefix", "--nflog-prefix"];

/// `INPUT DROP [0:0]`; a chain of a user has the policy `-`, and no hook.
fn chain_object(family: &str, table: &str, line: &str) -> Value {
    let mut words = line.split_whitespace();
    let (name, policy) = (words.next().unwrap_or_default(), words.next());
    let mut chain = json!({ "family": family, "table": table, "name": name });
    if let Some(policy @ ("ACCEPT" | "DROP")) = policy {
        chain["type"] = if table == "nat" { "nat" } else { "filter" }.into();
        chain["hook"] = name.to_ascii_lowercase().into();
        chain["policy"] = policy.to_ascii_lowercase().into();
    }
    json!({ "chain": chain })
}

/// `INPUT -p udp -m udp --dport 8000 -j DROP`
fn rule_object(family: &str, table: &str, line: &str) -> Option<Value> {
    let mut words = words(line).into_iter().peekable();
    let chain = words.next()?;
    let mut protocol = String::new();
    let mut statements = Vec::new();
    while let Some(word) = words.next() {
        let is_negated = word == "!";
        let option = if is_negated { words.next()? } else { word };
        let mut arguments = arguments(&mut words);
        if arguments.is_empty() && TAKE_TEXT.contains(&option.as_str()) {
            // It may begin as an option does.
            arguments.extend(words.next());
        }
        if option == "-p" {
            protocol = arguments.first()?.clone();
        }
        statements.extend(statement(&option, &arguments, &protocol, is_negated));
    }
    Some(json!({ "rule": {
        "family": family, "table": table, "chain": chain, "handle": 0, "expr": statements,
    } }))
}

/// The words up to the next option.
fn arguments(words: &mut Peekable<IntoIter<String>>) -> Vec<String> {
    let mut all = Vec::new();
    while let Some(word) = words.next_if(|word| word != "!" && !word.starts_with('-')) {
        all.push(word);
    }
    all
}

/// What an option says; `None` if that is nothing.
fn statement(option: &str, arguments: &[String], protocol: &str, negated: bool) -> Option<Value> {
    let argument = arguments.first().map_or("", String::as_str);
    let (left, right) = match option {
        "-m" if TOLD_BY_OPTIONS.contains(&argument) => return None,
        "-j" => return target("jump", argument),
        "-g" => return target("goto", argument),
        "--reject-with" | "--comment" | "--log-prefix" | "--nflog-prefix" => return None,
        "-i" => (json!({"meta": {"key": "iifname"}}), name(argument)),
        "-o" => (json!({"meta": {"key": "oifname"}}), name(argument)),
        "-p" => (json!({"meta": {"key": "l4proto"}}), argument.into()),
        "--dport" | "--dports" | "--sport" | "--sports" => {
            let field = option.trim_start_matches('-').trim_end_matches('s');
            let payload = json!({"payload": {"protocol": protocol, "field": field}});
            (payload, ports(argument)?)
        }
        "--ctstate" | "--state" => {
            let states = argument.to_ascii_lowercase();
            let states: Vec<&str> = states.split(',').collect();
            (json!({"ct": {"key": "state"}}), states.into())
        }
        _ => return Some(json!({"xt": {"type": "match", "name": option}})),
    };
    let op = if negated { "!=" } else { "==" };
    Some(json!({"match": {"op": op, "left": left, "right": right}}))
}

fn target(kind: &str, name: &str) -> Option<Value> {
    Some(match name {
        "ACCEPT" => json!({"accept": null}),
        "DROP" => json!({"drop": null}),
        "REJECT" => json!({"reject": null}),
        "RETURN" => json!({"return": null}),
        "NFQUEUE" => json!({"queue": null}),
        // They change or note the packet, which goes on.
        "LOG" | "NFLOG" | "MARK" | "CONNMARK" | "CT" | "NOTRACK" | "TCPMSS" | "DSCP" | "TOS" => {
            return None;
        }
        _ => json!({ kind: {"target": name} }),
    })
}

/// `eth+`, which nft writes as `eth*`.
fn name(interface: &str) -> Value {
    match interface.strip_suffix('+') {
        Some(prefix) => format!("{prefix}*").into(),
        None => interface.into(),
    }
}

/// `53,8000:8010`
fn ports(list: &str) -> Option<Value> {
    let range = |item: &str| match item.split_once(':') {
        Some((first, last)) => {
            let first: u16 = if first.is_empty() {
                0
            } else {
                first.parse().ok()?
            };
            let last: u16 = if last.is_empty() {
                u16::MAX
            } else {
                last.parse().ok()?
            };
            Some(json!({"range": [first, last]}))
        }
        None => item.parse::<u16>().ok().map(Value::from),
    };
    let all: Option<Vec<Value>> = list.split(',').map(range).collect();
    Some(json!({ "set": all? }))
}

/// The words of a line; one in quotes may have spaces.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let (mut is_quoted, mut is_escaped) = (false, false);
    for character in line.chars() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => {
                is_escaped = true;
                continue;
            }
            '"' => {
                is_quoted = !is_quoted;
                continue;
            }
            ' ' if !is_quoted => {
                words.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(word) = words.last_mut() {
            word.push(character);
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAVED: &str = r#"# Generated by iptables-save
*filter
:INPUT DROP [0:0]
:own - [0:0]
-A INPUT -s 192.0.2.0/24 ! -i lo -p udp -m multiport --dports 53,8000:8010 -m comment --comment "-a \" -j ACCEPT" -j own
-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A own -o eth+ -p udp -m udp --sport 1024: -j REJECT --reject-with icmp-port-unreachable
COMMIT
"#;

    #[test]
    fn rules_are_those_of_nft() {
        let ruleset = parse("ip", SAVED, Tool::IptablesLegacy);
        let chains = ruleset.base_chains(&["filter"], "input", "eth0");
        assert_eq!((chains.len(), chains[0].name), (1, "INPUT"));
        assert!(chains[0].drops_by_policy);
        let rules: Vec<_> = ruleset.all_rules().collect();
        let condition = |op: &str, left: Value, right: Value| json!({"match": {"op": op, "left": left, "right": right}});
        let l4 = || condition("==", json!({"meta": {"key": "l4proto"}}), "udp".into());
        let port = |field: &str| json!({"payload": {"protocol": "udp", "field": field}});
        let dports = json!({"set": [53, {"range": [8000, 8010]}]});
        assert_eq!(
            rules[0].statements,
            [
                json!({"xt": {"type": "match", "name": "-s"}}),
                condition("!=", json!({"meta": {"key": "iifname"}}), "lo".into()),
                l4(),
                condition("==", port("dport"), dports),
                json!({"jump": {"target": "own"}}),
            ]
        );
        let state = json!({"ct": {"key": "state"}});
        let states = json!(["related", "established"]);
        let accept = json!({"accept": null});
        assert_eq!(
            rules[1].statements,
            [condition("==", state, states), accept]
        );
        let sports = json!({"set": [{"range": [1024, 65535]}]});
        assert_eq!(
            rules[2].statements,
            [
                condition("==", json!({"meta": {"key": "oifname"}}), "eth*".into()),
                l4(),
                condition("==", port("sport"), sports),
                json!({"reject": null}),
            ]
        );
    }
}

//! The conditions of rules, as far as they tell packets from outside hosts apart.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde_json::Value;
use xdptun_common::wire::Protocol;

use super::ends::Ends;
use crate::doctor::nftables::{Ruleset, Table, is_named, port_range};

/// Packets from outside hosts to this host.
#[derive(Clone, Copy)]
pub struct Packets<'a> {
    /// The interface by which they come in.
    pub interface: &'a str,
    /// Their destination, if it is known.
    pub to: Option<Ipv4Addr>,
    pub ruleset: &'a Ruleset,
}

impl Packets<'_> {
    /// The ends whose packets meet a condition, or may meet it.
    pub fn meeting(&self, table: Table<'_>, condition: &Value, ends: &Ends) -> Ends {
        let key = &condition["left"];
        let ends = having(key, ends);
        let values = self.ruleset.values(table, &condition["right"]);
        let Some(equal) = self.with_one_of(key, values, &ends) else {
            return ends;
        };
        match condition["op"].as_str() {
            Some("==" | "in") => equal,
            Some("!=") if equal == ends => Ends::default(),
            _ => ends,
        }
    }

    /// The ends whose packets have, or may have, one of the values.
    pub fn selected<'v>(
        &self,
        key: &Value,
        values: impl IntoIterator<Item = &'v Value>,
        ends: &Ends,
    ) -> Ends {
        let ends = having(key, ends);
        self.with_one_of(key, values, &ends).unwrap_or(ends)
    }

    /// `None` if that cannot be told.
    fn with_one_of<'v>(
        &self,
        key: &Value,
        values: impl IntoIterator<Item = &'v Value>,
        ends: &Ends,
    ) -> Option<Ends> {
        let values = values.into_iter();
        let parts: Option<_> = values.map(|value| self.with(key, value, ends)).collect();
        parts.map(Ends::union)
    }

    /// The ends whose packets have a value; `None` if that cannot be told.
    fn with(&self, key: &Value, value: &Value, ends: &Ends) -> Option<Ends> {
        if let Some(keys) = key["concat"].as_array() {
            let values = value["concat"].as_array()?;
            let mut both = keys.iter().zip(values);
            return both.try_fold(ends.clone(), |ends, (key, value)| {
                self.with(key, value, &ends)
            });
        }
        let all_if = |is_met: bool| match is_met {
            true => ends.clone(),
            false => Ends::default(),
        };
        let payload = &key["payload"];
        let field = payload["field"].as_str();
        match (
            payload["protocol"].as_str(),
            field.or_else(|| key["meta"]["key"].as_str())?,
        ) {
            (Some("tcp" | "udp" | "th"), "dport") => Some(ends.among(port_range(value)?)),
            (Some("ip"), "daddr") => Some(all_if(includes(value, self.to?)?)),
            (Some("ip"), "protocol") | (None, "l4proto") => Some(of_protocol(value, ends)),
            (None, "iif" | "iifname") => Some(all_if(is_named(&[value], self.interface))),
            (None, "nfproto") => Some(all_if(value == "ipv4")),
            _ => None,
        }
    }
}

/// The ends whose packets have a field. To all others a condition does not apply, whatever it says.
fn having(key: &Value, ends: &Ends) -> Ends {
    if let Some(keys) = key["concat"].as_array() {
        return keys
            .iter()
            .fold(ends.clone(), |ends, key| having(key, &ends));
    }
    match key["payload"]["protocol"].as_str() {
        Some("tcp") => ends.of(Protocol::TCP),
        Some("udp") => ends.of(Protocol::UDP),
        Some("ip6" | "icmp" | "icmpv6" | "igmp" | "sctp" | "dccp") => Ends::default(),
        _ => ends.clone(),
    }
}

/// Those of a protocol by its name or number.
fn of_protocol(value: &Value, ends: &Ends) -> Ends {
    match (value.as_str(), value.as_u64()) {
        (Some("tcp"), _) | (_, Some(6)) => ends.of(Protocol::TCP),
        (Some("udp"), _) | (_, Some(17)) => ends.of(Protocol::UDP),
        _ => Ends::default(),
    }
}

/// Whether an address, prefix or range includes an address; `None` if it is something else.
fn includes(value: &Value, address: Ipv4Addr) -> Option<bool> {
    let parse = |value: &Value| value.as_str()?.parse::<Ipv4Addr>().ok();
    if let Some(prefix) = value.get("prefix") {
        let length = u8::try_from(prefix["len"].as_u64()?).ok()?;
        let network = Ipv4Net::new(parse(&prefix["addr"])?, length).ok()?;
        return Some(network.contains(&address));
    }
    if let Some([first, last]) = value["range"].as_array().map(Vec::as_slice) {
        return Some((parse(first)?..=parse(last)?).contains(&address));
    }
    Some(parse(value)? == address)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn equal(key: Value, value: Value) -> Value {
        json!({"match": {"op": "==", "left": key, "right": value}})
    }

    fn payload(protocol: &str, field: &str) -> Value {
        json!({"payload": {"protocol": protocol, "field": field}})
    }

    fn meta(key: &str) -> Value {
        json!({"meta": {"key": key}})
    }

    /// The ports of TCP and UDP, of 1000 to 1999, whose packets may meet a condition.
    fn meeting(statement: &Value) -> [String; 2] {
        let set = json!({"set": {"family": "ip", "table": "t", "name": "s",
            "elem": [1001, {"elem": {"val": 1003, "timeout": 60}}]}});
        let ruleset = Ruleset::parse(&json!({"nftables": [set]}).to_string()).unwrap();
        let packets = Packets {
            interface: "wan0",
            to: Some(Ipv4Addr::new(192, 0, 2, 7)),
            ruleset: &ruleset,
        };
        let table = Table {
            family: "ip",
            name: "t",
        };
        let ends = Ends::at("1000-1999".parse().unwrap());
        let ends = packets.meeting(table, &statement["match"], &ends);
        Ends::PROTOCOLS.map(|protocol| {
            let ports = ends.ports(protocol).into_iter();
            let ports: Vec<String> = ports.map(|range| range.to_string()).collect();
            ports.join(" ")
        })
    }

    #[test]
    fn conditions_tell_packets_apart_as_far_as_they_can_be_judged() {
        let unlike = |mut statement: Value| {
            statement["match"]["op"] = json!("!=");
            statement
        };
        let all = ["1000-1999"; 2];
        let none = [""; 2];
        let (tcp, th) = (payload("tcp", "dport"), payload("th", "dport"));
        let to = payload("ip", "daddr");
        let pair = json!({"concat": [to, tcp]});
        for (statement, expected) in [
            (equal(tcp.clone(), json!(1001)), ["1001", ""]),
            (equal(th.clone(), json!(1001)), ["1001"; 2]),
            (
                equal(payload("udp", "dport"), json!({"range": [1, 1010]})),
                ["", "1000-1010"],
            ),
            (
                equal(tcp.clone(), json!({"set": [80, 1001, 1002]})),
                ["1001-1002", ""],
            ),
            (equal(tcp.clone(), json!("@s")), ["1001 1003", ""]),
            (equal(tcp.clone(), json!("@unknown")), none),
            (unlike(equal(tcp.clone(), json!(1001))), ["1000-1999", ""]),
            (
                unlike(equal(tcp.clone(), json!({"range": [1, 5000]}))),
                none,
            ),
            (equal(payload("tcp", "sport"), json!(53)), ["1000-1999", ""]),
            (equal(meta("l4proto"), json!("udp")), ["", "1000-1999"]),
            (
                equal(payload("ip", "protocol"), json!({"set": ["tcp", "icmp"]})),
                ["1000-1999", ""],
            ),
            (equal(meta("nfproto"), json!("ipv6")), none),
            (equal(payload("ip6", "daddr"), json!("fd00::1")), none),
            (equal(meta("iifname"), json!("wan*")), all),
            (equal(meta("iif"), json!("lan0")), none),
            (unlike(equal(meta("iifname"), json!("lan0"))), all),
            (unlike(equal(meta("iifname"), json!("wan0"))), none),
            (equal(to.clone(), json!("192.0.2.7")), all),
            (equal(to.clone(), json!("192.0.2.8")), none),
            (
                equal(
                    to.clone(),
                    json!({"prefix": {"addr": "192.0.2.0", "len": 24}}),
                ),
                all,
            ),
            (
                equal(to.clone(), json!({"range": ["192.0.2.8", "192.0.2.9"]})),
                none,
            ),
            (
                equal(
                    pair.clone(),
                    json!({"set": [{"concat": ["192.0.2.8", 1001]}, {"concat": ["192.0.2.7", 1002]}]}),
                ),
                ["1002", ""],
            ),
            (equal(payload("ip", "saddr"), json!("198.51.100.1")), all),
            (
                unlike(equal(payload("ip", "saddr"), json!("198.51.100.1"))),
                all,
            ),
            (
                equal(json!({"fib": {"result": "type"}}), json!("local")),
                all,
            ),
        ] {
            assert_eq!(meeting(&statement), expected, "{statement}");
        }
    }
}

//! Rules as the programs read them, and back.

use std::net::IpAddr;
use std::num::NonZeroU16;

use ipnet::IpNet;
use xdptun_common::address::{address_bytes, ip_addr};
use xdptun_common::policy::compile::{compile, patterns};
use xdptun_common::policy::rule::{Action, Direction, NAME, NO_END, Network, Rule};
use xdptun_common::policy::table::Table;
use xdptun_common::wire::Protocol;

use crate::config::{Offset, Pattern, PolicyAction, PolicyDirection, PolicyProtocol, PolicyRule};
use crate::error::{Result, bail};

/// The rule of a configuration, as the programs read it; `place` is its place among the rules of
/// its interface.
///
/// # Errors
///
/// If its patterns have no room.
pub fn compiled(policy: &PolicyRule, place: usize) -> Result<Box<Rule>> {
    let mut name = [0; NAME];
    for (byte, letter) in name.iter_mut().zip(policy.name_at(place).as_str().bytes()) {
        *byte = letter;
    }
    let mut rule = Box::new(Rule {
        from: policy.from.map_or(Network::ALL, network),
        to: policy.to.map_or(Network::ALL, network),
        name,
        first: policy.offset.map_or(0, |offset| offset.first.into()),
        end: policy
            .offset
            .and_then(|offset| offset.last)
            .map_or(NO_END, |last| u32::from(last) + 1),
        port: policy.port.map_or(0, NonZeroU16::get),
        protocol: policy.protocol.map_or(0, |protocol| match protocol {
            PolicyProtocol::Tcp => Protocol::TCP.0,
            PolicyProtocol::Udp => Protocol::UDP.0,
        }),
        direction: direction(policy.direction) as u8,
        action: match policy.action {
            PolicyAction::Count => Action::Count,
            PolicyAction::Log => Action::Log,
            PolicyAction::Drop => Action::Drop,
            PolicyAction::Reset => Action::Reset,
        } as u8,
        dry_run: policy.dry_run.into(),
        reserved: [0; 2],
        table: Table::EMPTY,
    });
    let patterns: Vec<&[u8]> = policy.contains.iter().map(Pattern::bytes).collect();
    if let Err(why) = compile(&mut rule.table, &patterns, policy.ignore_case) {
        bail!(Invalid, "{policy}: the patterns are refused: {why:?}");
    }
    Ok(rule)
}

/// The direction as the programs read it.
pub const fn direction(direction: PolicyDirection) -> Direction {
    match direction {
        PolicyDirection::In => Direction::In,
        PolicyDirection::Out => Direction::Out,
    }
}

/// A network of addresses of 16 bytes.
fn network(net: IpNet) -> Network {
    let mask = match net {
        IpNet::V4(_) => u128::MAX << (32 - net.prefix_len()),
        IpNet::V6(net) => u128::from(net.netmask()),
    };
    Network {
        address: address_bytes(net.network()),
        mask: mask.to_be_bytes(),
    }
}

/// The inverse of [`network`]; `None` if it is that of all addresses.
fn net_of(network: &Network) -> Option<IpNet> {
    let prefix = u128::from_be_bytes(network.mask).leading_ones() as u8;
    if *network == Network::ALL {
        return None;
    }
    match ip_addr(network.address) {
        IpAddr::V4(address) => IpNet::new(address.into(), prefix.saturating_sub(96)).ok(),
        address @ IpAddr::V6(_) => IpNet::new(address, prefix).ok(),
    }
}

/// A rule as the maps have it at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresentRule {
    /// Its name.
    pub name: String,
    /// What it does.
    pub policy: PolicyRule,
    /// How many packets have matched it on the interface.
    pub hits: u64,
}

impl PresentRule {
    /// A rule of the map.
    pub(super) fn of(rule: &Rule, hits: u64) -> Self {
        let end = (rule.end != NO_END).then(|| rule.end.saturating_sub(1) as u16);
        let contains = patterns(&rule.table);
        let contains = contains.filter_map(|(bytes, len)| Pattern::new(bytes[..len].to_vec()).ok());
        Self {
            name: text_of(&rule.name),
            policy: PolicyRule {
                name: None,
                direction: match Direction::from_raw(rule.direction) {
                    Direction::In => PolicyDirection::In,
                    Direction::Out => PolicyDirection::Out,
                },
                protocol: match Protocol(rule.protocol) {
                    Protocol::TCP => Some(PolicyProtocol::Tcp),
                    Protocol::UDP => Some(PolicyProtocol::Udp),
                    _ => None,
                },
                from: net_of(&rule.from),
                to: net_of(&rule.to),
                port: NonZeroU16::new(rule.port),
                contains: contains.collect(),
                ignore_case: rule.table.ignores_case(),
                offset: (rule.first != 0 || end.is_some()).then_some(Offset {
                    first: rule.first as u16,
                    last: end,
                }),
                action: match rule.action() {
                    Action::Count => PolicyAction::Count,
                    Action::Log => PolicyAction::Log,
                    Action::Drop => PolicyAction::Drop,
                    Action::Reset => PolicyAction::Reset,
                },
                dry_run: rule.dry_run != 0,
            },
            hits,
        }
    }
}

/// The name of a rule, as maps and events have it. Pins may be another user's: nothing of theirs
/// commands a terminal.
pub fn text_of(name: &[u8; NAME]) -> String {
    let len = name.iter().position(|byte| *byte == 0).unwrap_or(NAME);
    let name = String::from_utf8_lossy(&name[..len]);
    name.replace(|letter: char| letter.is_control(), "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_maps_tell_what_the_configuration_said() {
        for text in [
            "contains = \"STEPH\"",
            "contains = [\"a\", \"hex:00ff\"]\nport = 80\nprotocol = \"tcp\"",
            "contains = \"x\"\nfrom = \"10.1.0.0/16\"\nto = \"10.2.0.1\"\noffset = \"4-\"",
            "contains = \"x\"\nfrom = \"0.0.0.0/0\"\noffset = \"0-15\"\nprotocol = \"udp\"",
            "contains = \"x\"\nto = \"2001:db8::/32\"\nignore-case = true\ndry-run = true",
        ] {
            let text = format!("direction = \"out\"\naction = \"reset\"\n{text}");
            let policy: PolicyRule = toml::from_str(&text).unwrap();
            let rule = compiled(&policy, 4).unwrap();
            let told = PresentRule::of(&rule, 3);
            assert_eq!((told.policy, told.hits), (policy, 3), "{text}");
            assert_eq!(told.name, "rule5");
        }
    }
}

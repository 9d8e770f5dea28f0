//! Rules as the programs read them.

use std::collections::BTreeMap;

use xdptun_common::address::address_bytes;
use xdptun_common::gateway::rule::{BackEnd, Listen, ListenKey, MAX_BACK_ENDS};

use super::settings::{self, Rule, Source};
use crate::error::{Result, bail};

/// The contents of the maps `LISTEN` and `BACK_ENDS`.
pub struct Tables {
    pub listen: BTreeMap<ListenKey, Listen>,
    /// The places of the map from `first` on.
    pub back_ends: Vec<BackEnd>,
    pub first: u32,
}

impl Tables {
    /// Those for some rules, beside the back ends that rules in the maps name at this moment. The
    /// ports of a rule share its places.
    ///
    /// # Errors
    ///
    /// If there are too many back ends.
    pub fn of(rules: &[Rule], present: &[Listen]) -> Result<Self> {
        let places = |rule: &Rule| {
            let all = rule.back_ends.iter();
            all.map(|one| u32::from(one.weight)).sum::<u32>()
        };
        let needed: u32 = rules.iter().map(places).sum();
        let begin = present.iter().map(|one| one.first).min().unwrap_or(0);
        let end = present.iter().map(|one| one.first + one.places).max();
        let end = end.unwrap_or(0);
        let first = match (needed <= begin, end + needed <= MAX_BACK_ENDS) {
            (true, _) => 0,
            (false, true) => end,
            (false, false) => bail!(
                Invalid,
                "back ends with weights of {needed} together are too many; there is room for {} \
                 beside those of the rules that they replace",
                MAX_BACK_ENDS - end
            ),
        };
        let mut tables = Self {
            listen: BTreeMap::new(),
            back_ends: Vec::new(),
            first,
        };
        for (number, rule) in (0..).zip(rules) {
            tables.add(number, rule, places(rule));
        }
        Ok(tables)
    }

    fn add(&mut self, number: u32, rule: &Rule, places: u32) {
        let listen = Listen {
            rule: number,
            first: self.first + self.back_ends.len() as u32,
            places,
            offset: 0,
        };
        for back_end in &rule.back_ends {
            let place = place_of(back_end);
            let times = usize::from(back_end.weight);
            self.back_ends.extend(std::iter::repeat_n(place, times));
        }
        let (first, last) = rule.ports;
        for port in first..=last {
            let offset = u32::from(port - first);
            for protocol in rule.protocols {
                let key = ListenKey::new(address_bytes(rule.address), port, *protocol);
                self.listen.insert(key, Listen { offset, ..listen });
            }
        }
    }
}

fn place_of(back_end: &settings::BackEnd) -> BackEnd {
    let none = BackEnd {
        to: back_end.to.into(),
        ..BackEnd::default()
    };
    match back_end.source {
        Source::Kept => none,
        Source::Address(address, ports) => BackEnd {
            source: address_bytes(address),
            ports,
            ..none
        },
        Source::Unreachable => BackEnd {
            unreachable: 1,
            ..none
        },
    }
}

#[cfg(test)]
mod tests {
    use xdptun_common::wire::Protocol;

    use super::*;

    fn rule(ports: (u16, u16), back_ends: &[(&str, u16)]) -> Rule {
        let back_ends = back_ends.iter().map(|(to, weight)| settings::BackEnd {
            to: to.parse().unwrap(),
            weight: *weight,
            source: Source::Kept,
        });
        Rule {
            address: "0.0.0.0".parse().unwrap(),
            ports,
            protocols: &[Protocol::TCP],
            back_ends: back_ends.collect(),
        }
    }

    fn listen(tables: &Tables, port: u16) -> Listen {
        let any = address_bytes("0.0.0.0".parse().unwrap());
        tables.listen[&ListenKey::new(any, port, Protocol::TCP)]
    }

    #[test]
    fn a_back_end_has_as_many_places_as_its_weight() {
        let rules = [
            rule((80, 80), &[("10.0.0.1:8080", 1)]),
            rule((81, 83), &[("10.0.0.1:9000", 2), ("10.0.0.2:9000", 3)]),
        ];
        let tables = Tables::of(&rules, &[]).unwrap();
        let second = listen(&tables, 83);
        assert_eq!((second.first, second.places, second.offset), (1, 5, 2));
        let ends = tables.back_ends.iter().map(|place| place.end(2));
        let ends: Vec<String> = ends.map(|end| end.socket_addr().to_string()).collect();
        let expected = [
            "10.0.0.1:8082",
            "10.0.0.1:9002",
            "10.0.0.1:9002",
            "10.0.0.2:9002",
            "10.0.0.2:9002",
            "10.0.0.2:9002",
        ];
        assert_eq!(ends, expected);
    }

    /// Programs read the old places until the last rule that names them is replaced.
    #[test]
    fn new_back_ends_lie_beside_those_in_use() {
        let rules = [rule((80, 80), &[("10.0.0.1:8080", 3)])];
        let mut present = Tables::of(&rules, &[]).unwrap();
        for expected in [3, 0, 3, 0] {
            let used: Vec<Listen> = present.listen.values().copied().collect();
            present = Tables::of(&rules, &used).unwrap();
            assert_eq!(
                (present.first, listen(&present, 80).first),
                (expected, expected)
            );
        }
        let full = Listen {
            places: MAX_BACK_ENDS - 2,
            ..Listen::default()
        };
        assert!(Tables::of(&rules, &[full]).is_err());
    }
}

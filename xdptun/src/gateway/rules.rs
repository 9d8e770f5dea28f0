//! Rules as the programs read them.

use std::collections::{BTreeMap, BTreeSet};

use xdptun_common::address::address_bytes;
use xdptun_common::gateway::rule::{BackEnd, Listen, ListenKey, MAX_BACK_ENDS, MAX_LISTEN, Set};

use super::settings::{self, Rule, Source};
use crate::error::{Result, bail};

/// The contents of the maps `LISTEN` and `BACK_ENDS`, and which interfaces use them.
pub struct Tables {
    pub listen: BTreeMap<ListenKey, Listen>,
    /// The places of the map from `first` on.
    pub back_ends: Vec<BackEnd>,
    pub first: u32,
    /// The set of rules that each interface has, by its name.
    pub sets: BTreeMap<String, Set>,
}

impl Tables {
    /// Those for the rules of some interfaces, beside what the map `LISTEN` has at this moment:
    /// sets with other numbers, and other places for their back ends. The ports of a rule share
    /// its places.
    ///
    /// # Errors
    ///
    /// If there are too many sets, ports or back ends.
    pub fn of(
        rules: &BTreeMap<String, Vec<Rule>>,
        present: &[(ListenKey, Listen)],
    ) -> Result<Self> {
        let used: BTreeSet<Set> = present.iter().map(|(key, _)| key.set()).collect();
        let mut free = (0..=Set::MAX).filter(|set| !used.contains(set));
        // A linear search: interfaces are few.
        let mut distinct: Vec<(Set, &Vec<Rule>)> = Vec::new();
        let mut sets = BTreeMap::new();
        for (interface, rules) in rules {
            let known = distinct.iter().find(|(_, one)| *one == rules);
            let set = known.map(|(set, _)| *set).or_else(|| {
                let set = free.next()?;
                distinct.push((set, rules));
                Some(set)
            });
            let Some(set) = set else {
                bail!(
                    Invalid,
                    "there is room for {} sets of rules, those in use included; give some \
                     interfaces equal rules",
                    usize::from(Set::MAX) + 1
                );
            };
            sets.insert(interface.clone(), set);
        }
        let needed = distinct.iter().flat_map(|(_, rules)| *rules).map(places);
        let mut tables = Self {
            listen: BTreeMap::new(),
            back_ends: Vec::new(),
            first: first_place(needed.sum(), present)?,
            sets,
        };
        for (set, rules) in distinct {
            tables.add(set, rules);
        }
        if tables.listen.len() + present.len() > MAX_LISTEN as usize {
            bail!(
                Invalid,
                "{} ports are too many; there is room for {} beside those of the rules that they \
                 replace",
                tables.listen.len(),
                MAX_LISTEN as usize - present.len()
            );
        }
        Ok(tables)
    }

    /// The addresses that they name: listen addresses, back ends, and their sources.
    pub fn named(&self) -> BTreeSet<[u8; 16]> {
        let listen = self.listen.keys().filter(|key| key.of_any() != **key);
        let listen = listen.map(ListenKey::address);
        let masquerading = self.back_ends.iter().filter(|one| one.masquerades());
        let back_ends = self.back_ends.iter().map(|one| one.to.address());
        let sources = masquerading.map(|one| one.source);
        listen.chain(back_ends).chain(sources).collect()
    }

    fn add(&mut self, set: Set, rules: &[Rule]) {
        for rule in rules {
            let listen = Listen {
                first: self.first + self.back_ends.len() as u32,
                places: places(rule),
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
                    let address = address_bytes(rule.address);
                    let key = ListenKey::new(set, address, port, *protocol);
                    self.listen.insert(key, Listen { offset, ..listen });
                }
            }
        }
    }
}

/// How many places the back ends of a rule need.
fn places(rule: &Rule) -> u32 {
    let weights = rule.back_ends.iter().map(|one| u32::from(one.weight));
    weights.sum()
}

/// The first of so many places that no rule names at this moment.
fn first_place(needed: u32, present: &[(ListenKey, Listen)]) -> Result<u32> {
    let used = present.iter().map(|(_, listen)| listen);
    let begin = used.clone().map(|one| one.first).min().unwrap_or(0);
    let end = used.map(|one| one.first + one.places).max().unwrap_or(0);
    match (needed <= begin, end + needed <= MAX_BACK_ENDS) {
        (true, _) => Ok(0),
        (false, true) => Ok(end),
        (false, false) => bail!(
            Invalid,
            "back ends with weights of {needed} together are too many; there is room for {} \
             beside those of the rules that they replace",
            MAX_BACK_ENDS - end
        ),
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

    /// The rules of one interface.
    fn of(rules: &[Rule]) -> BTreeMap<String, Vec<Rule>> {
        BTreeMap::from([("eth0".to_owned(), rules.to_vec())])
    }

    fn listen(tables: &Tables, port: u16) -> Listen {
        let any = address_bytes("0.0.0.0".parse().unwrap());
        let set = tables.sets["eth0"];
        tables.listen[&ListenKey::new(set, any, port, Protocol::TCP)]
    }

    fn present(tables: &Tables) -> Vec<(ListenKey, Listen)> {
        let all = tables.listen.iter();
        all.map(|(key, listen)| (*key, *listen)).collect()
    }

    #[test]
    fn a_back_end_has_as_many_places_as_its_weight() {
        let rules = of(&[
            rule((80, 80), &[("10.0.0.1:8080", 1)]),
            rule((81, 83), &[("10.0.0.1:9000", 2), ("10.0.0.2:9000", 3)]),
        ]);
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

    /// Programs read the old ones until the last interface has the new ones.
    #[test]
    fn new_rules_lie_beside_those_in_use() {
        let rules = of(&[rule((80, 80), &[("10.0.0.1:8080", 3)])]);
        let mut tables = Tables::of(&rules, &[]).unwrap();
        for (first, set) in [(3, 1), (0, 0), (3, 1), (0, 0)] {
            tables = Tables::of(&rules, &present(&tables)).unwrap();
            assert_eq!((tables.first, listen(&tables, 80).first), (first, first));
            assert_eq!(tables.sets["eth0"], set);
        }
        let full = Listen {
            places: MAX_BACK_ENDS - 2,
            ..Listen::default()
        };
        let (key, _) = present(&tables)[0];
        assert!(Tables::of(&rules, &[(key, full)]).is_err());
    }

    #[test]
    fn interfaces_with_equal_rules_share_a_set() {
        let [web, mail] = [80, 25].map(|port| vec![rule((port, port), &[("10.0.0.1:1", 1)])]);
        let rules = [("a", &web), ("b", &mail), ("c", &web)];
        let rules = rules.map(|(name, rules)| (name.to_owned(), rules.clone()));
        let tables = Tables::of(&BTreeMap::from(rules), &[]).unwrap();
        let sets: Vec<Set> = tables.sets.values().copied().collect();
        assert_eq!(sets, [0, 1, 0]);
        let ports = present(&tables)
            .iter()
            .map(|(key, _)| (key.set(), key.port()))
            .collect::<Vec<_>>();
        assert_eq!(ports, [(1, 25), (0, 80)]);
        assert_eq!(tables.back_ends.len(), 2);
    }

    #[test]
    fn more_ports_than_there_is_room_for_are_refused() {
        let all = of(&[rule((1, u16::MAX), &[("10.0.0.1:1", 1)])]);
        let mut tables = Tables::of(&all, &[]).unwrap();
        let mut used = Vec::new();
        for _ in 0..4 {
            tables = Tables::of(&all, &used).unwrap();
            used.extend(present(&tables));
        }
        let Err(error) = Tables::of(&all, &used) else {
            panic!("{} ports have room", used.len() + tables.listen.len());
        };
        assert!(
            error.to_string().contains("there is room for 4 beside"),
            "{error}"
        );
    }
}

//! Rules as the programs read them.

use std::collections::BTreeMap;

use xdptun_common::address::address_bytes;
use xdptun_common::gateway::rule::{ANY, BackEnd, Listen, ListenKey, MAX_BACK_ENDS};

use super::settings::{self, Rule, Source};
use crate::error::{Result, bail};

/// The contents of the maps `LISTEN` and `BACK_ENDS`.
pub struct Tables {
    pub listen: BTreeMap<ListenKey, Listen>,
    pub back_ends: Vec<BackEnd>,
}

impl Tables {
    /// Those for some rules. Rules with the same back ends share their places.
    ///
    /// # Errors
    ///
    /// If there are too many back ends.
    pub fn of(rules: &[Rule]) -> Result<Self> {
        let mut tables = Self {
            listen: BTreeMap::new(),
            back_ends: Vec::new(),
        };
        for (number, rule) in (0..).zip(rules) {
            let first = tables.back_ends.len() as u32;
            for back_end in &rule.back_ends {
                let place = place_of(back_end);
                let times = usize::from(back_end.weight);
                tables.back_ends.extend(std::iter::repeat_n(place, times));
            }
            let listen = Listen {
                rule: number,
                first,
                places: tables.back_ends.len() as u32 - first,
                offset: 0,
            };
            let address = rule.address.map_or(ANY, address_bytes);
            let key = ListenKey::new(address, rule.port, rule.protocol);
            tables.listen.insert(key, listen);
        }
        if tables.back_ends.len() > MAX_BACK_ENDS as usize {
            bail!(
                Invalid,
                "{} back ends (ports, protocols and weights multiplied) are too many; there is \
                 room for {MAX_BACK_ENDS}",
                tables.back_ends.len()
            );
        }
        Ok(tables)
    }
}

fn place_of(back_end: &settings::BackEnd) -> BackEnd {
    let to = back_end.to.into();
    let none = BackEnd {
        to,
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

    #[test]
    fn a_back_end_has_as_many_places_as_its_weight() {
        let back_end = |to: &str, weight| settings::BackEnd {
            to: to.parse().unwrap(),
            weight,
            source: Source::Kept,
        };
        let rule = |port, back_ends| Rule {
            address: None,
            port,
            protocol: Protocol::TCP,
            back_ends,
        };
        let rules = [
            rule(80, vec![back_end("10.0.0.1:8080", 1)]),
            rule(
                81,
                vec![back_end("10.0.0.1:8081", 2), back_end("10.0.0.2:8081", 3)],
            ),
        ];
        let tables = Tables::of(&rules).unwrap();
        let key = ListenKey::new(ANY, 81, Protocol::TCP);
        let listen = tables.listen[&key];
        assert_eq!((listen.first, listen.places, listen.rule), (1, 5, 1));
        let ports = tables
            .back_ends
            .iter()
            .map(|place| place.end(0).socket_addr());
        let ends: Vec<String> = ports.map(|end| end.to_string()).collect();
        let expected = [
            "10.0.0.1:8080",
            "10.0.0.1:8081",
            "10.0.0.1:8081",
            "10.0.0.2:8081",
            "10.0.0.2:8081",
            "10.0.0.2:8081",
        ];
        assert_eq!(ends, expected);
    }
}

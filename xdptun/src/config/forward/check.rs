//! Whether the parts of a rule fit each other, and rules each other.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::address::{EXAMPLE_V4, EXAMPLE_V6, at};
use super::error::ForwardError;
use super::{Forward, Protocols, To};

impl Forward {
    /// Checks that the parts of the rule fit each other.
    ///
    /// # Errors
    ///
    /// If there is no back end, one has another number of ports than the rule listens to,
    /// the addresses are of two families, or the rule leads to itself.
    pub fn check(&self) -> Result<(), ForwardError> {
        let listen = self.listen;
        if self.to.is_empty() {
            let address = match listen.address.or(self.source.address()) {
                Some(IpAddr::V6(_)) => IpAddr::V6(EXAMPLE_V6),
                _ => IpAddr::V4(EXAMPLE_V4),
            };
            let like = at(address, listen.ports);
            return Err(ForwardError::NoBackEnd { listen, like });
        }
        self.check_families()?;
        for &to in &self.to {
            let (listen_ports, to_ports) = (listen.ports.count(), to.ports.count());
            if listen_ports != to_ports {
                return Err(ForwardError::PortCount {
                    listen,
                    listen_ports,
                    to,
                    to_ports,
                    like: with_count(to, listen_ports),
                });
            }
            if listen.address == Some(to.address) && listen.ports == to.ports {
                return Err(ForwardError::Loop { listen, to });
            }
        }
        Ok(())
    }

    fn check_families(&self) -> Result<(), ForwardError> {
        let back_ends = self.to.iter().map(|to| to.address);
        let ends = self.listen.address.into_iter().chain(back_ends);
        let (mut first_v4, mut first_v6) = (None, None);
        for address in ends.chain(self.source.address()) {
            match address {
                IpAddr::V4(v4) => first_v4 = first_v4.or(Some(v4)),
                IpAddr::V6(v6) => first_v6 = first_v6.or(Some(v6)),
            }
        }
        match (first_v4, first_v6) {
            (Some(v4), Some(v6)) => Err(ForwardError::Families {
                listen: self.listen,
                v4,
                v6,
            }),
            _ => Ok(()),
        }
    }

    /// The listen address; that of no host, of the family of the back ends, if it is any of this
    /// host's.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        let is_v6 = self.to.first().is_some_and(|to| to.address.is_ipv6());
        self.listen.address.unwrap_or(match is_v6 {
            true => Ipv6Addr::UNSPECIFIED.into(),
            false => Ipv4Addr::UNSPECIFIED.into(),
        })
    }
}

/// Checks each rule, and that no two take the same packets. A rule for one address goes
/// before one for any address, so those do not clash. One for any address takes packets of the
/// family of its back ends.
///
/// # Errors
///
/// Names the rules that do not fit.
pub fn check_all(rules: &[Forward]) -> Result<(), ForwardError> {
    for rule in rules {
        rule.check()?;
    }
    for protocol in Protocols::Both.list() {
        // Without an address a rule takes packets of the family of its back ends.
        let mut places: Vec<(IpAddr, (u16, u16), usize)> = rules
            .iter()
            .enumerate()
            .filter(|(_, rule)| rule.listen.protocols.list().contains(protocol))
            .map(|(index, rule)| (rule.address(), rule.listen.ports.bounds(), index))
            .collect();
        places.sort_unstable();
        for pair in places.windows(2) {
            let &[(address, (_, last), one), (next_address, (port, _), other)] = pair else {
                continue;
            };
            // Without a clash so far, none of those before reaches further than `last`.
            if address == next_address && port <= last {
                let (one, other) = (&rules[one.min(other)], &rules[one.max(other)]);
                let hint = match address.is_unspecified() {
                    true => "leave one out, or name the address that it listens to",
                    false => "leave one out, or give it another port",
                };
                return Err(ForwardError::Clash {
                    one: one.listen,
                    other: other.listen,
                    protocol: *protocol,
                    port,
                    hint,
                });
            }
        }
    }
    Ok(())
}

/// The back end with so many ports, from the same first port if it has room for them.
fn with_count(to: To, ports: u32) -> String {
    let (first, _) = to.ports.bounds();
    let first = u32::from(first).min(0x1_0000 - ports);
    let ports = match first + ports - 1 {
        last if last == first => first.to_string(),
        last => format!("{first}-{last}"),
    };
    match to.weight {
        1 => at(to.address, ports),
        weight => at(to.address, format_args!("{ports}={weight}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Listen;
    use crate::config::forward::tests::rule;
    use crate::error::{Error, Kind};

    #[test]
    fn rules_that_fit() {
        let rules = [
            rule("7000", &["10.0.0.123:7000"], "keep"),
            rule("203.0.113.7:7000", &["10.0.0.5:51820"], "masquerade"),
            rule("[2001:db8::1]:7000", &["[fd00::5]:80"], "2001:db8::2"),
            rule(
                "8000-8009/tcp",
                &["10.0.0.1:9000-9009=2", "10.0.0.2:9000-9009"],
                "203.0.113.7",
            ),
            rule("8000-8009/udp", &["[fd00::5]:8000-8009"], "keep"),
            rule("8010", &["[fd00::5]:8010"], "keep"),
            // Another port of the same address.
            rule("203.0.113.7:80", &["203.0.113.7:8080"], "keep"),
        ];
        assert_eq!(check_all(&rules), Ok(()));
        assert_eq!(check_all(&[]), Ok(()));
    }

    #[test]
    fn rules_that_do_not_fit_are_refused() {
        for (listen, to, source, hint) in [
            (
                "7000",
                &[][..],
                "keep",
                "`7000` leads nowhere; add a back end, as --to 10.0.0.5:7000",
            ),
            ("[2001:db8::1]:1-2", &[], "keep", "--to [fd00::5]:1-2"),
            ("7", &[], "2001:db8::1", "--to [fd00::5]:7"),
            (
                "8000-8009/tcp",
                &["10.0.0.1:9000-9009", "10.0.0.2:9000=3"],
                "keep",
                "`8000-8009/tcp` has 10 ports and `10.0.0.2:9000=3` has 1 port, and each port \
                 goes to one of its own; write 10.0.0.2:9000-9009=3",
            ),
            (
                "80",
                &["10.0.0.1:80-81"],
                "keep",
                "has 1 port and `10.0.0.1:80-81` has 2 ports",
            ),
            ("80", &["10.0.0.1:80-81"], "keep", "write 10.0.0.1:80"),
            (
                "1-65535",
                &["10.0.0.1:80"],
                "keep",
                "write 10.0.0.1:1-65535",
            ),
            (
                "1-10",
                &["[fd00::5]:65530"],
                "keep",
                "write [fd00::5]:65526-65535",
            ),
            (
                "7000",
                &["10.0.0.5:7000", "[fd00::5]:7000"],
                "keep",
                "`7000`: 10.0.0.5 is IPv4 and fd00::5 is IPv6, and a rule forwards within one",
            ),
            (
                "203.0.113.7:80",
                &["[fd00::5]:80"],
                "keep",
                "203.0.113.7 is IPv4 and fd00::5 is",
            ),
            (
                "80",
                &["[fd00::5]:80"],
                "203.0.113.7",
                "203.0.113.7 is IPv4 and fd00::5 is IPv6",
            ),
            (
                "80",
                &["10.0.0.5:80"],
                "2001:db8::1",
                "10.0.0.5 is IPv4 and 2001:db8::1 is IPv6",
            ),
            (
                "203.0.113.7:80/tcp",
                &["10.0.0.5:80", "203.0.113.7:80=2"],
                "keep",
                "`203.0.113.7:80/tcp` leads to itself by `203.0.113.7:80=2`; name another",
            ),
        ] {
            let rules = [rule("9", &["10.0.0.9:9"], "keep"), rule(listen, to, source)];
            let error = rules[1].check().expect_err(hint);
            assert!(error.to_string().contains(hint), "{hint}: {error}");
            assert_eq!(check_all(&rules), Err(error));
        }
    }

    #[test]
    fn rules_that_take_the_same_packets_are_refused() {
        for (one, other, hint) in [
            (
                "7000",
                "7000-7010/tcp",
                "`7000` and `7000-7010/tcp` both listen to TCP port 7000; leave one out, or name",
            ),
            ("7000/udp", "6000-7000", "both listen to UDP port 7000"),
            ("1-65535", "7000", "both listen to TCP port 7000"),
            (
                "203.0.113.7:5-9",
                "203.0.113.7:8-20/udp",
                "`203.0.113.7:5-9` and `203.0.113.7:8-20/udp` both listen to UDP port 8; leave \
                 one out, or give it another port",
            ),
            (
                "[2001:db8::1]:5",
                "[2001:db8::1]:5",
                "both listen to TCP port 5",
            ),
        ] {
            let with_back_end = |text: &str| {
                let listen: Listen = text.parse().unwrap();
                let family = match listen.address {
                    Some(IpAddr::V6(_)) => IpAddr::V6(EXAMPLE_V6),
                    _ => IpAddr::V4(EXAMPLE_V4),
                };
                rule(text, &[&at(family, listen.ports)], "keep")
            };
            let aside = with_back_end("20000");
            let aside_of_udp = with_back_end("20001/udp");
            let mut rules = vec![
                aside_of_udp,
                with_back_end(one),
                with_back_end(other),
                aside,
            ];
            if one == "1-65535" {
                rules.truncate(3);
                rules.remove(0);
            }
            let error = check_all(&rules).expect_err(hint).to_string();
            assert!(error.contains(hint), "{hint}: {error}");
        }
        let families = [
            rule("7000", &["10.0.0.5:7000"], "keep"),
            rule("7000", &["[fd00::5]:7000"], "keep"),
        ];
        assert_eq!(check_all(&families), Ok(()));
        let twice = [families[0].clone(), families[0].clone()];
        let error = Error::from(check_all(&twice).unwrap_err());
        assert_eq!(error.kind(), Kind::Invalid);
    }

    /// Whatever the order of many rules, a clash among them is found.
    #[test]
    fn a_clash_among_many_is_found() {
        let many: Vec<Forward> = (1..=65535)
            .rev()
            .map(|port| rule(&port.to_string(), &[&format!("10.0.0.5:{port}")], "keep"))
            .collect();
        assert_eq!(check_all(&many), Ok(()));
        let mut one_more = many;
        one_more.push(rule("443/udp", &["10.0.0.5:443"], "keep"));
        let error = check_all(&one_more).unwrap_err().to_string();
        assert!(
            error.starts_with("`443` and `443/udp` both listen to UDP port 443"),
            "{error}"
        );
    }
}

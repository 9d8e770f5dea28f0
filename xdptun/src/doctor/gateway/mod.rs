//! The gateway: whether packets reach back ends and inside hosts, and their answers return.

mod attachment;
mod back_ends;
mod destinations;
mod inside;
mod ports;
mod routing;

pub use inside::changes_any_source;
pub use routing::FORWARDING;

use std::net::IpAddr;

use xdptun_common::gateway::rule::BackEnd;

use self::inside::Translation;
use super::programs::Seen;
use super::{Finding, found, nftables};
use crate::error::Result;
use crate::gateway::Pinned;
use crate::gateway::preflight::Leg;
use crate::gateway::present::{PresentRule, rules_of};
use crate::host::route::{Ways, ways_to};

/// `seen`: the programs on the interface, if they could be listed.
pub fn check(pinned: &Pinned, seen: Option<&Seen>) -> Vec<Finding> {
    let mut findings = found(attachment::DAEMON, attachment::check(pinned, seen));
    match Forwards::of(pinned) {
        // Only packets of sessions that began elsewhere pass here.
        Ok(forwards) if forwards.rules.is_empty() => {}
        Ok(forwards) => {
            let forwards = &forwards;
            for (check, result) in [
                (FORWARDING, routing::check_forwarding(forwards)),
                (routing::ACCEPT_RA, routing::check_advertisements(forwards)),
                (back_ends::CHECK, Ok(back_ends::check(forwards))),
                (ports::SOURCE, ports::check_source(forwards)),
                (ports::SERVED, ports::check_served(forwards)),
            ] {
                findings.extend(found(check, result));
            }
        }
        Err(error) => findings.extend(found(FORWARDING, Err(error))),
    }
    match Translation::of(pinned) {
        Ok(None) => {}
        Ok(Some(one)) => {
            let one = &one;
            for (check, result) in [
                (inside::OUTSIDE, inside::check_outside(one)),
                (inside::ROUTES, Ok(inside::check_routes(one))),
                (FORWARDING, inside::check_forwarding(one)),
                (inside::PORTS, inside::check_ports(one)),
            ] {
                findings.extend(found(check, result));
            }
            findings.extend(check_netfilter(one));
        }
        Err(error) => findings.extend(found(inside::OUTSIDE, Err(error))),
    }
    findings
}

/// Whether rules of netfilter change packets that xdptun translates.
fn check_netfilter(one: &Translation) -> Vec<Finding> {
    match nftables::list() {
        Ok(None) => {
            let what = "nft is not installed, so rules that masquerade or change destinations were \
                        not checked";
            vec![Finding::warn(inside::MASQUERADE, what)]
        }
        Ok(Some(ruleset)) => {
            let mut findings = vec![inside::check_masquerade(&one.interface, &ruleset)];
            let result = destinations::check(one, &ruleset);
            findings.extend(found(destinations::CHECK, result));
            findings
        }
        Err(error) => found(inside::MASQUERADE, Err(error)),
    }
}

/// What is forwarded of the packets that come in by an interface.
struct Forwards {
    interface: String,
    index: u32,
    rules: Vec<PresentRule>,
    /// The way to each back end, if there is one.
    ways: Ways,
}

impl Forwards {
    fn of(pinned: &Pinned) -> Result<Self> {
        let mut forwards = Self {
            interface: pinned.name(),
            index: pinned.ifindex,
            rules: rules_of(&pinned.group.maps, pinned.ifindex)?,
            ways: Ways::new(),
        };
        forwards.ways = ways_to(forwards.places().map(address))?;
        Ok(forwards)
    }

    /// Where packets go, each back end as often as its weight.
    fn places(&self) -> impl Iterator<Item = &BackEnd> {
        self.rules.iter().flat_map(|rule| &rule.places)
    }

    /// The way to each back end.
    fn legs(&self) -> impl Iterator<Item = Leg<'_>> {
        self.ways.iter().map(|(to, way)| Leg {
            listener: &self.interface,
            to: *to,
            way: *way,
        })
    }
}

/// The address of a back end.
fn address(place: &BackEnd) -> IpAddr {
    place.to.socket_addr().ip()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use xdptun_common::wire::Protocol;

    use super::*;
    use crate::host::route::Way;

    /// What eth0, number 7, forwards: to these ends over a protocol, each with its way.
    pub(super) fn forwards(ends: &[(&str, Protocol, Option<Way>)]) -> Forwards {
        let mut forwards = Forwards {
            interface: "eth0".to_owned(),
            index: 7,
            rules: Vec::new(),
            ways: Ways::new(),
        };
        for (end, protocol, way) in ends {
            let to: SocketAddr = end.parse().unwrap();
            forwards.ways.insert(to.ip(), *way);
            forwards.rules.push(PresentRule {
                address: "0.0.0.0".parse().unwrap(),
                ports: (7000, 7009),
                protocol: *protocol,
                places: vec![BackEnd {
                    to: to.into(),
                    ..BackEnd::default()
                }],
            });
        }
        forwards
    }

    /// A way by the interface of this number.
    pub(super) const fn by(interface: u32) -> Option<Way> {
        Some(Way {
            interface,
            source: None,
            is_local: false,
        })
    }

    /// The way to this host itself.
    pub(super) const fn local() -> Option<Way> {
        Some(Way {
            interface: 1,
            source: None,
            is_local: true,
        })
    }
}

//! What the configuration asks for, as far as it is known: addresses of this host come from the
//! routes to the back ends, which change.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use ipnet::Ipv4Net;
use xdptun_common::address::address_bytes;
use xdptun_common::gateway;
use xdptun_common::gateway::nat::{MAX_INSIDE, MAX_RESERVED, NO_RANGES, Network};
use xdptun_common::gateway::rule::{MAX_BACK_ENDS, MAX_LISTEN};
use xdptun_common::gateway::timer::Timers;

use super::Pinned;
use super::cut::CutOrder;
use super::settings::{self, Rule, Settings};
use super::surroundings::Surroundings;
use crate::config::{
    Config, Filtering, Forward, GroChoice, IngressChoice, InterfaceConfig, MaxBindings,
    MaxSessions, Nat, Pool, Source, TcChoice, To,
};
use crate::error::{Result, bail};
use crate::group::{Options, Trace};
use crate::host::interface::{Interface, name_of};
use crate::host::ports::PortRange;

/// What the configuration asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What is forwarded, by the names of the interfaces that the configuration has for the
    /// gateway; of some nothing.
    pub forwards: BTreeMap<String, Vec<Forward>>,
    /// What is translated for inside hosts, by the names of the interfaces that lead outside.
    pub nats: BTreeMap<String, Nat>,
    /// How many sessions may be open at once.
    pub max_sessions: MaxSessions,
    /// How many bindings there may be at once.
    pub max_bindings: MaxBindings,
    /// How long sessions live without a packet.
    pub timers: Timers,
    /// How the programs are attached.
    pub tc: TcChoice,
    /// The last order to end the sessions that no rule has any more.
    pub cut: CutOrder,
    /// The ports of the tunnel on the interfaces that translate: these are not lent.
    tunnelled: BTreeMap<String, Vec<PortRange>>,
    /// The pool of NAT64.
    pool: Option<Pool>,
    /// Routes and addresses, as they were last seen.
    seen: Surroundings,
}

/// The sum of all weights: half of the programs' table, so that other rules fit beside those that
/// they replace.
const MAX_WEIGHTS: u32 = MAX_BACK_ENDS / 2;

/// The most ports: half of the programs' table, for the same reason.
const MAX_PORTS: u32 = MAX_LISTEN / 2;

impl Plan {
    /// The plan for a configuration; `None` if it has nothing for the gateway. Looks up routes and
    /// addresses.
    ///
    /// # Errors
    ///
    /// If the kernel does not tell; of [kind](crate::error::Kind) `Invalid` if a back end is
    /// this host, whose packets cannot get another source, or if weights are too many.
    pub fn of(config: &Config) -> Result<Option<Self>> {
        let all = config.interfaces.iter();
        let forwarding = all.filter(|(_, interface)| interface.has_gateway());
        // `Config::parse` has checked that all have the same.
        let Some((_, InterfaceConfig { tc, .. })) = forwarding.clone().next() else {
            return Ok(None);
        };
        let forwards = forwarding
            .clone()
            .map(|(name, one)| (name.clone(), one.forward.clone()));
        let nats = forwarding
            .clone()
            .filter_map(|(name, one)| Some((name.clone(), one.nat.clone()?)));
        let tunnelled = forwarding.filter(|(_, one)| one.nat.is_some());
        let tunnelled = tunnelled.map(|(name, one)| (name.clone(), one.ports.clone()));
        let mut plan = Self {
            forwards: forwards.collect(),
            nats: nats.collect(),
            tunnelled: tunnelled.collect(),
            max_bindings: config.max_bindings,
            max_sessions: config.max_sessions,
            timers: Timers::from_seconds(
                config.udp_timeout.get(),
                config.tcp_transitory_timeout.get(),
                config.tcp_timeout.get(),
                Timers::OTHER,
            ),
            tc: *tc,
            cut: CutOrder::default(),
            pool: config.nat64.as_ref().map(|nat64| nat64.pool),
            seen: Surroundings::default(),
        };
        plan.refresh()?;
        plan.check()?;
        Ok(Some(plan))
    }

    /// Lends no port that the tunnel has on an interface.
    ///
    /// # Errors
    ///
    /// If there are too many, of [kind](crate::error::Kind) `Invalid`.
    pub fn reserve(&mut self, interface: &str, ports: Vec<PortRange>) -> Result<()> {
        let reserved = self.tunnelled.entry(interface.to_owned()).or_default();
        reserved.extend(ports);
        reserved.sort_unstable_by_key(PortRange::bounds);
        reserved.dedup();
        self.check()
    }

    fn check(&self) -> Result<()> {
        let weights = self.back_ends().map(|(_, to)| u32::from(to.weight));
        let weights: u32 = weights.sum();
        if weights > MAX_WEIGHTS {
            bail!(
                Invalid,
                "the weights of all back ends add up to {weights}; there is room for {MAX_WEIGHTS}"
            );
        }
        let ports = self.ports();
        if ports > MAX_PORTS {
            bail!(
                Invalid,
                "{ports} ports of all interfaces with different rules are too many; there is room \
                 for {MAX_PORTS}, each protocol of a port counted"
            );
        }
        for (name, nat) in &self.nats {
            let tunnelled = self.tunnelled.get(name).into_iter().flatten();
            let lent = tunnelled.filter(|range| range.overlaps(&nat.ports)).count();
            if lent > MAX_RESERVED {
                bail!(
                    Invalid,
                    "{name}: {lent} ranges of the tunnel's ports are among the outside ports; there \
                     is room for {MAX_RESERVED}; choose other outside ports"
                );
            }
        }
        for (forward, to) in self.back_ends() {
            if forward.source != Source::Keep && self.is_local(to.address) {
                bail!(
                    Invalid,
                    "{to} is this host, and its packets cannot get another source on the way to \
                     itself; leave the source as it is"
                );
            }
        }
        Ok(())
    }

    /// How many ports there are in all, each protocol counted; interfaces with equal rules share
    /// theirs.
    fn ports(&self) -> u32 {
        let mut distinct: Vec<&Vec<Forward>> = Vec::new();
        for forwards in self.forwards.values() {
            if !distinct.contains(&forwards) {
                distinct.push(forwards);
            }
        }
        let ports = distinct.into_iter().flatten().map(|forward| {
            let protocols = forward.listen.protocols.list().len() as u32;
            forward.listen.ports.count() * protocols
        });
        ports.sum()
    }

    /// The names of the interfaces that the configuration has for the gateway.
    pub fn listeners(&self) -> impl Iterator<Item = &String> {
        self.forwards.keys()
    }

    /// Whether another plan comes from the same configuration; routes and orders may differ.
    #[must_use]
    pub fn is_same_configuration(&self, other: &Self) -> bool {
        let as_seen = Self {
            seen: other.seen.clone(),
            cut: other.cut,
            ..self.clone()
        };
        as_seen == *other
    }

    /// What the gateway does on an interface, in words; none if the configuration does not name it.
    #[must_use]
    pub fn does_on(&self, interface: &str) -> Option<String> {
        let forwards = self.forwards.get(interface)?;
        let ports = forwards.iter().map(|forward| forward.listen.ports.count());
        let forwards = match ports.sum::<u32>() {
            0 => None,
            1 => Some("forwards 1 port".to_owned()),
            ports => Some(format!("forwards {ports} ports")),
        };
        let translates = self.nats.get(interface).map(|nat| {
            let inside: Vec<String> = nat.inside.iter().map(ToString::to_string).collect();
            format!("translates {}", inside.join(", "))
        });
        let all: Vec<String> = forwards.into_iter().chain(translates).collect();
        Some(all.join(" and "))
    }

    fn back_ends(&self) -> impl Iterator<Item = (&Forward, &To)> {
        let all = self.forwards.values().flatten();
        all.flat_map(|forward| forward.to.iter().map(move |to| (forward, to)))
    }

    /// Routes and addresses, as they were last seen.
    #[must_use]
    pub const fn seen(&self) -> &Surroundings {
        &self.seen
    }

    /// Whether a back end is this host.
    #[must_use]
    pub fn is_local(&self, to: IpAddr) -> bool {
        self.seen.way(to).is_some_and(|way| way.is_local)
    }

    /// The back ends that no route leads to.
    pub fn unreachable(&self) -> impl Iterator<Item = IpAddr> {
        let nowhere = self.seen.ways.iter().filter(|(_, way)| way.is_none());
        nowhere.map(|(to, _)| *to)
    }

    /// The names of all interfaces that need programs: those by which sessions begin, those by which
    /// packets with another source leave and come back, and those of inside hosts, which may call
    /// each other by their outside ends.
    #[must_use]
    pub fn interfaces(&self) -> Vec<String> {
        let masquerading = self
            .back_ends()
            .filter(|(forward, _)| forward.source != Source::Keep);
        let ways = masquerading.filter_map(|(_, to)| self.seen.way(to.address));
        let back = ways.map(|way| way.interface);
        let inside = self.nats.values().flat_map(|nat| self.seen.inside_of(nat));
        let others: BTreeSet<String> = back.chain(inside).filter_map(name_of).collect();
        let others = others
            .into_iter()
            .filter(|name| !self.forwards.contains_key(name));
        // Listeners last: by then the interfaces that their sessions leave by have programs.
        others.chain(self.listeners().cloned()).collect()
    }

    /// [`Plan::interfaces`], and those that an earlier process left in the same group: it may have
    /// followed other routes.
    ///
    /// # Errors
    ///
    /// If pins cannot be read.
    pub fn interfaces_to_attach(&self) -> Result<Vec<String>> {
        let mut names = self.interfaces();
        for name in self.interfaces() {
            let Ok(interface) = Interface::find(&name) else {
                continue;
            };
            let Some(pinned) = Pinned::open(interface.index)? else {
                continue;
            };
            for ifindex in pinned.group.members.keys() {
                names.extend(name_of(*ifindex).filter(|name| !names.contains(name)));
            }
        }
        Ok(names)
    }

    /// Asks for routes and addresses again; whether one has changed.
    ///
    /// # Errors
    ///
    /// If the kernel does not tell.
    pub fn refresh(&mut self) -> Result<bool> {
        let seen = Surroundings::of(self.forwards.values().flatten(), &self.nats)?;
        let changed = seen != self.seen;
        self.seen = seen;
        Ok(changed)
    }

    /// How programs are attached and set up.
    #[must_use]
    pub fn options(&self) -> Options<Settings> {
        Options {
            ingress: IngressChoice::Tc,
            gro: GroChoice::Off,
            tc: self.tc,
            trace: Trace::Off,
            record: None,
            settings: Settings {
                rules: self.rules(),
                nats: self.nats_of_programs(),
                max_bindings: self.max_bindings.get(),
                max_sessions: self.max_sessions.get(),
                timers: self.timers,
                cut: self.cut,
            },
        }
    }

    fn rules(&self) -> BTreeMap<String, Vec<Rule>> {
        let all = self.forwards.iter();
        let all = all.filter(|(_, forwards)| !forwards.is_empty());
        let all = all.map(|(name, forwards)| {
            let rules = forwards.iter().map(|forward| self.rule(forward));
            (name.clone(), rules.collect())
        });
        all.collect()
    }

    fn nats_of_programs(&self) -> BTreeMap<String, gateway::nat::Nat> {
        let all = self.nats.iter();
        let all = all.map(|(name, nat)| (name.clone(), self.nat_of_programs(name, nat)));
        all.collect()
    }

    fn nat_of_programs(&self, name: &str, nat: &Nat) -> gateway::nat::Nat {
        let outside = self.seen.outside.get(name);
        let mut inside = [Network::NONE; MAX_INSIDE];
        for (place, network) in inside.iter_mut().zip(&nat.inside) {
            let network = network.network();
            *place = of_programs(network);
        }
        let filtering = match nat.filtering {
            Filtering::EndpointIndependent => gateway::nat::Filtering::EndpointIndependent,
            Filtering::AddressAndPortDependent => gateway::nat::Filtering::AddressAndPortDependent,
        };
        let mut reserved = NO_RANGES;
        let tunnelled = self.tunnelled.get(name).into_iter().flatten();
        let lent = tunnelled.filter(|range| range.overlaps(&nat.ports));
        for (place, range) in reserved.iter_mut().zip(lent) {
            *place = range.bounds().into();
        }
        gateway::nat::Nat {
            outside: outside.map_or([0; 16], |address| address_bytes((*address).into())),
            ports: nat.ports.bounds().into(),
            filtering: filtering as u32,
            max_per_host: nat.max_bindings_per_host.get(),
            reserved,
            inside,
            pool: self.pool_of(nat).map_or(Network::NONE, of_programs),
        }
    }

    /// The pool of NAT64, if its clients are inside hosts.
    fn pool_of(&self, nat: &Nat) -> Option<Ipv4Net> {
        let pool = self.pool?.network();
        let mut inside = nat.inside.iter();
        inside
            .any(|inside| inside.network().contains(&pool))
            .then_some(pool)
    }

    fn rule(&self, forward: &Forward) -> Rule {
        let back_end = |to: &To| settings::BackEnd {
            // As many ports as there are to listen at.
            to: SocketAddr::new(to.address, to.ports.bounds().0),
            weight: to.weight,
            source: self.source(forward.source, to.address),
        };
        Rule {
            address: forward.address(),
            ports: forward.listen.ports.bounds(),
            protocols: forward.listen.protocols.list(),
            back_ends: forward.to.iter().map(back_end).collect(),
        }
    }

    fn source(&self, source: Source, to: IpAddr) -> settings::Source {
        let Some((first, last)) = source.ports() else {
            return settings::Source::Kept;
        };
        let address = match source {
            Source::Address { address, .. } => Some(address),
            Source::Keep | Source::Masquerade => self.seen.way(to).and_then(|way| way.source),
        };
        match address {
            Some(address) => settings::Source::Address(address, [first, last]),
            None => settings::Source::Unreachable,
        }
    }
}

/// A network as the programs have it.
fn of_programs(network: Ipv4Net) -> Network {
    Network::new(network.addr(), network.prefix_len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the programs of `lo` get as the pool.
    fn pool(inside: &str, nat64: &str) -> Network {
        let file = format!("[interface.lo.nat]\ninside = \"{inside}\"\n{nat64}");
        let plan = Plan::of(&Config::parse(&file).unwrap()).unwrap().unwrap();
        plan.nats_of_programs()["lo"].pool
    }

    #[test]
    fn a_pool_is_closed_where_it_is_translated() {
        let nat64 = "[nat64]\ninside = \"fd00:6::/64\"";
        let default = of_programs(Pool::default().network());
        assert_eq!(pool("100.64.0.0/16", nat64), default);
        assert_eq!(pool("100.64.0.0/10", nat64), default);
        assert_eq!(pool("10.0.0.0/8", nat64), Network::NONE);
        assert_eq!(pool("100.64.0.0/16", ""), Network::NONE);
    }
}

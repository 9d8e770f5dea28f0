//! What the configuration asks for, as far as it is known: addresses of this host come from the
//! routes to the back ends, which change.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use xdptun_common::gateway::rule::{MAX_BACK_ENDS, MAX_LISTEN};
use xdptun_common::gateway::timer::Timers;

use super::Pinned;
use super::settings::{self, Rule, Settings};
use crate::config::{
    Config, Forward, IngressChoice, InterfaceConfig, MaxSessions, Source, TcChoice, To,
};
use crate::error::{Result, bail};
use crate::group::{Options, Trace};
use crate::host::interface::{Interface, name_of};
use crate::host::route::{Way, Ways, ways_to};

/// What the configuration asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What is forwarded, by the names of the interfaces by which sessions may begin.
    pub forwards: BTreeMap<String, Vec<Forward>>,
    /// How many sessions may be open at once.
    pub max_sessions: MaxSessions,
    /// How long sessions live without a packet.
    pub timers: Timers,
    /// How the programs are attached.
    pub tc: TcChoice,
    /// The ways to the back ends, as they were last seen.
    ways: Ways,
}

/// The sum of all weights: half of the programs' table, so that other rules fit beside those that
/// they replace.
const MAX_WEIGHTS: u32 = MAX_BACK_ENDS / 2;

/// The most ports: half of the programs' table, for the same reason.
const MAX_PORTS: u32 = MAX_LISTEN / 2;

impl Plan {
    /// The plan for a configuration; `None` if it forwards nothing. Looks up the routes to the
    /// back ends.
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
        let forwards = forwarding.map(|(name, one)| (name.clone(), one.forward.clone()));
        let mut plan = Self {
            forwards: forwards.collect(),
            max_sessions: config.max_sessions,
            timers: Timers::from_seconds(
                config.udp_timeout.get(),
                config.tcp_transitory_timeout.get(),
                config.tcp_timeout.get(),
                Timers::OTHER,
            ),
            tc: *tc,
            ways: Ways::new(),
        };
        plan.refresh()?;
        plan.check()?;
        Ok(Some(plan))
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

    /// The names of the interfaces by which sessions may begin.
    pub fn listeners(&self) -> impl Iterator<Item = &String> {
        self.forwards.keys()
    }

    /// Whether another plan comes from the same configuration; routes may differ.
    #[must_use]
    pub fn is_same_configuration(&self, other: &Self) -> bool {
        let with_its_ways = Self {
            ways: other.ways.clone(),
            ..self.clone()
        };
        with_its_ways == *other
    }

    /// What is forwarded of the packets that come in by an interface, in words; none if
    /// nothing is.
    #[must_use]
    pub fn forwards_by(&self, interface: &str) -> Option<String> {
        let forwards = self.forwards.get(interface)?;
        let ports = forwards.iter().map(|forward| forward.listen.ports.count());
        Some(match ports.sum::<u32>() {
            1 => "forwards 1 port".to_owned(),
            ports => format!("forwards {ports} ports"),
        })
    }

    fn back_ends(&self) -> impl Iterator<Item = (&Forward, &To)> {
        let all = self.forwards.values().flatten();
        all.flat_map(|forward| forward.to.iter().map(move |to| (forward, to)))
    }

    pub(super) fn way(&self, to: IpAddr) -> Option<Way> {
        self.ways.get(&to).copied().flatten()
    }

    /// Whether a back end is this host.
    #[must_use]
    pub fn is_local(&self, to: IpAddr) -> bool {
        self.way(to).is_some_and(|way| way.is_local)
    }

    /// The back ends that no route leads to.
    pub fn unreachable(&self) -> impl Iterator<Item = IpAddr> {
        let nowhere = self.ways.iter().filter(|(_, way)| way.is_none());
        nowhere.map(|(to, _)| *to)
    }

    /// The names of all interfaces that need programs: those by which sessions begin, and those
    /// by which packets with another source leave and come back.
    #[must_use]
    pub fn interfaces(&self) -> Vec<String> {
        let masquerading = self
            .back_ends()
            .filter(|(forward, _)| forward.source != Source::Keep);
        let ways = masquerading.filter_map(|(_, to)| self.way(to.address));
        let others: BTreeSet<String> = ways.filter_map(|way| name_of(way.interface)).collect();
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

    /// Asks for the ways to the back ends again; whether one has changed.
    ///
    /// # Errors
    ///
    /// If the kernel does not tell.
    pub fn refresh(&mut self) -> Result<bool> {
        let ways = ways_to(self.back_ends().map(|(_, to)| to.address))?;
        let changed = ways != self.ways;
        self.ways = ways;
        Ok(changed)
    }

    /// How programs are attached and set up.
    #[must_use]
    pub fn options(&self) -> Options<Settings> {
        Options {
            ingress: IngressChoice::Tc,
            tc: self.tc,
            trace: Trace::Off,
            record: None,
            settings: Settings {
                rules: self.rules(),
                max_sessions: self.max_sessions.get(),
                timers: self.timers,
            },
        }
    }

    fn rules(&self) -> BTreeMap<String, Vec<Rule>> {
        let all = self.forwards.iter();
        let all = all.map(|(name, forwards)| {
            let rules = forwards.iter().map(|forward| self.rule(forward));
            (name.clone(), rules.collect())
        });
        all.collect()
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
            Source::Keep | Source::Masquerade => self.way(to).and_then(|way| way.source),
        };
        match address {
            Some(address) => settings::Source::Address(address, [first, last]),
            None => settings::Source::Unreachable,
        }
    }
}

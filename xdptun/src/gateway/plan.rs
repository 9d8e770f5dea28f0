//! What the configuration asks for, as far as it is known: addresses of this host come from the
//! routes to the back ends, which change.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use xdptun_common::gateway::rule::MAX_BACK_ENDS;

use super::Pinned;
use super::settings::{self, Rule, Settings};
use crate::config::{Forward, IngressChoice, Source, TcChoice, To};
use crate::error::{Result, bail};
use crate::group::{Options, Trace};
use crate::host::interface::{Interface, name_of};
use crate::host::route::{Way, ways_to};

/// What the configuration asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The interfaces by which sessions may begin.
    pub listeners: Vec<String>,
    /// What is forwarded.
    pub forwards: Vec<Forward>,
    /// How many sessions that both ends have used there may be.
    pub max_sessions: u32,
    /// How the programs are attached.
    pub tc: TcChoice,
    /// The ways to the back ends, as they were last seen.
    ways: BTreeMap<IpAddr, Option<Way>>,
}

/// The sum of all weights: half of the programs' table, so that other rules fit beside those that
/// they replace.
const MAX_WEIGHTS: u32 = MAX_BACK_ENDS / 2;

impl Plan {
    /// Asks for the ways to the back ends.
    ///
    /// # Errors
    ///
    /// If the kernel does not tell; of [kind](crate::error::Kind) `Invalid` if a back end is
    /// this host, whose packets cannot get another source.
    pub fn new(
        listeners: Vec<String>,
        forwards: Vec<Forward>,
        max_sessions: u32,
        tc: TcChoice,
    ) -> Result<Self> {
        let weights = forwards.iter().flat_map(|forward| &forward.to);
        let weights: u32 = weights.map(|to| u32::from(to.weight)).sum();
        if weights > MAX_WEIGHTS {
            bail!(
                Invalid,
                "the weights of all back ends add up to {weights}; there is room for {MAX_WEIGHTS}"
            );
        }
        let ways = ways(&forwards)?;
        let plan = Self {
            listeners,
            forwards,
            max_sessions,
            tc,
            ways,
        };
        for (forward, to) in plan.back_ends() {
            if forward.source != Source::Keep && plan.is_local(to.address) {
                bail!(
                    Invalid,
                    "{to} is this host, and its packets cannot get another source on the way to \
                     itself; leave `--source` out"
                );
            }
        }
        Ok(plan)
    }

    fn back_ends(&self) -> impl Iterator<Item = (&Forward, &To)> {
        let all = self.forwards.iter();
        all.flat_map(|forward| forward.to.iter().map(move |to| (forward, to)))
    }

    fn way(&self, to: IpAddr) -> Option<Way> {
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
            .filter(|name| !self.listeners.contains(name));
        self.listeners.iter().cloned().chain(others).collect()
    }

    /// The same, and those that a process left attached together with them: it may have followed
    /// other routes.
    ///
    /// # Errors
    ///
    /// If pins cannot be read.
    pub fn interfaces_to_attach(&self) -> Result<Vec<String>> {
        let mut names = self.interfaces();
        for name in &self.listeners {
            let Ok(interface) = Interface::find(name) else {
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
        let ways = ways(&self.forwards)?;
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
                listeners: self.listeners.clone(),
                rules: self.forwards.iter().map(|one| self.rule(one)).collect(),
                max_sessions: self.max_sessions,
            },
        }
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

fn ways(forwards: &[Forward]) -> Result<BTreeMap<IpAddr, Option<Way>>> {
    let back_ends = forwards.iter().flat_map(|forward| &forward.to);
    let addresses: BTreeSet<IpAddr> = back_ends.map(|to| to.address).collect();
    let addresses: Vec<IpAddr> = addresses.into_iter().collect();
    let ways = ways_to(&addresses)?;
    Ok(addresses.into_iter().zip(ways).collect())
}

//! The gateway as a function of a group of interfaces.

use std::path::Path;

use aya::Ebpf;
use xdptun_common::gateway::outcome::{Count, Outcome};

use super::load::{Own, load};
use super::maps::Maps;
use super::plan::Plan;
use super::settings::Settings;
use super::{cut, daemon};
use crate::datapath::map::Source;
use crate::datapath::programs::Programs;
use crate::error::Result;
use crate::group::counter::{self, Counter, KeptIn, Metric, PacketEnd};
use crate::group::options::Contradiction;
use crate::group::{Attached, End, Function, Options, Orders, Reason};
use crate::host::addresses::{self, Addresses};
use crate::host::interface::Interface;

/// Packets to this host that go on to other hosts, and those of hosts behind it.
#[derive(Debug)]
pub enum Gateway {}

static SESSIONS: Metric = Metric {
    name: "xdptun_sessions",
    help: "Sessions begun, and what became of them; `xdptun explain OUTCOME` tells more.",
};

/// The counter that the daemon keeps.
const FRAGMENTS_LOST: Counter = Counter {
    name: "fragments_lost",
    meaning: "Fragments for which the first one of their datagram did not come within two seconds, \
              or that found no room to wait for it. What had come in goes on to this host itself.",
    advice: "The network loses packets, or somebody sends fragments that have no first.",
    end: PacketEnd::Dropped,
    kept_in: KeptIn::Attachment,
    metric: &Metric {
        name: "xdptun_fragments_lost",
        help: "Fragments that waited in vain for the first one of their datagram.",
    },
};

impl Function for Gateway {
    const PROGRAMS: &'static Programs = &Programs {
        function: "gateway",
        // Behind the tunnel, NAT64 and the policy: they see datagrams with the addresses that the
        // network has, and what clients send as IPv4.
        order: 4,
        is_older_than_groups: false,
        device: None,
        ingress: Some("gateway_ingress"),
        egress: "gateway_egress",
        splitter: None,
        xdp: None,
    };

    const BEHIND: &'static str = "translated";

    type Plan = Plan;
    type Settings = Settings;
    type Maps = Maps;
    type Own = Own;
    type Observer = ();

    fn counters() -> Vec<Counter> {
        let counts = Count::ALL.iter();
        let counts =
            counts.map(|one| Counter::kept_by_programs(*one, PacketEnd::Unseen, &SESSIONS));
        counter::of_endings::<Outcome>()
            .chain(counts)
            .chain([FRAGMENTS_LOST])
            .collect()
    }

    fn options(plan: &Plan) -> Options<Settings> {
        plan.options()
    }

    fn contradiction(settings: &Settings, maps: &Maps) -> Option<Contradiction> {
        Contradiction::between("max-sessions", settings.max_sessions, maps.max_sessions()).or_else(
            || Contradiction::between("max-bindings", settings.max_bindings, maps.max_bindings()),
        )
    }

    fn takes_other_programs(_: &Settings, _: &Settings) -> bool {
        false
    }

    fn load(
        options: &Options<Settings>,
        interface: &Interface,
        directory: &Path,
    ) -> Result<(Ebpf, Own)> {
        load(options, interface, directory)
    }

    fn maps(source: &mut Source<'_>) -> Result<Maps> {
        Maps::open(source)
    }

    fn set_up(maps: &mut Maps, _: &Own, settings: &Settings) -> Result<()> {
        maps.set_timers(settings.timers)?;
        maps.add_rules(&settings.rules)?;
        maps.translate(settings.nats.clone());
        Ok(())
    }

    fn tidy(maps: &mut Maps, _: &Settings) -> Result<()> {
        maps.remove_unused_rules()
    }

    fn change(attached: &mut Attached<Self>, settings: &Settings) -> Result<()> {
        attached.maps.set_timers(settings.timers)?;
        attached.maps.add_rules(&settings.rules)?;
        attached.maps.translate(settings.nats.clone());
        let indices = attached.indices();
        Self::interfaces_changed(attached, &indices)?;
        cut::carry_out(&mut attached.maps, settings.cut)?;
        attached.maps.remove_unused_rules()
    }

    fn interfaces_changed(attached: &mut Attached<Self>, interfaces: &[u32]) -> Result<()> {
        attached.set_local(&addresses::now(interfaces)?)?;
        let names = attached.names_of(interfaces)?;
        Ok(attached.maps.set_interfaces(&names)?)
    }

    async fn run(
        attached: &mut Attached<Self>,
        plan: &Plan,
        missing: &[String],
        orders: &mut Orders<Reason<Plan>>,
        (): &(),
        ready: impl FnOnce(&mut Attached<Self>) -> Result<()>,
    ) -> Result<End<Reason<Plan>>> {
        // What is taken over may have sessions of other rules.
        cut::carry_out(&mut attached.maps, plan.cut)?;
        daemon::run(attached, missing, orders, ready).await
    }
}

impl Attached<Gateway> {
    /// Gives the programs the addresses of this host.
    ///
    /// # Errors
    ///
    /// If the maps cannot be written.
    pub(super) fn set_local(&mut self, addresses: &Addresses) -> Result<()> {
        let mut all = self.loaded.iter_mut();
        all.try_for_each(|loaded| loaded.own.local.set(addresses))
    }
}

//! The policy as a function of a group of interfaces.

use std::path::Path;

use aya::Ebpf;
use xdptun_common::policy::outcome::{Count, Outcome};

use super::daemon;
use super::load::load;
use super::maps::Maps;
use super::plan::{Plan, Settings};
use crate::datapath::map::Source;
use crate::datapath::programs::Programs;
use crate::error::Result;
use crate::group::counter::{self, Counter, Metric, PacketEnd};
use crate::group::options::Contradiction;
use crate::group::{Attached, End, Function, Options, Orders, Reason};
use crate::host::interface::Interface;

/// Payloads are searched for the patterns of rules.
#[derive(Debug)]
pub enum Policy {}

static SEARCHES: Metric = Metric {
    name: "xdptun_policy_events",
    help: "What happened beside the ends of packets; `xdptun explain OUTCOME` tells more.",
};

impl Function for Policy {
    const PROGRAMS: &'static Programs = &Programs {
        function: "policy",
        // Behind the tunnel: it sees datagrams. Before the gateway: it sees the addresses that
        // the network has.
        order: 2,
        is_older_than_groups: false,
        device: None,
        ingress: Some("policy_ingress"),
        egress: "policy_egress",
        splitter: None,
        xdp: None,
    };

    const BEHIND: &'static str = "passed";

    type Plan = Plan;
    type Settings = Settings;
    type Maps = Maps;
    type Own = ();
    type Observer = ();

    fn counters() -> Vec<Counter> {
        let counts = Count::ALL.iter();
        let counts =
            counts.map(|one| Counter::kept_by_programs(*one, PacketEnd::Unseen, &SEARCHES));
        counter::of_endings::<Outcome>().chain(counts).collect()
    }

    fn options(plan: &Plan) -> Options<Settings> {
        plan.options()
    }

    fn contradiction(_: &Settings, _: &Maps) -> Option<Contradiction> {
        None
    }

    fn takes_other_programs(_: &Settings, _: &Settings) -> bool {
        false
    }

    fn load(
        options: &Options<Settings>,
        interface: &Interface,
        directory: &Path,
    ) -> Result<(Ebpf, ())> {
        Ok((load(options, interface, directory)?, ()))
    }

    fn maps(source: &mut Source<'_>) -> Result<Maps> {
        Maps::open(source)
    }

    fn set_up(maps: &mut Maps, (): &(), settings: &Settings) -> Result<()> {
        maps.write_rules(settings)
    }

    fn tidy(_: &mut Maps, _: &Settings) -> Result<()> {
        Ok(())
    }

    fn clear_row(maps: &mut Maps, row: u32) -> Result<()> {
        maps.clear_row(row)
    }

    fn change(attached: &mut Attached<Self>, settings: &Settings) -> Result<()> {
        attached.maps.write_rules(settings)?;
        let indices = attached.indices();
        Self::interfaces_changed(attached, &indices)
    }

    fn interfaces_changed(attached: &mut Attached<Self>, interfaces: &[u32]) -> Result<()> {
        let names = attached.names_of(interfaces)?;
        Ok(attached.maps.set_interfaces(&names)?)
    }

    fn detail(maps: &Maps, number: u8) -> Option<String> {
        let name = maps.name_at(number.checked_sub(1)?)?;
        Some(format!("rule {name}"))
    }

    async fn run(
        attached: &mut Attached<Self>,
        _: &Plan,
        missing: &[String],
        orders: &mut Orders<Reason<Plan>>,
        (): &(),
        ready: impl FnOnce(&mut Attached<Self>) -> Result<()>,
    ) -> Result<End<Reason<Plan>>> {
        daemon::run(attached, missing, orders, ready).await
    }
}

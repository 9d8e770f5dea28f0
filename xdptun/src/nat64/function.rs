//! NAT64 as a function of a group, whose only interface is a device of its own.

use std::path::Path;

use aya::Ebpf;
use xdptun_common::nat64::LONGER;
use xdptun_common::nat64::outcome::{Count, Outcome};

use super::load::load;
use super::maps::Maps;
use super::plan::{DEVICE, Plan, Settings, pool_text, prefix_text};
use super::{Attached, daemon};
use crate::datapath::map::Source;
use crate::datapath::programs::Programs;
use crate::error::Result;
use crate::group::counter::{self, Counter, Metric, PacketEnd};
use crate::group::options::Contradiction;
use crate::group::{End, Function, Options, Orders, Reason};
use crate::host::interface::Interface;

/// Packets of IPv6-only clients as packets of IPv4, and the other way.
#[derive(Debug)]
pub enum Nat64 {}

static EVENTS: Metric = Metric {
    name: "xdptun_nat64",
    help: "What happened beside the translation of packets; `xdptun explain OUTCOME` tells more.",
};

impl Function for Nat64 {
    const PROGRAMS: &'static Programs = &Programs {
        function: "nat64",
        // Nothing leaves by the device: other functions there meet the packet before, and what comes in
        // after.
        order: 1,
        is_older_than_groups: false,
        device: Some(DEVICE),
        ingress: None,
        egress: "nat64_egress",
        splitter: None,
        xdp: None,
    };

    const BEHIND: &'static str = "translated";

    type Plan = Plan;
    type Settings = Settings;
    type Maps = Maps;
    type Own = ();
    type Observer = ();

    fn counters() -> Vec<Counter> {
        let counts = Count::ALL.iter();
        let counts = counts.map(|one| Counter::kept_by_programs(*one, PacketEnd::Unseen, &EVENTS));
        counter::of_endings::<Outcome>().chain(counts).collect()
    }

    fn options(plan: &Plan) -> Options<Settings> {
        plan.options()
    }

    fn contradiction(settings: &Settings, maps: &Maps) -> Option<Contradiction> {
        let (wanted, has) = (&settings.translator, &maps.translator().ok()?);
        let [prefix, pool] = [prefix_text, pool_text].map(|text| [text(wanted), text(has)]);
        let mtu = [wanted, has].map(|one| (one.mtu_v4 + LONGER).to_string());
        let all = [("prefix", prefix), ("pool", pool), ("mtu", mtu)];
        let mut all = all.into_iter();
        all.find_map(|(option, [wanted, has])| {
            (wanted != has).then_some(Contradiction {
                option,
                wanted,
                has,
            })
        })
    }

    fn takes_other_programs(_: &Settings, _: &Settings) -> bool {
        false
    }

    fn make_device(plan: &Plan) -> Result<bool> {
        plan.device().ensure()
    }

    fn load(
        options: &Options<Settings>,
        interface: &Interface,
        directory: &Path,
    ) -> Result<(Ebpf, ())> {
        load(options, interface, directory)
    }

    fn maps(source: &mut Source<'_>) -> Result<Maps> {
        Maps::open(source)
    }

    fn set_up(maps: &mut Maps, (): &(), settings: &Settings) -> Result<()> {
        maps.set_up(settings)
    }

    fn tidy(maps: &mut Maps, settings: &Settings) -> Result<()> {
        maps.tidy(settings)
    }

    fn change(attached: &mut Attached, settings: &Settings) -> Result<()> {
        attached.maps.set_up(settings)?;
        attached.maps.tidy(settings)
    }

    fn interfaces_changed(_: &mut Attached, _: &[u32]) -> Result<()> {
        Ok(())
    }

    async fn run(
        attached: &mut Attached,
        plan: &Plan,
        missing: &[String],
        orders: &mut Orders<Reason<Plan>>,
        (): &(),
        ready: impl FnOnce(&mut Attached) -> Result<()>,
    ) -> Result<End<Reason<Plan>>> {
        daemon::run(attached, plan, missing, orders, ready).await
    }
}

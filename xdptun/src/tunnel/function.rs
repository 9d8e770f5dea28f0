//! The tunnel as a function of a group of interfaces.

use std::path::Path;

use aya::Ebpf;

use super::counters;
use super::daemon::{self, Observer};
use super::load::{Own, load};
use super::maps::Maps;
use super::plan::Plan;
use super::settings::Settings;
use crate::datapath::map::Source;
use crate::datapath::programs::{Programs, SplitterPrograms, XdpPrograms};
use crate::error::Result;
use crate::group::counter::Counter;
use crate::group::options::Contradiction;
use crate::group::{Attached, End, Function, Options, Orders, Reason};
use crate::host::addresses;
use crate::host::interface::Interface;

/// UDP datagrams that cross the network as TCP segments.
#[derive(Debug)]
pub enum Tunnel {}

impl Function for Tunnel {
    const PROGRAMS: &'static Programs = &Programs {
        function: "tunnel",
        // All others see datagrams.
        order: 0,
        is_older_than_groups: true,
        device: None,
        ingress: Some("xdptun_ingress"),
        egress: "xdptun_egress",
        splitter: Some(SplitterPrograms {
            far: "xdptun_splitter",
            near: "xdptun_joiner",
        }),
        xdp: Some(XdpPrograms {
            linear: "xdptun_xdp",
            frags: "xdptun_xdp_frags",
        }),
    };

    const BEHIND: &'static str = "restored";

    type Plan = Plan;
    type Settings = Settings;
    type Maps = Maps;
    type Own = Own;
    type Observer = dyn Observer;

    fn counters() -> Vec<Counter> {
        counters::all().collect()
    }

    fn options(plan: &Plan) -> Options<Settings> {
        plan.options()
    }

    fn contradiction(settings: &Settings, maps: &Maps) -> Option<Contradiction> {
        Contradiction::between("max-flows", settings.max_flows, maps.max_flows())
    }

    fn takes_other_programs(settings: &Settings, before: &Settings) -> bool {
        settings.take_other_programs(before)
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

    fn set_up(maps: &mut Maps, own: &Own, settings: &Settings) -> Result<()> {
        maps.set_group(own.group)?;
        maps.set_ports(&settings.ports)?;
        maps.add_peers(settings)
    }

    fn tidy(maps: &mut Maps, settings: &Settings) -> Result<()> {
        maps.retain_peers(&settings.peers)
    }

    fn change(attached: &mut Attached<Self>, settings: &Settings) -> Result<()> {
        if let Some(keys) = &settings.keys {
            for loaded in &mut attached.loaded {
                loaded.own.keys.set(keys)?;
            }
        }
        // What stays is owned all the time.
        attached.maps.set_ports(&settings.ports)?;
        attached.maps.retain_peers(&settings.peers)?;
        attached.maps.add_peers(settings)
    }

    fn interfaces_changed(attached: &mut Attached<Self>, interfaces: &[u32]) -> Result<()> {
        attached.set_addresses(&addresses::now(interfaces)?)
    }

    async fn run(
        attached: &mut Attached<Self>,
        plan: &Plan,
        missing: &[String],
        orders: &mut Orders<Reason<Plan>>,
        observer: &(dyn Observer + 'static),
        ready: impl FnOnce(&mut Attached<Self>) -> Result<()>,
    ) -> Result<End<Reason<Plan>>> {
        daemon::run(attached, plan.timers, missing, orders, observer, ready).await
    }
}

impl Attached<Tunnel> {
    /// Gives the programs the addresses of this host.
    ///
    /// # Errors
    ///
    /// If the maps cannot be written.
    pub fn set_addresses(&mut self, addresses: &addresses::Addresses) -> Result<()> {
        let mut all = self.loaded.iter_mut();
        all.try_for_each(|loaded| loaded.own.local.set(addresses))
    }
}

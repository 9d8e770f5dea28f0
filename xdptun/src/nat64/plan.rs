//! What the configuration asks for.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};
use xdptun_common::gateway::timer::Timers;
use xdptun_common::nat64::LONGER;
use xdptun_common::nat64::translator::Translator;

use crate::config::{self, GroChoice, IngressChoice};
use crate::datapath::device::Device;
use crate::group::{Options, Trace};

/// The device that the prefix and the pool are routed to.
pub const DEVICE: &str = "xdptun64";

/// What the configuration asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What is translated.
    pub nat64: config::Nat64,
    /// For how long, in seconds, a client keeps its address after its last packet.
    answered: u32,
    /// The same if nothing was sent to it.
    unanswered: u32,
}

/// What the program and its maps are set up with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What is translated, but for the key.
    pub translator: Translator,
    /// The networks of clients, and the device's own address.
    pub inside: BTreeSet<Ipv6Net>,
    /// Static addresses.
    pub fixed: BTreeMap<Ipv4Addr, Ipv6Addr>,
}

impl Plan {
    /// The plan for a configuration; `None` if it has nothing for NAT64. Sessions live as long as its
    /// timers say, and an address as long as its longest session can.
    #[must_use]
    pub fn of(config: &config::Config) -> Option<Self> {
        let [udp, tcp] = [config.udp_timeout.get(), config.tcp_timeout.get()];
        Some(Self {
            nat64: config.nat64.clone()?,
            answered: udp.max(tcp),
            unanswered: udp.max(config.tcp_transitory_timeout.get()),
        })
    }

    /// What it does, in words.
    #[must_use]
    pub fn does(&self) -> String {
        let inside = self.nat64.inside.iter().map(ToString::to_string);
        let inside: Vec<String> = inside.collect();
        format!("translates {} to {}", inside.join(", "), self.nat64.pool)
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> Device {
        let translator = self.translator();
        let [own, own_v6]: [IpAddr; 2] = [
            Ipv4Addr::from(translator.own).into(),
            Ipv6Addr::from(translator.own_v6).into(),
        ];
        Device {
            name: DEVICE,
            addresses: vec![own, own_v6],
            routes: vec![
                // The kernel tells senders what fits the way to clients.
                (self.nat64.pool.network().into(), Some(translator.mtu_v4)),
                (self.nat64.prefix.network().into(), None),
            ],
        }
    }

    /// The networks that are routed to the device.
    pub fn routed(&self) -> [IpNet; 2] {
        [
            self.nat64.pool.network().into(),
            self.nat64.prefix.network().into(),
        ]
    }

    /// How programs are attached and set up.
    #[must_use]
    pub fn options(&self) -> Options<Settings> {
        let translator = self.translator();
        let networks = self.nat64.inside.iter().map(|inside| inside.network());
        let own = Ipv6Net::from(Ipv6Addr::from(translator.own_v6));
        let fixed = self.nat64.fixed.iter();
        Options {
            ingress: IngressChoice::Tc,
            gro: GroChoice::Off,
            tc: self.nat64.tc,
            trace: Trace::Off,
            record: None,
            settings: Settings {
                inside: networks.chain([own]).collect(),
                fixed: fixed.map(|one| (one.address, one.client)).collect(),
                translator,
            },
        }
    }

    fn translator(&self) -> Translator {
        let nat64 = &self.nat64;
        let (prefix, pool) = (nat64.prefix.of_programs(), nat64.pool.of_programs());
        let clients = pool.clients();
        let ticks = |seconds| Timers::from_seconds(seconds, seconds, seconds, seconds).udp;
        Translator {
            prefix,
            pool,
            own: pool.own(),
            own_v6: prefix.embed(pool.own()),
            only_global: (prefix.is_well_known() && !nat64.allow_private).into(),
            mtu_v4: nat64.mtu.get() - LONGER,
            // Half, so that clients with answers find room beside those without.
            max_unanswered: clients.div_ceil(2),
            max_per_network: nat64.per_prefix.map_or(quarter(clients), |most| most.get()),
            answered: ticks(self.answered),
            unanswered: ticks(self.unanswered),
            key: [0; 2],
        }
    }
}

/// A quarter of the clients that a pool has room for, or one.
fn quarter(clients: u32) -> u32 {
    (clients / 4).max(1)
}

/// The prefix of a translator, as text.
pub(super) fn prefix_text(translator: &Translator) -> String {
    let (address, len) = translator.prefix.parts();
    format!("{}/{len}", Ipv6Addr::from(address))
}

/// Its pool.
pub(super) fn pool_text(translator: &Translator) -> String {
    let (address, len) = translator.pool.parts();
    format!("{}/{len}", Ipv4Addr::from(address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn plan(file: &str) -> Plan {
        Plan::of(&Config::parse(file).unwrap()).unwrap()
    }

    #[test]
    fn shares_and_times_follow_the_file() {
        let plan = plan(
            "udp-timeout = 100\ntcp-timeout = 5000\n[nat64]\ninside = \"fd00:6::/64\"\n\
             pool = \"10.64.0.0/24\"\nmtu = 1492",
        );
        let translator = plan.options().settings.translator;
        assert_eq!(translator.max_unanswered, 127);
        assert_eq!(translator.max_per_network, 63);
        assert_eq!(translator.mtu_v4, 1472);
        assert_eq!(translator.only_global, 1);
        let seconds = |ticks: u32| (u64::from(ticks) << 20).div_ceil(1_000_000_000);
        assert_eq!(seconds(translator.answered), 5000);
        assert_eq!(seconds(translator.unanswered), 240);
        let device = plan.device();
        let addresses: [IpAddr; 2] =
            ["10.64.0.1", "64:ff9b::a40:1"].map(|one| one.parse().unwrap());
        assert_eq!(device.addresses, addresses);
    }

    #[test]
    fn a_prefix_of_ones_own_stands_before_any_address() {
        let plan = plan("[nat64]\ninside = \"fd00:6::/64\"\nprefix = \"fd00:64::/96\"");
        assert_eq!(plan.options().settings.translator.only_global, 0);
    }
}

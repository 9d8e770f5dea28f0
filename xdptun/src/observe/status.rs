//! Attachments, their counters and flows, as `xdptun status --json` prints them;
//! docs/json.md describes the layout.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use serde::{Serialize, Serializer};
use xdptun_common::address::ip_addr;
use xdptun_common::flow::key::FlowKey;
use xdptun_common::gateway::nat::{Nat, Network};
use xdptun_common::gateway::rule::BackEnd;
use xdptun_common::tunnel::state::{Flow, State};

use crate::control::Report;
use crate::error::{Result, bail};
use crate::gateway::present::{self, PresentRule};
use crate::gateway::{Gateway, session};
use crate::group::Function;
use crate::group::counter::Counts;
use crate::group::pinned::{Pinned, daemon_of};
use crate::host::clock::{as_seconds, monotonic_ns, since};
use crate::host::interface::Interface;
use crate::host::mtu::WireguardMtu;
use crate::host::ports::PortRange;
use crate::nat64::Nat64;
use crate::observe::nat64::Nat64Status;
use crate::observe::policy::PolicyStatus;
use crate::policy::Policy;
use crate::tunnel::Tunnel;

/// Version of the layout of all JSON that xdptun prints. A new field does not change it; a
/// field that changes its meaning or is removed raises it.
pub const SCHEMA: u32 = 1;

/// The attachments of a network namespace at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The attachments, by interface index.
    pub interfaces: Vec<InterfaceStatus>,
    /// What the gateway has attached, by interface index; left out if there is nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<GatewayStatus>,
    /// What the policy has attached, by interface index; left out if there is nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<PolicyStatus>,
    /// What NAT64 has attached; left out if there is nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nat64: Option<Nat64Status>,
    /// The state of each interface of the running `xdptun run`, by name; left out if none
    /// runs, or it was not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<Vec<Report>>,
}

/// What any function has attached to an interface.
#[derive(Clone, Debug, Serialize)]
pub struct AttachmentStatus {
    /// The function, such as `tunnel`.
    pub function: &'static str,
    /// The interface's name; if it is gone, the name that the daemon waits for.
    pub name: String,
    /// Its index.
    pub ifindex: u32,
    /// The names of all interfaces of its group, by index, itself among them.
    pub group: Vec<String>,
    /// MTU of the interface in bytes, as it is now; none if it is gone.
    pub mtu: Option<u32>,
    /// Which program handles what comes in: `tc`, `xdp` or `xdp-generic`.
    pub ingress: &'static str,
    /// Where programs are attached now.
    pub hooks: Vec<String>,
    /// Process id of the daemon, if it lives.
    pub daemon: Option<i32>,
    /// Time since it was attached; `attached_s`, seconds, in JSON.
    #[serde(rename = "attached_s", serialize_with = "as_seconds")]
    pub attached: Duration,
    /// Packets of this interface by counter, and their bytes, since it was attached;
    /// `xdptun explain` tells the meaning of each. Two fields in JSON, `counters` and `bytes`.
    #[serde(flatten)]
    pub counters: Counts,
}

/// What the gateway does on an interface.
#[derive(Clone, Debug, Serialize)]
pub struct GatewayStatus {
    /// What is attached. The interfaces of its group share sessions.
    #[serde(flatten)]
    pub attachment: AttachmentStatus,
    /// What is forwarded of the packets that come in by it, in the order of the rules.
    pub forwards: Vec<Forwarded>,
    /// What it translates for inside hosts; none if it does not.
    pub nat: Option<Translated>,
    /// How many ends of inside hosts are bound to an outside port, by all interfaces of the group.
    pub bindings: usize,
    /// How many bindings there may be at once.
    pub max_bindings: u32,
    /// How many sessions may be open at once.
    pub max_sessions: u32,
    /// How many sessions are in each state, by
    /// [`State::name`](crate::gateway::session::State::name).
    pub session_states: BTreeMap<&'static str, usize>,
}

/// Ports that are forwarded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Forwarded {
    /// The listen address; 0.0.0.0 or `::` stands for any of this host's of that family.
    pub address: IpAddr,
    /// The first and the last port.
    pub ports: [u16; 2],
    /// `tcp` or `udp`.
    pub protocol: &'static str,
    /// The back ends of the first port.
    pub to: Vec<Target>,
}

/// What an interface translates for inside hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Translated {
    /// The networks of the inside hosts, as CIDR in JSON.
    #[serde(serialize_with = "each_as_text")]
    pub inside: Vec<IpNet>,
    /// The address that they get outside; none if the interface has none now.
    pub outside: Option<IpAddr>,
    /// The first and the last port that they get.
    pub ports: [u16; 2],
    /// Which packets from outside reach them: `endpoint-independent` or
    /// `address-and-port-dependent`.
    pub filtering: &'static str,
    /// How many bindings one of them may have at once.
    pub max_bindings_per_host: u32,
}

/// A back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Target {
    /// Its address and port.
    pub address: SocketAddr,
    /// How many clients it gets, as a share of the sum of all weights.
    pub weight: u32,
    /// The address that it sees as the source; none if that is the client's.
    pub source: Option<IpAddr>,
}

/// What the tunnel carries on an interface.
#[derive(Clone, Debug, Serialize)]
pub struct InterfaceStatus {
    /// What is attached. The interfaces of its group share flows.
    #[serde(flatten)]
    pub attachment: AttachmentStatus,
    /// The owned ports, in order; text like `8000` or `8000-8010` in JSON.
    #[serde(serialize_with = "each_as_text")]
    pub ports: Vec<PortRange>,
    /// The networks of peers, as CIDR in JSON; empty if every address is one.
    #[serde(serialize_with = "each_as_text")]
    pub peers: Vec<IpNet>,
    /// Whether callers must know a secret (`--secret`).
    pub secret: bool,
    /// The largest MTU of a WireGuard device inside, in bytes.
    pub wireguard_mtu: Option<WireguardMtu>,
    /// Capacity of the flow table.
    pub max_flows: u32,
    /// How many flows are in each state, by [`State::name`].
    pub flow_states: BTreeMap<&'static str, usize>,
    /// The flows that last sent by this interface, by local and then remote end.
    pub flows: Vec<FlowStatus>,
}

/// One flow.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowStatus {
    /// This host's end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Its state, by [`State::name`] in JSON.
    #[serde(serialize_with = "as_name")]
    pub state: State,
    /// Datagrams disguised.
    pub tx_packets: u64,
    /// Their payload in bytes.
    pub tx_bytes: u64,
    /// Datagrams restored.
    pub rx_packets: u64,
    /// Their payload in bytes.
    pub rx_bytes: u64,
    /// Time since it was opened; `age_s`, seconds, in JSON.
    #[serde(rename = "age_s", serialize_with = "as_seconds")]
    pub age: Duration,
    /// Time since the last datagram either way; `idle_s`, seconds, in JSON.
    #[serde(rename = "idle_s", serialize_with = "as_seconds")]
    pub idle: Duration,
}

impl Status {
    /// Reads every attachment of this network namespace.
    ///
    /// # Errors
    ///
    /// If pins cannot be read, which needs root ([kind](crate::error::Kind) `Permission`), or
    /// belong to another version (`OtherVersion`), or come or go at this moment.
    pub fn read() -> Result<Self> {
        // The interfaces of a group share one table.
        let mut tables = BTreeMap::new();
        let mut interfaces = Vec::new();
        for pinned in Pinned::<Tunnel>::all()? {
            let flows = match tables.entry(pinned.group.directory.clone()) {
                Entry::Occupied(table) => table.into_mut(),
                Entry::Vacant(table) => table.insert(pinned.group.maps.flows()?),
            };
            interfaces.push(InterfaceStatus::read(&pinned, flows)?);
        }
        let mut states = BTreeMap::new();
        let mut gateways = Vec::new();
        for pinned in Pinned::<Gateway>::all()? {
            let states = match states.entry(pinned.group.directory.clone()) {
                Entry::Occupied(states) => states.into_mut(),
                Entry::Vacant(states) => states.insert(session::states(&pinned.group.maps)?),
            };
            gateways.push(GatewayStatus::read(&pinned, states)?);
        }
        let policies = Pinned::<Policy>::all()?;
        let policies: Result<_> = policies.iter().map(PolicyStatus::read).collect();
        let nat64 = Pinned::<Nat64>::all()?;
        let nat64 = nat64.iter().map(Nat64Status::read).next().transpose()?;
        Ok(Self {
            schema: SCHEMA,
            interfaces,
            gateways,
            policies: policies?,
            nat64,
            service: None,
        })
    }

    /// Whether nothing is attached.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.interfaces.is_empty()
            && self.gateways.is_empty()
            && self.policies.is_empty()
            && self.nat64.is_none()
    }

    /// Keeps only the attachment of one interface.
    pub fn retain(&mut self, interface: &str) {
        self.interfaces
            .retain(|found| found.attachment.name == interface);
        self.gateways
            .retain(|found| found.attachment.name == interface);
        self.policies
            .retain(|found| found.attachment.name == interface);
        self.nat64
            .take_if(|found| found.attachment.name != interface);
        if let Some(reports) = &mut self.service {
            reports.retain(|report| report.name == interface);
        }
    }

    /// The attachments of one interface, and what `xdptun run` reports of it.
    ///
    /// # Errors
    ///
    /// If there are none and no report, of [kind](crate::error::Kind) `NotAttached`.
    pub fn of(mut self, interface: &str) -> Result<Self> {
        self.retain(interface);
        // One that `xdptun run` waits for, or gave up, has no attachment.
        if self.is_empty() && self.service.iter().flatten().next().is_none() {
            bail!(
                NotAttached,
                "{interface}: nothing is attached; `xdptun status` shows what is, and where"
            );
        }
        Ok(self)
    }
}

impl AttachmentStatus {
    /// Reads what a function has attached to an interface.
    ///
    /// # Errors
    ///
    /// If maps or the daemon's lock cannot be read.
    pub fn read<F: Function>(pinned: &Pinned<F>) -> Result<Self> {
        // As it is now, not as it was at attach.
        let interface = Interface::at(pinned.ifindex).ok();
        Ok(Self {
            function: F::PROGRAMS.function,
            name: pinned.name(),
            ifindex: pinned.ifindex,
            group: pinned.group.names(),
            mtu: interface.map(|interface| interface.mtu),
            ingress: pinned.ingress().name(),
            hooks: pinned.hooks(),
            daemon: daemon_of(&pinned.group.directory)?.map(nix::unistd::Pid::as_raw),
            attached: since(monotonic_ns(), pinned.attachment.since),
            counters: pinned.counters()?,
        })
    }
}

impl AsRef<AttachmentStatus> for AttachmentStatus {
    fn as_ref(&self) -> &AttachmentStatus {
        self
    }
}

impl AsRef<AttachmentStatus> for GatewayStatus {
    fn as_ref(&self) -> &AttachmentStatus {
        &self.attachment
    }
}

impl AsRef<AttachmentStatus> for InterfaceStatus {
    fn as_ref(&self) -> &AttachmentStatus {
        &self.attachment
    }
}

impl GatewayStatus {
    fn read(pinned: &Pinned<Gateway>, states: &BTreeMap<&'static str, usize>) -> Result<Self> {
        let maps = &pinned.group.maps;
        let rules = present::rules_of(maps, pinned.ifindex)?;
        Ok(Self {
            attachment: AttachmentStatus::read(pinned)?,
            forwards: rules.iter().map(Forwarded::of).collect(),
            nat: maps
                .bindings
                .nat_of(pinned.ifindex)?
                .map(|nat| Translated::of(&nat)),
            bindings: maps.bindings.count()?,
            max_bindings: maps.max_bindings(),
            max_sessions: maps.max_sessions(),
            session_states: states.clone(),
        })
    }
}

impl Translated {
    fn of(nat: &Nat) -> Self {
        let networks = nat.inside.iter().filter_map(Network::parts);
        let networks =
            networks.filter_map(|(address, prefix)| IpNet::new(address.into(), prefix).ok());
        Self {
            inside: networks.collect(),
            outside: nat.has_outside().then(|| ip_addr(nat.outside)),
            ports: nat.ports,
            filtering: nat.filtering().name(),
            max_bindings_per_host: nat.max_per_host,
        }
    }
}

impl Forwarded {
    fn of(rule: &PresentRule) -> Self {
        Self {
            address: rule.address,
            ports: rule.ports.into(),
            protocol: session::protocol_name(rule.protocol),
            to: targets(&rule.places),
        }
    }
}

/// The back ends at some places, each once.
fn targets(places: &[BackEnd]) -> Vec<Target> {
    let mut targets: Vec<Target> = Vec::new();
    for place in places {
        let address = place.end(0).socket_addr();
        match targets.last_mut() {
            Some(last) if last.address == address => last.weight += 1,
            _ => targets.push(Target {
                address,
                weight: 1,
                source: place.masquerades().then(|| ip_addr(place.source)),
            }),
        }
    }
    targets
}

impl InterfaceStatus {
    fn read(pinned: &Pinned<Tunnel>, of_group: &[(FlowKey, Flow)]) -> Result<Self> {
        let now = monotonic_ns();
        let maps = &pinned.group.maps;
        let mut flows = pinned.own_flows(of_group);
        flows.sort_unstable_by_key(|(key, _)| *key);
        let attachment = AttachmentStatus::read(pinned)?;
        Ok(Self {
            ports: maps.ports()?,
            peers: maps.peers()?,
            secret: pinned.has_secret(),
            wireguard_mtu: attachment.mtu.map(WireguardMtu::on),
            max_flows: maps.max_flows(),
            flow_states: by_state(flows.iter().map(|(_, flow)| flow.state())),
            flows: flows
                .iter()
                .map(|(key, flow)| FlowStatus::of(key, flow, now))
                .collect(),
            attachment,
        })
    }
}

/// How many flows are in each state; states without flows count zero.
pub(crate) fn by_state(found: impl Iterator<Item = State>) -> BTreeMap<&'static str, usize> {
    let mut states = BTreeMap::from(State::ALL.map(|state| (state.name(), 0)));
    for state in found {
        *states.entry(state.name()).or_default() += 1;
    }
    states
}

impl FlowStatus {
    fn of(key: &FlowKey, flow: &Flow, now: u64) -> Self {
        Self {
            local: key.local(),
            remote: key.remote(),
            state: flow.state(),
            tx_packets: flow.tx_packets,
            tx_bytes: flow.tx_bytes,
            rx_packets: flow.rx_packets,
            rx_bytes: flow.rx_bytes,
            age: since(now, flow.opened_at),
            idle: since(now, flow.data_at),
        }
    }
}

fn as_name<S: Serializer>(state: &State, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(state.name())
}

pub(super) fn each_as_text<S: Serializer>(
    values: &[impl Display],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(ToString::to_string))
}

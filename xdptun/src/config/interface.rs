//! The configuration of one interface.

use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use tracing::warn;

use super::forward::{Forward, Protocols, check_all};
use super::nat::Nat;
use super::peer::{self, Peer, PeerConfig, peers_fit};
use super::policy::{PolicyRule, check_policies};
use super::secrets::Secrets;
use super::time::Seconds;
use super::values::{Compat, GroChoice, IngressChoice, MaxFlows, TcChoice, list};
use super::veil::Veil;
use crate::error::{Result, bail};
use crate::host::ports::PortRange;

/// Default of `keepalive`, in seconds: the usual PersistentKeepalive of WireGuard, below
/// the limit of every common NAT.
pub const KEEPALIVE: u32 = 25;
/// Default of `idle-timeout`, in seconds: longer than the pauses within a conversation.
pub const IDLE_TIMEOUT: u32 = 600;

/// The usual `PersistentKeepalive` of WireGuard, in seconds.
const WIREGUARD_KEEPALIVE: u64 = 25;

/// One interface.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table like [interface.eth0]"
)]
pub struct InterfaceConfig {
    /// UDP ports and ranges that xdptun carries as TCP: each datagram whose local or remote
    /// port is one of them. An interface without a tunnel has none.
    #[serde(default, deserialize_with = "at_least_one_port")]
    pub ports: Vec<PortRange>,
    /// The only peers, 1,024 at most; if there are none, any address is a peer. xdptun leaves UDP and TCP
    /// of other addresses alone. A peer can have a `secret` (or a list) and a `compat` of
    /// its own, which replace the interface's for that peer.
    #[serde(default, deserialize_with = "not_too_many_peers")]
    pub peers: Vec<PeerConfig>,
    /// Which program restores inbound data.
    #[serde(default)]
    #[cfg_attr(test, schemars(extend("fixed" = true)))]
    pub ingress: IngressChoice,
    /// Whether restored datagrams pass GRO, which merges them for sockets with UDP_GRO. The GRO of
    /// the interface (`ethtool -K`) stays as it is.
    #[serde(default)]
    pub gro: GroChoice,
    /// How the tc programs are attached.
    #[serde(default)]
    #[cfg_attr(test, schemars(extend("fixed" = true)))]
    pub tc: TcChoice,
    /// Silence after which a flow is probed, so that NATs and firewalls on the path
    /// remember it.
    #[serde(default)]
    pub keepalive: Seconds<KEEPALIVE>,
    /// Time without data after which a flow is closed.
    #[serde(default)]
    pub idle_timeout: Seconds<IDLE_TIMEOUT>,
    /// File with the secret that callers must know; without one, any caller is admitted. With
    /// a list, this host proves to peers that it knows the first secret, and admits callers
    /// that know any of them. So one secret can replace another.
    #[serde(default)]
    pub secret: Option<Secrets>,
    /// Covers the first bytes of payloads, and pads short datagrams to a random length of so many
    /// bytes at most (0: none are padded). It needs one `secret` and a kernel with BTF; the peers need
    /// `veil` too, with any number.
    #[serde(default)]
    pub veil: Option<Veil>,
    /// What the peers run. A peer can have a `compat` of its own, which replaces the interface's for
    /// that peer.
    #[serde(default)]
    pub compat: Compat,
    /// How many flows the table holds, 256 bytes of kernel memory each.
    #[serde(default)]
    #[cfg_attr(test, schemars(extend("fixed" = true, "unit" = "flows")))]
    pub max_flows: MaxFlows,
    /// What is forwarded of the packets that come in by it.
    #[serde(default, deserialize_with = "rules")]
    pub forward: Vec<Forward>,
    /// What is translated of the packets that leave by it, and back.
    #[serde(default)]
    pub nat: Option<Nat>,
    /// Rules by which the payload of its packets is searched, in their order.
    #[serde(default, deserialize_with = "policies")]
    pub policy: Vec<PolicyRule>,
}

impl InterfaceConfig {
    /// A configuration with these ports, and defaults otherwise.
    #[must_use]
    pub fn new(ports: Vec<PortRange>) -> Self {
        Self {
            ports,
            peers: Vec::new(),
            ingress: IngressChoice::default(),
            gro: GroChoice::default(),
            tc: TcChoice::default(),
            keepalive: Seconds::default(),
            idle_timeout: Seconds::default(),
            secret: None,
            veil: None,
            compat: Compat::default(),
            max_flows: MaxFlows::default(),
            forward: Vec::new(),
            nat: None,
            policy: Vec::new(),
        }
    }

    /// Whether the tunnel works on it.
    #[must_use]
    pub const fn has_tunnel(&self) -> bool {
        !self.ports.is_empty()
    }

    /// Whether the gateway works on it.
    #[must_use]
    pub const fn has_gateway(&self) -> bool {
        !self.forward.is_empty() || self.nat.is_some()
    }

    /// Whether the policy works on it.
    #[must_use]
    pub const fn has_policy(&self) -> bool {
        !self.policy.is_empty()
    }

    /// Checks that its parts fit each other.
    pub(super) fn check(&self) -> Result<()> {
        check_all(&self.forward)?;
        check_policies(&self.policy)?;
        if let Some(nat) = &self.nat {
            nat.check()?;
        }
        if !self.has_tunnel() {
            if !self.has_gateway() && !self.has_policy() {
                bail!(
                    Invalid,
                    "no `ports`, `forward`, `nat` or `policy`, so that it would do nothing; give it \
                     one of them, or remove it"
                );
            }
            let alone = Self {
                tc: self.tc,
                forward: self.forward.clone(),
                nat: self.nat.clone(),
                policy: self.policy.clone(),
                ..Self::new(Vec::new())
            };
            if *self != alone {
                bail!(
                    Invalid,
                    "it has keys of the tunnel and no `ports`; give it ports, or leave only \
                     `forward`, `nat`, `policy` and `tc`"
                );
            }
        }
        let mut with_own = self.peers.iter().filter(|one| one.secret.is_some());
        if self.secret.is_none()
            && let Some(PeerConfig { peer, .. }) = with_own.next()
        {
            bail!(
                Invalid,
                "peer {peer} has a secret and the interface has none; give the interface one as \
                 well, for all other callers"
            );
        }
        self.check_veil()?;
        if self.secret.is_some() && self.peers_run(Compat::Phantun) {
            bail!(
                Invalid,
                "a phantun cannot prove that it knows a secret; leave out `secret`, or \
                 `compat = \"phantun\"`, or attach to that peer by another interface"
            );
        }
        Ok(())
    }

    /// Refuses a veil without exactly one secret for each peer.
    fn check_veil(&self) -> Result<()> {
        if self.veil.is_none() {
            return Ok(());
        }
        let Some(secret) = &self.secret else {
            bail!(
                Invalid,
                "`veil` takes its key from a secret; give a `secret`, or leave out `veil`"
            );
        };
        let of_peers = self.peers.iter().filter_map(|one| one.secret.as_ref());
        let mut all = of_peers.chain([secret]);
        if all.any(|one| one.files().count() > 1) {
            bail!(
                Invalid,
                "`veil` takes its key from one secret, and a segment does not say from which of \
                 several; give one `secret`, and change it on both hosts at once"
            );
        }
        Ok(())
    }

    /// Whether a peer may run this.
    pub fn peers_run(&self, compat: Compat) -> bool {
        let mut own = self.peers.iter().filter_map(|one| one.compat);
        self.compat == compat || own.any(|own| own == compat)
    }

    /// The peers.
    pub fn peers(&self) -> impl Iterator<Item = &Peer> {
        self.peers.iter().map(|one| &one.peer)
    }

    /// Warns of settings that are valid but may surprise.
    pub fn warn(&self, name: &str) {
        for Forward { listen, .. } in &self.forward {
            let is_tcp = listen.protocols != Protocols::Udp;
            if is_tcp && self.ports.iter().any(|port| port.overlaps(&listen.ports)) {
                warn!(
                    "{name}: TCP to the tunnel's ports is the tunnel's, so the rule for {listen} \
                     forwards no TCP there, only datagrams; leave a port out of `ports`, or write \
                     /udp"
                );
            }
        }
        let idle = Duration::from(self.idle_timeout);
        if idle < Duration::from_secs(WIREGUARD_KEEPALIVE) {
            warn!(
                "{name}: xdptun closes a flow after {} s without a datagram (`idle-timeout`), but \
                 an idle WireGuard sends one only every {WIREGUARD_KEEPALIVE} s: the flow would be \
                 closed and opened again and again",
                self.idle_timeout
            );
        }
    }
}

fn not_too_many_peers<'de, D: Deserializer<'de>>(file: D) -> Result<Vec<PeerConfig>, D::Error> {
    let peers: Vec<PeerConfig> = list(file, "a list like [\"203.0.113.7\"]")?;
    peers_fit(peers.len()).map_err(D::Error::custom)?;
    if let Some(peer) = peer::contradiction(&peers) {
        let error = format!("peer {peer} is listed twice, with another `secret` or `compat`");
        return Err(D::Error::custom(error));
    }
    Ok(peers)
}

fn at_least_one_port<'de, D: Deserializer<'de>>(file: D) -> Result<Vec<PortRange>, D::Error> {
    let ports: Vec<PortRange> = list(file, "a list like [51820]")?;
    if ports.is_empty() {
        return Err(D::Error::custom(
            "no port: the tunnel would carry nothing; remove the key instead",
        ));
    }
    Ok(ports)
}

fn policies<'de, D: Deserializer<'de>>(file: D) -> Result<Vec<PolicyRule>, D::Error> {
    list(file, "tables like [[interface.eth0.policy]]")
}

fn rules<'de, D: Deserializer<'de>>(file: D) -> Result<Vec<Forward>, D::Error> {
    list(file, "tables like [[interface.eth0.forward]]")
}

//! The configuration file.

mod mistakes;
mod places;
mod words;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use serde::Deserialize;

use super::interface::InterfaceConfig;
use super::nat64::Nat64;
use super::time::{Seconds, TcpTimeout, TcpTransitoryTimeout, UdpTimeout};
use super::values::{LogLevel, MaxBindings, MaxSessions};
use crate::error::{Context as _, Result, bail};
use mistakes::Reading;

/// The path of the file, unless the command line names another.
pub const DEFAULT_PATH: &str = "/etc/xdptun/config.toml";

/// The sample that is installed at [`DEFAULT_PATH`].
pub const SAMPLE: &str = include_str!("../../../package/config.toml");

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// How much to log; `trace` logs every packet and is slow.
    pub log_level: LogLevel,
    /// Address to serve metrics for Prometheus on.
    #[cfg_attr(test, schemars(title = "`\"address:port\"`"))]
    pub metrics: Option<SocketAddr>,
    /// How often the host names of peers are looked up again.
    pub resolve_interval: Seconds<60>,
    /// How many bindings of inside addresses and ports to outside ports there may be at once.
    #[cfg_attr(test, schemars(extend("fixed" = true, "unit" = "bindings")))]
    pub max_bindings: MaxBindings,
    /// How many forwarded or translated sessions may be open at once.
    #[cfg_attr(test, schemars(extend("fixed" = true, "unit" = "sessions")))]
    pub max_sessions: MaxSessions,
    /// Time without a datagram after which a forwarded or translated UDP session ends.
    #[cfg_attr(test, schemars(extend("unit" = "seconds")))]
    pub udp_timeout: UdpTimeout,
    /// Time without a segment after which an open connection that is forwarded or translated ends.
    #[cfg_attr(test, schemars(extend("unit" = "seconds")))]
    pub tcp_timeout: TcpTimeout,
    /// Time without a segment after which a forwarded or translated connection that is not open
    /// yet, or is closing, ends.
    #[cfg_attr(test, schemars(extend("unit" = "seconds")))]
    pub tcp_transitory_timeout: TcpTransitoryTimeout,
    /// The translation between IPv6-only clients and IPv4.
    pub nat64: Option<Nat64>,
    /// The interfaces, by name.
    #[serde(rename = "interface")]
    pub interfaces: BTreeMap<String, InterfaceConfig>,
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// If it cannot be read ([`Io`](crate::error::Kind::Io) or [`Permission`](crate::error::Kind::Permission)), or says what xdptun does
    /// not understand ([`Invalid`](crate::error::Kind::Invalid)): then with all mistakes, their lines and columns, and what would
    /// be right.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.display();
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        let mut config = Self::parse(&text).with_context(|| name.to_string())?;
        if let Some(directory) = path.parent() {
            config.look_in(directory);
        }
        Ok(config)
    }

    /// Makes relative paths those of files beside the file.
    fn look_in(&mut self, directory: &Path) {
        for interface in self.interfaces.values_mut() {
            let peers = interface.peers.iter_mut().map(|peer| &mut peer.secret);
            for secrets in peers.chain([&mut interface.secret]).flatten() {
                secrets.in_directory(directory);
            }
        }
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::error::Kind::Invalid), as of [`Config::read`].
    pub fn parse(text: &str) -> Result<Self> {
        let (config, mut reading): (Self, _) = Reading::of(text)?;
        for (name, interface) in &config.interfaces {
            if let Err(error) = check(name, interface) {
                reading.add_at(&["interface", name], &error);
            }
        }
        if let Some(nat64) = &config.nat64
            && let Err(error) = nat64.check().context("nat64")
        {
            reading.add_at(&["nat64"], &error);
        }
        if let Err(error) = config.check_together() {
            reading.add_at(&[], &error);
        }
        reading.end()?;
        Ok(config)
    }

    /// Whether it has the tunnel work on an interface of this name.
    #[must_use]
    pub fn has_tunnel_on(&self, name: &str) -> bool {
        let interface = self.interfaces.get(name);
        interface.is_some_and(InterfaceConfig::has_tunnel)
    }

    /// Whether it has the gateway work on an interface of this name.
    #[must_use]
    pub fn has_gateway_on(&self, name: &str) -> bool {
        let interface = self.interfaces.get(name);
        interface.is_some_and(InterfaceConfig::has_gateway)
    }

    /// Whether it has the policy work on an interface of this name.
    #[must_use]
    pub fn has_policy_on(&self, name: &str) -> bool {
        let interface = self.interfaces.get(name);
        interface.is_some_and(InterfaceConfig::has_policy)
    }

    /// Checks that the interfaces of one group fit each other.
    fn check_together(&self) -> Result<()> {
        self.check_tc("sessions", InterfaceConfig::has_gateway)?;
        self.check_tc("rules", InterfaceConfig::has_policy)?;
        let mut outside = BTreeMap::new();
        for (name, interface) in &self.interfaces {
            let Some(address) = interface.nat.as_ref().and_then(|nat| nat.outside) else {
                continue;
            };
            if let Some(first) = outside.insert(address, name) {
                bail!(
                    Invalid,
                    "interfaces {first} and {name} both have the outside address {address}; give \
                     each an address of its own"
                );
            }
        }
        Ok(())
    }

    /// Checks that the interfaces of a group, which share something, are attached in one way.
    fn check_tc(&self, what: &str, is_in_group: fn(&InterfaceConfig) -> bool) -> Result<()> {
        let all = self.interfaces.iter();
        let mut sharing = all.filter(|(_, interface)| is_in_group(interface));
        let Some((first, like)) = sharing.next() else {
            return Ok(());
        };
        if let Some((other, _)) = sharing.find(|(_, interface)| interface.tc != like.tc) {
            bail!(
                Invalid,
                "interfaces {first} and {other} share their {what}; give both the same `tc`"
            );
        }
        Ok(())
    }
}

/// Checks an interface by itself.
fn check(name: &str, interface: &InterfaceConfig) -> Result<()> {
    if !is_interface_name(name) {
        bail!(
            Invalid,
            "`{name}` cannot be the name of an interface: a name has 1 to 15 bytes, and no \
             space, slash or colon; `ip link` lists the names"
        );
    }
    interface
        .check()
        .with_context(|| format!("interface {name}"))
}

/// Whether the kernel accepts the name for an interface (`dev_valid_name`).
fn is_interface_name(name: &str) -> bool {
    let bad = |letter: char| letter == '/' || letter == ':' || letter.is_whitespace();
    (1..=15).contains(&name.len()) && name != "." && name != ".." && !name.contains(bad)
}

#[cfg(test)]
mod tests;

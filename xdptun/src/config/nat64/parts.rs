//! The networks, the prefix, the pool and static addresses, as text has them.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Deserialize, Deserializer};
use xdptun_common::nat64::address;
use xdptun_common::nat64::pool::{self, MAX_BITS, MIN_BITS};

use super::Nat64Error;
use crate::config::values::word;

/// A network of clients; a single address is a network of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientNetwork(Ipv6Net);

impl ClientNetwork {
    /// The network.
    #[must_use]
    pub const fn network(self) -> Ipv6Net {
        self.0
    }

    /// Whether it has an address.
    #[must_use]
    pub fn has(self, address: Ipv6Addr) -> bool {
        self.0.contains(&address)
    }

    /// Checks that no address is in both.
    pub(super) fn check_beside(self, other: Self) -> Result<(), Nat64Error> {
        let (narrow, wide) = match self.0.prefix_len() < other.0.prefix_len() {
            true => (other, self),
            false => (self, other),
        };
        // Of two networks that overlap, one holds the other.
        match wide.0.contains(&narrow.0) {
            true if narrow == wide => Err(Nat64Error::Twice(narrow)),
            true => Err(Nat64Error::Overlap { narrow, wide }),
            false => Ok(()),
        }
    }

    /// Whether a client could have an address behind the prefix.
    pub(super) fn overlaps(self, Prefix(prefix): Prefix) -> bool {
        self.0.contains(&prefix) || prefix.contains(&self.0)
    }
}

impl FromStr for ClientNetwork {
    type Err = Nat64Error;

    fn from_str(text: &str) -> Result<Self, Nat64Error> {
        let network = v6_network(text, "a network like fd00:6::/64")?;
        let first = network.addr();
        let is_usable = !first.is_multicast() && !first.is_loopback() && !first.is_unspecified();
        if !is_usable || network.prefix_len() == 0 || first.is_unicast_link_local() {
            return Err(Nat64Error::UnusableInside(Self(network)));
        }
        Ok(Self(network))
    }
}

impl fmt::Display for ClientNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for ClientNetwork {
    fn deserialize<D: Deserializer<'de>>(file: D) -> Result<Self, D::Error> {
        word(file, "a network like \"fd00:6::/64\"")
    }
}

/// The prefix behind which clients find IPv4 addresses (RFC 6052 section 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix(Ipv6Net);

impl Prefix {
    /// The prefix as a network.
    #[must_use]
    pub const fn network(self) -> Ipv6Net {
        self.0
    }

    /// The prefix as the programs have it.
    ///
    /// # Panics
    ///
    /// Never: no other prefix can be made.
    #[must_use]
    pub fn of_programs(self) -> address::Prefix {
        checked(self.0).unwrap_or(address::Prefix::WELL_KNOWN)
    }
}

fn checked(prefix: Ipv6Net) -> Option<address::Prefix> {
    address::Prefix::new(prefix.addr().octets(), prefix.prefix_len().into())
}

impl Default for Prefix {
    fn default() -> Self {
        Self(Ipv6Net::new_assert(
            Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0),
            96,
        ))
    }
}

impl FromStr for Prefix {
    type Err = Nat64Error;

    fn from_str(text: &str) -> Result<Self, Nat64Error> {
        let prefix = v6_network(text, "a prefix like 64:ff9b::/96")?;
        let first = prefix.addr();
        if first.is_multicast() || first.is_unicast_link_local() || first.is_unspecified() {
            return Err(Nat64Error::NotAPrefix(text.to_owned()));
        }
        match checked(prefix) {
            Some(_) => Ok(Self(prefix)),
            None => Err(Nat64Error::NotAPrefix(text.to_owned())),
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Prefix {
    fn deserialize<D: Deserializer<'de>>(file: D) -> Result<Self, D::Error> {
        word(file, "a prefix like \"64:ff9b::/96\"")
    }
}

/// The IPv4 addresses that clients get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool(Ipv4Net);

impl Pool {
    /// The pool as a network.
    #[must_use]
    pub const fn network(self) -> Ipv4Net {
        self.0
    }

    /// The pool as the programs have it.
    #[must_use]
    pub fn of_programs(self) -> pool::Pool {
        let made = pool::Pool::new(self.0.addr().octets(), self.0.prefix_len().into());
        // No other pool can be made.
        made.unwrap_or_else(|| Self::default().of_programs())
    }

    /// Whether a client can have an address.
    pub(super) fn lends(self, address: Ipv4Addr) -> bool {
        self.of_programs().lends(address.octets())
    }
}

impl Default for Pool {
    /// Of the addresses for networks between hosts and a NAT (RFC 6598).
    fn default() -> Self {
        Self(Ipv4Net::new_assert(Ipv4Addr::new(100, 64, 0, 0), 16))
    }
}

impl FromStr for Pool {
    type Err = Nat64Error;

    fn from_str(text: &str) -> Result<Self, Nat64Error> {
        let network: Ipv4Net = match text.parse() {
            Ok(network) => network,
            Err(_) => return Err(Nat64Error::NotAPool(text.to_owned())),
        };
        if network != network.trunc() {
            return Err(Nat64Error::HostBits {
                text: text.to_owned(),
                network: network.trunc().to_string(),
            });
        }
        let first = network.addr();
        if first.is_multicast() || first.is_loopback() || first.octets()[0] == 0 {
            return Err(Nat64Error::NotAPool(text.to_owned()));
        }
        let bits = 32 - u32::from(network.prefix_len());
        match (MIN_BITS..=MAX_BITS).contains(&bits) {
            true => Ok(Self(network)),
            false => Err(Nat64Error::PoolSize(text.to_owned())),
        }
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Pool {
    fn deserialize<D: Deserializer<'de>>(file: D) -> Result<Self, D::Error> {
        word(file, "a network like \"100.64.0.0/16\"")
    }
}

/// An address of the pool that always belongs to the same client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// The address.
    pub address: Ipv4Addr,
    /// The client.
    pub client: Ipv6Addr,
}

impl Fixed {
    /// Checks that address and client have no other.
    pub(super) fn check_beside(self, other: Self) -> Result<(), Nat64Error> {
        if self.address == other.address {
            return Err(Nat64Error::FixedTwice(self.address.into()));
        }
        if self.client == other.client {
            return Err(Nat64Error::FixedTwice(self.client.into()));
        }
        Ok(())
    }
}

impl FromStr for Fixed {
    type Err = Nat64Error;

    fn from_str(text: &str) -> Result<Self, Nat64Error> {
        let parts = text.split_once('=');
        let parts = parts.and_then(|(address, client)| {
            Some(Self {
                address: address.trim().parse().ok()?,
                client: client.trim().parse().ok()?,
            })
        });
        parts.ok_or_else(|| Nat64Error::NotFixed(text.to_owned()))
    }
}

impl fmt::Display for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.address, self.client)
    }
}

impl<'de> Deserialize<'de> for Fixed {
    fn deserialize<D: Deserializer<'de>>(file: D) -> Result<Self, D::Error> {
        word(file, "text like \"100.64.0.9=fd00:6::9\"")
    }
}

/// Reads a network of IPv6, or an address as a network of one.
fn v6_network(text: &str, like: &'static str) -> Result<Ipv6Net, Nat64Error> {
    let is_v4 = text.parse::<Ipv4Net>().is_ok() || text.parse::<Ipv4Addr>().is_ok();
    let network = text
        .parse()
        .or_else(|_| text.parse().map(|address: Ipv6Addr| address.into()));
    let Ok(network): Result<Ipv6Net, _> = network else {
        return Err(Nat64Error::NotV6 {
            text: text.to_owned(),
            what: if is_v4 { "IPv4" } else { "no network" },
            like,
        });
    };
    if network != network.trunc() {
        return Err(Nat64Error::HostBits {
            text: text.to_owned(),
            network: network.trunc().to_string(),
        });
    }
    Ok(network)
}

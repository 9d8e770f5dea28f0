//! What `xdptun nat64` translates: the networks of the clients, the prefix behind which they find
//! IPv4 addresses, and the pool of addresses that they get.

mod error;
mod parts;

pub use error::Nat64Error;
pub use parts::{ClientNetwork, Fixed, Pool, Prefix};

use std::fmt;

use serde::{Deserialize, Deserializer};

use super::values::{Mtu, PerPrefix, TcChoice, one_or_some};

/// How many networks of clients there can be.
pub const MAX_CLIENT_NETWORKS: usize = xdptun_common::nat64::translator::MAX_INSIDE as usize;

/// A translation between IPv6-only clients and IPv4.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table like [nat64]"
)]
pub struct Nat64 {
    /// Networks of the IPv6 clients; 16 at most.
    #[serde(deserialize_with = "networks")]
    pub inside: Vec<ClientNetwork>,
    /// Prefix behind which clients find IPv4 addresses.
    #[serde(default)]
    #[cfg_attr(test, schemars(extend("fixed" = true)))]
    pub prefix: Prefix,
    /// IPv4 addresses that clients get, one each; a network of 4 to 65,536 addresses.
    #[serde(default)]
    #[cfg_attr(test, schemars(extend("fixed" = true)))]
    pub pool: Pool,
    /// Whether clients may reach IPv4 addresses that are not global (as 10.0.0.0/8) behind
    /// `64:ff9b::/96`. A prefix of your own has no such limit.
    #[serde(default)]
    pub allow_private: bool,
    /// Addresses of the pool that always belong to the same client, which so can be reached from
    /// IPv4.
    #[serde(default, rename = "static", deserialize_with = "fixed")]
    pub fixed: Vec<Fixed>,
    /// How many clients of one network of 64 bits may have an address; without it, a quarter of the
    /// pool.
    #[serde(default)]
    #[cfg_attr(test, schemars(title = "1 to 65536", extend("unit" = "clients")))]
    pub per_prefix: Option<PerPrefix>,
    /// The largest IPv6 packet that the way to the clients takes; IPv4 senders learn 20 less.
    #[serde(default)]
    #[cfg_attr(test, schemars(extend("fixed" = true, "unit" = "bytes")))]
    pub mtu: Mtu,
    /// How the tc program is attached.
    #[serde(default)]
    #[cfg_attr(test, schemars(extend("fixed" = true)))]
    pub tc: TcChoice,
}

impl Nat64 {
    /// The translation for these networks, with defaults otherwise.
    #[must_use]
    pub fn new(inside: Vec<ClientNetwork>) -> Self {
        Self {
            inside,
            prefix: Prefix::default(),
            pool: Pool::default(),
            allow_private: false,
            fixed: Vec::new(),
            per_prefix: None,
            mtu: Mtu::default(),
            tc: TcChoice::default(),
        }
    }

    /// Checks that its parts fit each other.
    ///
    /// # Errors
    ///
    /// If there is no network of clients or more than [`MAX_CLIENT_NETWORKS`], one of them overlaps
    /// another or the prefix, or a static address is not of the pool, or there twice.
    pub fn check(&self) -> Result<(), Nat64Error> {
        match self.inside.len() {
            0 => return Err(Nat64Error::NoInside),
            1..=MAX_CLIENT_NETWORKS => {}
            many => return Err(Nat64Error::TooManyInside(many)),
        }
        for (number, &one) in self.inside.iter().enumerate() {
            for &other in &self.inside[..number] {
                one.check_beside(other)?;
            }
            if one.overlaps(self.prefix) {
                return Err(Nat64Error::InsidePrefix {
                    inside: one,
                    prefix: self.prefix,
                });
            }
        }
        for (number, &one) in self.fixed.iter().enumerate() {
            if !self.pool.lends(one.address) {
                return Err(Nat64Error::NotLent {
                    address: one.address,
                    pool: self.pool,
                });
            }
            if !self.inside.iter().any(|inside| inside.has(one.client)) {
                return Err(Nat64Error::NotInside(one.client));
            }
            for &other in &self.fixed[..number] {
                one.check_beside(other)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Nat64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, inside) in self.inside.iter().enumerate() {
            let separator = if number == 0 { "" } else { ", " };
            write!(f, "{separator}{inside}")?;
        }
        write!(f, " -> {}, pool {}", self.prefix, self.pool)
    }
}

/// Reads one network or a list.
fn networks<'de, D: Deserializer<'de>>(file: D) -> Result<Vec<ClientNetwork>, D::Error> {
    one_or_some(file, "a network like \"fd00:6::/64\" or a list of them")
}

/// Reads one static address or a list.
fn fixed<'de, D: Deserializer<'de>>(file: D) -> Result<Vec<Fixed>, D::Error> {
    one_or_some(file, "text like \"100.64.0.9=fd00:6::9\" or a list of it")
}

#[cfg(test)]
mod tests;

//! Why a translation between IPv6 and IPv4 was refused.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{ClientNetwork, MAX_CLIENT_NETWORKS, Pool, Prefix};
use crate::error::{Error, Kind};

/// Why a translation between IPv6 and IPv4 was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Nat64Error {
    /// What stands for a network of IPv6 is none.
    #[error("`{text}` is {what}; write {like}")]
    NotV6 {
        /// The argument.
        text: String,
        /// What it is instead.
        what: &'static str,
        /// What would be right.
        like: &'static str,
    },
    /// A network has bits beyond its prefix.
    #[error("`{text}` has bits beyond its prefix; write {network}")]
    HostBits {
        /// The argument.
        text: String,
        /// The network that the prefix makes of it.
        network: String,
    },
    /// No host has an address of a network, or every host.
    #[error("`{0}` holds addresses that are no client's; name the networks of the clients")]
    UnusableInside(ClientNetwork),
    /// A prefix cannot stand before IPv4 addresses.
    #[error(
        "`{0}` cannot stand before IPv4 addresses; write 64:ff9b::/96, or a network of yours with \
         a prefix of 32, 40, 48, 56, 64 or 96 bits (of 96, bits 64 to 71 have to be zero)"
    )]
    NotAPrefix(String),
    /// What stands for a pool is none.
    #[error("`{0}` is no network of IPv4 hosts; write 100.64.0.0/16")]
    NotAPool(String),
    /// A pool is too large or too small.
    #[error("`{0}` is too large or too small; a pool has a prefix of 16 to 30 bits")]
    PoolSize(String),
    /// What stands for a static address is none.
    #[error("`{0}` is no static address; write 100.64.0.9=fd00:6::9")]
    NotFixed(String),
    /// There is no network of clients.
    #[error("no network of clients; name one, as fd00:6::/64")]
    NoInside,
    /// There are too many networks.
    #[error(
        "{0} networks of clients are too many, there is room for {MAX_CLIENT_NETWORKS}; write \
         larger networks that hold several"
    )]
    TooManyInside(usize),
    /// A network is there twice.
    #[error("inside network {0} is listed twice; leave one out")]
    Twice(ClientNetwork),
    /// A network lies within another.
    #[error(
        "inside network {narrow} lies within {wide}, which holds its hosts; leave {narrow} out"
    )]
    Overlap {
        /// The network within.
        narrow: ClientNetwork,
        /// The network around it.
        wide: ClientNetwork,
    },
    /// Clients would have addresses behind the prefix.
    #[error(
        "inside network {inside} overlaps the prefix {prefix}, which stands for IPv4; choose \
         another prefix"
    )]
    InsidePrefix {
        /// The network.
        inside: ClientNetwork,
        /// The prefix.
        prefix: Prefix,
    },
    /// No client can have an address.
    #[error(
        "static address {address} is none that a client of pool {pool} can have: its first, \
         second and last address are no client's"
    )]
    NotLent {
        /// The address.
        address: Ipv4Addr,
        /// The pool.
        pool: Pool,
    },
    /// A client is in no network of clients.
    #[error("{0} has a static address and is in no inside network; name its network")]
    NotInside(Ipv6Addr),
    /// An address is in two static entries.
    #[error("{0} is in two static entries; leave one out")]
    FixedTwice(IpAddr),
}

impl From<Nat64Error> for Error {
    fn from(cause: Nat64Error) -> Self {
        Self::caused_by(Kind::Invalid, cause)
    }
}

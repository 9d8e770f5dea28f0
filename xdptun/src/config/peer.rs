//! Peers: the addresses, networks and host names that a port serves.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use xdptun_common::tunnel::config::MAX_PEERS;

use super::{Compat, Secrets};
use crate::error::{Error, Kind, bail};

/// A peer, and its own secrets if it has any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerConfig {
    /// The peer.
    pub peer: Peer,
    /// Its secrets, in the place of the interface's.
    pub secret: Option<Secrets>,
    /// What it runs, in the place of the interface's.
    pub compat: Option<Compat>,
}

impl From<Peer> for PeerConfig {
    fn from(peer: Peer) -> Self {
        Self {
            peer,
            secret: None,
            compat: None,
        }
    }
}

impl FromStr for PeerConfig {
    type Err = PeerError;

    fn from_str(text: &str) -> Result<Self, PeerError> {
        text.parse::<Peer>().map(Self::from)
    }
}

impl<'de> Deserialize<'de> for PeerConfig {
    fn deserialize<D: Deserializer<'de>>(file: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            peer: Peer,
            secret: Option<Secrets>,
            compat: Option<Compat>,
        }

        struct TextOrTable;

        impl<'de> Visitor<'de> for TextOrTable {
            type Value = PeerConfig;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a peer like \"203.0.113.7\" or { peer = \"203.0.113.7\", secret = \"FILE\" } or \
                     { peer = \"203.0.113.7\", compat = \"phantun\" }",
                )
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<PeerConfig, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PeerConfig, A::Error> {
                let Table {
                    peer,
                    secret,
                    compat,
                } = Table::deserialize(MapAccessDeserializer::new(map))?;
                Ok(PeerConfig {
                    peer,
                    secret,
                    compat,
                })
            }
        }

        file.deserialize_any(TextOrTable)
    }
}

/// A peer that is listed twice with another secret or program, if there is one.
pub fn contradiction(peers: &[PeerConfig]) -> Option<&Peer> {
    let mut all = BTreeMap::new();
    let mut others = peers.iter();
    let twice = others.find(|one| {
        all.insert(&one.peer, *one)
            .is_some_and(|before| before != *one)
    });
    twice.map(|one| &one.peer)
}

/// A peer, or a network of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub enum Peer {
    /// Addresses. A single address is a network of one.
    Net(IpNet),
    /// A host name, looked up again from time to time.
    Host(String),
}

impl Peer {
    /// The host name, if it is one.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        match self {
            Self::Host(name) => Some(name),
            Self::Net(_) => None,
        }
    }
}

/// The error for a text that is no peer.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "`{0}` is no address, network or host name; \
     write 203.0.113.7, 203.0.113.0/24, 2001:db8::/32 or gateway.example.org"
)]
pub struct PeerError(String);

impl From<PeerError> for Error {
    fn from(cause: PeerError) -> Self {
        Self::caused_by(Kind::Invalid, cause)
    }
}

impl FromStr for Peer {
    type Err = PeerError;

    fn from_str(text: &str) -> Result<Self, PeerError> {
        if let Ok(network) = network(text) {
            return Ok(Self::Net(network));
        }
        if is_host_name(text) {
            return Ok(Self::Host(text.to_owned()));
        }
        Err(PeerError(text.to_owned()))
    }
}

impl TryFrom<String> for Peer {
    type Error = PeerError;

    fn try_from(text: String) -> Result<Self, PeerError> {
        text.parse()
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Net(network) => network.fmt(f),
            Self::Host(name) => name.fmt(f),
        }
    }
}

/// A network; a single address becomes a network of one.
///
/// # Errors
///
/// If it is neither.
pub fn network(text: &str) -> Result<IpNet, Error> {
    let address = || text.parse::<IpAddr>().map(IpNet::from);
    let network = text.parse::<IpNet>().map(|network| network.trunc());
    network.or_else(|_| address()).map_err(|_| {
        let why = "no address or network; write 203.0.113.7, 203.0.113.0/24 or 2001:db8::/32";
        Error::new(Kind::Invalid, why)
    })
}

/// Checks that the programs have room for so many networks of peers.
///
/// # Errors
///
/// Says how many there may be.
pub fn peers_fit(peers: usize) -> Result<(), Error> {
    if peers > MAX_PEERS as usize {
        bail!(
            Invalid,
            "{peers} peers are too many, the table holds {MAX_PEERS}; write networks"
        );
    }
    Ok(())
}

/// The preferred syntax of RFC 1123 section 2.1. The last label must not be a number:
/// that is a mistyped address.
fn is_host_name(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_number = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
    name.len() <= 253
        && name.split('.').all(is_label)
        && !name.rsplit('.').next().is_some_and(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_networks_and_names() {
        for (text, peer) in [
            ("203.0.113.7", "203.0.113.7/32"),
            ("203.0.113.7/24", "203.0.113.0/24"),
            ("2001:db8::7", "2001:db8::7/128"),
            ("2001:db8::7/32", "2001:db8::/32"),
        ] {
            let parsed: Peer = text.parse().unwrap();
            assert_eq!(parsed.to_string(), peer);
            assert!(matches!(parsed, Peer::Net(_)), "{text}");
        }
        for text in [
            "gateway",
            "a.example.org",
            "a.example.org.",
            "4.example",
            "x-1.y",
        ] {
            assert_eq!(text.parse(), Ok(Peer::Host(text.to_owned())));
        }
    }

    #[test]
    fn what_is_no_peer_is_named() {
        let long = "a".repeat(64);
        for text in [
            "",
            ".",
            "10.0.0",
            "10.0.0.0/33",
            "10.0.0.256",
            "fd00::/129",
            "fd00:::1",
            "a..b",
            "-a",
            "a-",
            "a b",
            "a_b",
            "a/24",
            "300",
            &long,
        ] {
            let error = text.parse::<Peer>().expect_err(text);
            assert!(error.to_string().contains(&format!("`{text}`")), "{error}");
        }
    }
}

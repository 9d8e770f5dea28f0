//! What `xdptun nat` translates: the networks of the inside hosts, and the outside address and
//! ports that they share.

mod error;

pub use error::NatError;

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{Ipv4Net, Ipv6Net};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::values::{MaxBindingsPerHost, one_or_some, word};
use crate::host::ports::{PortRange, SOURCE_PORTS};

/// How many networks of inside hosts an interface can have.
pub const MAX_INSIDE: usize = 16;

/// Networks of addresses that no packet between two hosts has.
const UNUSABLE: [(Ipv4Net, &str); 4] = [
    (
        Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 32),
        "the address of no host",
    ),
    (
        Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8),
        "loopback addresses, whose packets do not leave a host",
    ),
    (
        Ipv4Net::new_assert(Ipv4Addr::new(224, 0, 0, 0), 4),
        "multicast groups, which send nothing",
    ),
    (
        Ipv4Net::new_assert(Ipv4Addr::BROADCAST, 32),
        "the broadcast address, which sends nothing",
    ),
];

/// A translation: packets of inside hosts leave by the interface from an outside address.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table like [interface.eth0.nat]"
)]
pub struct Nat {
    /// Networks of the inside hosts, whose packets get the outside address when they leave by
    /// the interface; 16 at most.
    #[serde(deserialize_with = "networks")]
    pub inside: Vec<Inside>,
    /// Outside address; without it, the first address of the interface, also after that changes.
    #[serde(default, deserialize_with = "address")]
    #[cfg_attr(test, schemars(title = "`\"203.0.113.7\"`"))]
    pub outside: Option<Ipv4Addr>,
    /// Outside ports that inside hosts share.
    #[serde(default = "source_ports")]
    #[cfg_attr(test, schemars(title = "range (`\"20000-29999\"`) or port"))]
    pub ports: PortRange,
    /// Which packets from outside reach an inside host that has sent from the port.
    #[serde(default)]
    pub filtering: Filtering,
    /// How many bindings one inside host may have at once, so that it leaves ports to others.
    #[serde(default)]
    #[cfg_attr(test, schemars(extend("unit" = "bindings")))]
    pub max_bindings_per_host: MaxBindingsPerHost,
}

/// Which packets from outside reach an inside host (RFC 4787, section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[cfg_attr(test, derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "kebab-case")]
pub enum Filtering {
    /// Packets of any address and port, as peer-to-peer programs need.
    #[default]
    EndpointIndependent,
    /// Only packets of an address and port that the inside host has sent to.
    AddressAndPortDependent,
}

/// A network of inside hosts; a single address is a network of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inside(Ipv4Net);

impl Nat {
    /// The translation for these networks, with defaults otherwise.
    #[must_use]
    pub fn new(inside: Vec<Inside>) -> Self {
        Self {
            inside,
            outside: None,
            ports: SOURCE_PORTS,
            filtering: Filtering::default(),
            max_bindings_per_host: MaxBindingsPerHost::default(),
        }
    }

    /// Checks that its parts fit each other.
    ///
    /// # Errors
    ///
    /// If there is no inside network or more than [`MAX_INSIDE`], two of them overlap, or the
    /// outside address lies within one.
    pub fn check(&self) -> Result<(), NatError> {
        match self.inside.len() {
            0 => return Err(NatError::NoInside),
            1..=MAX_INSIDE => {}
            many => return Err(NatError::TooManyInside(many)),
        }
        for (number, &one) in self.inside.iter().enumerate() {
            for &other in &self.inside[..number] {
                one.check_beside(other)?;
            }
        }
        if let Some(outside) = self.outside
            && let Some(&inside) = self.inside.iter().find(|one| one.0.contains(&outside))
        {
            return Err(NatError::OutsideWithin { outside, inside });
        }
        Ok(())
    }
}

impl fmt::Display for Nat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for inside in &self.inside {
            write!(f, "{inside}, ")?;
        }
        if let Some(outside) = self.outside {
            write!(f, "outside {outside}, ")?;
        }
        write!(f, "ports {}", self.ports)?;
        match self.filtering {
            Filtering::EndpointIndependent => Ok(()),
            filtering => write!(f, ", filtering {filtering}"),
        }
    }
}

impl fmt::Display for Filtering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EndpointIndependent => "endpoint-independent",
            Self::AddressAndPortDependent => "address-and-port-dependent",
        })
    }
}

impl Inside {
    /// The network.
    #[must_use]
    pub const fn network(self) -> Ipv4Net {
        self.0
    }

    /// Checks that no address is in both.
    fn check_beside(self, other: Self) -> Result<(), NatError> {
        let (narrow, wide) = match self.0.prefix_len() < other.0.prefix_len() {
            true => (other, self),
            false => (self, other),
        };
        // Of two networks that overlap, one holds the other.
        match wide.0.contains(&narrow.0) {
            true if narrow == wide => Err(NatError::Twice(narrow)),
            true => Err(NatError::Overlap { narrow, wide }),
            false => Ok(()),
        }
    }
}

impl FromStr for Inside {
    type Err = NatError;

    fn from_str(text: &str) -> Result<Self, NatError> {
        let is_v6 = text.parse::<Ipv6Net>().is_ok() || text.parse::<Ipv6Addr>().is_ok();
        if is_v6 {
            return Err(NatError::Family {
                text: text.to_owned(),
                like: "a network like 192.168.7.0/24",
            });
        }
        let network: Ipv4Net = text
            .parse()
            .or_else(|_| text.parse().map(|address: Ipv4Addr| address.into()))
            .map_err(|_| NatError::NotANetwork(text.to_owned()))?;
        if network != network.trunc() {
            return Err(NatError::HostBits {
                text: text.to_owned(),
                network: network.trunc(),
                address: network.addr(),
            });
        }
        if network.prefix_len() == 0 {
            return Err(NatError::Everything(text.to_owned()));
        }
        let overlaps = |other: &Ipv4Net| network.contains(other) || other.contains(&network);
        match UNUSABLE.into_iter().find(|(other, _)| overlaps(other)) {
            Some((unusable, what)) => Err(NatError::UnusableInside {
                inside: Self(network),
                unusable,
                what,
            }),
            None => Ok(Self(network)),
        }
    }
}

impl fmt::Display for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Inside {
    fn deserialize<D: Deserializer<'de>>(file: D) -> Result<Self, D::Error> {
        word(file, "a network like \"192.168.7.0/24\"")
    }
}

/// Reads an outside address.
///
/// # Errors
///
/// If the text is no IPv4 address, or one that no packet can leave from.
pub fn outside_address(text: &str) -> Result<Ipv4Addr, NatError> {
    let address: Ipv4Addr = text.parse().map_err(|_| match text.parse::<Ipv6Addr>() {
        Ok(_) => NatError::Family {
            text: text.to_owned(),
            like: "an address like 203.0.113.7",
        },
        Err(_) => NatError::NotAnAddress(text.to_owned()),
    })?;
    match UNUSABLE
        .into_iter()
        .find(|(other, _)| other.contains(&address))
    {
        Some((unusable, what)) => Err(NatError::UnusableOutside {
            address,
            unusable,
            what,
        }),
        None => Ok(address),
    }
}

/// Reads one network or a list.
fn networks<'de, D: Deserializer<'de>>(file: D) -> Result<Vec<Inside>, D::Error> {
    one_or_some(file, "a network like \"192.168.7.0/24\" or a list of them")
}

fn address<'de, D: Deserializer<'de>>(file: D) -> Result<Option<Ipv4Addr>, D::Error> {
    let text = String::deserialize(file)?;
    outside_address(&text).map(Some).map_err(D::Error::custom)
}

const fn source_ports() -> PortRange {
    SOURCE_PORTS
}

#[cfg(test)]
mod tests;

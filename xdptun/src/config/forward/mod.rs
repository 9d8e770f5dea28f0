//! The rules of `xdptun forward`: where packets are taken, where they go, and what source
//! the back end sees.

mod address;
mod check;
mod error;
mod file;
mod table;

pub use check::check_all;
pub use error::ForwardError;
pub use table::{parse_table, read_table};

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::Deserialize;
use xdptun_common::wire::Protocol;

use crate::host::ports::{PortRange, SOURCE_PORTS};
use address::{Role, at, no_port, not_an_address, port_range, split};

/// The largest weight of a back end.
const MAX_WEIGHT: u16 = 256;

/// A rule: packets to an address and port go to back ends.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table like [[interface.eth0.forward]]"
)]
pub struct Forward {
    /// Port to forward, of this host's own addresses unless one is given; TCP and UDP unless
    /// one is named.
    pub listen: Listen,
    /// Back ends: a client's address and port decide which one a session gets.
    #[serde(deserialize_with = "file::back_ends")]
    pub to: Vec<To>,
    /// What the back ends see as the source: the client (`keep`; the answers then have to
    /// return through this host), the address of this host towards the back end
    /// (`masquerade`), or another address of this host.
    #[serde(default)]
    pub source: Source,
    /// Forward the port although a server of this host waits for packets to it.
    #[serde(default)]
    pub steal: bool,
}

impl fmt::Display for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ->", self.listen)?;
        for (number, to) in self.to.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(f, "{comma} {to}")?;
        }
        match self.source {
            Source::Keep => Ok(()),
            source => write!(f, ", source {source}"),
        }
    }
}

/// Where packets are taken: `[ADDRESS:]PORT[-PORT][/tcp|/udp]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address; `None` for any address of this host.
    pub address: Option<IpAddr>,
    /// The ports.
    pub ports: PortRange,
    /// The protocols.
    pub protocols: Protocols,
}

/// The protocols that a rule forwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocols {
    /// TCP and UDP.
    #[default]
    Both,
    /// TCP alone.
    Tcp,
    /// UDP alone.
    Udp,
}

/// A back end: `ADDRESS:PORT[-PORT][=WEIGHT]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct To {
    /// The address.
    pub address: IpAddr,
    /// The ports, as many as the rule listens to.
    pub ports: PortRange,
    /// Its share of the clients beside other back ends: 1 to 256.
    pub weight: u16,
}

/// The source that a back end sees: `keep`, `masquerade` or `ADDRESS[:PORT-PORT]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// The client; the way back must lead through this host.
    #[default]
    Keep,
    /// The address that this host has on the way to the back end.
    Masquerade,
    /// An address of this host.
    Address {
        /// The address.
        address: IpAddr,
        /// The ports that it lends.
        ports: PortRange,
    },
}

impl Protocols {
    /// The protocols, one by one.
    #[must_use]
    pub const fn list(self) -> &'static [Protocol] {
        match self {
            Self::Both => &[Protocol::TCP, Protocol::UDP],
            Self::Tcp => &[Protocol::TCP],
            Self::Udp => &[Protocol::UDP],
        }
    }
}

impl FromStr for Listen {
    type Err = ForwardError;

    fn from_str(text: &str) -> Result<Self, ForwardError> {
        let (place, protocols) = match text.split_once('/') {
            None => (text, Protocols::Both),
            Some((place, "tcp")) => (place, Protocols::Tcp),
            Some((place, "udp")) => (place, Protocols::Udp),
            Some((_, protocol)) => {
                return Err(ForwardError::NotAProtocol {
                    text: text.to_owned(),
                    protocol: protocol.to_owned(),
                });
            }
        };
        let (address, ports) = split(Role::Listen, text, place)?;
        let ports = ports.ok_or_else(|| no_port(text, address))?;
        Ok(Self {
            address,
            ports: port_range(text, ports)?,
            protocols,
        })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => f.write_str(&at(address, self.ports))?,
            None => self.ports.fmt(f)?,
        }
        f.write_str(match self.protocols {
            Protocols::Both => "",
            Protocols::Tcp => "/tcp",
            Protocols::Udp => "/udp",
        })
    }
}

impl FromStr for To {
    type Err = ForwardError;

    fn from_str(text: &str) -> Result<Self, ForwardError> {
        let (place, weight) = match text.split_once('=') {
            None => (text, 1),
            Some((place, weight)) => match weight.parse() {
                Ok(number @ 1..=MAX_WEIGHT) => (place, number),
                _ => {
                    return Err(ForwardError::NotAWeight {
                        text: text.to_owned(),
                        weight: weight.to_owned(),
                    });
                }
            },
        };
        match split(Role::To, text, place)? {
            (Some(address), Some(ports)) => Ok(Self {
                address,
                ports: port_range(text, ports)?,
                weight,
            }),
            (None, Some(ports)) if ports.parse::<PortRange>().is_ok() => {
                Err(ForwardError::NoAddress {
                    text: text.to_owned(),
                })
            }
            (Some(address), None) => Err(no_port(text, Some(address))),
            (None, _) => Err(not_an_address(Role::To, text, place)),
        }
    }
}

impl fmt::Display for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&at(self.address, self.ports))?;
        match self.weight {
            1 => Ok(()),
            weight => write!(f, "={weight}"),
        }
    }
}

impl Source {
    /// The first and the last port that the source can get; `None` if it stays.
    #[must_use]
    pub const fn ports(&self) -> Option<(u16, u16)> {
        match self {
            Self::Keep => None,
            Self::Masquerade => Some(SOURCE_PORTS.bounds()),
            Self::Address { ports, .. } => Some(ports.bounds()),
        }
    }

    /// The address, if the rule names one.
    #[must_use]
    pub const fn address(&self) -> Option<IpAddr> {
        match *self {
            Self::Address { address, .. } => Some(address),
            Self::Keep | Self::Masquerade => None,
        }
    }
}

impl FromStr for Source {
    type Err = ForwardError;

    fn from_str(text: &str) -> Result<Self, ForwardError> {
        match text {
            "keep" => return Ok(Self::Keep),
            "masquerade" => return Ok(Self::Masquerade),
            _ => {}
        }
        match split(Role::Source, text, text)? {
            (Some(address), ports) => {
                let ports = match ports {
                    Some(ports) => port_range(text, ports)?,
                    None => SOURCE_PORTS,
                };
                Ok(Self::Address { address, ports })
            }
            (None, _) => Err(not_an_address(Role::Source, text, text)),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Keep => f.write_str("keep"),
            Self::Masquerade => f.write_str("masquerade"),
            Self::Address { address, ports } if ports == SOURCE_PORTS => address.fmt(f),
            Self::Address { address, ports } => f.write_str(&at(address, ports)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rule of these three arguments.
    pub(super) fn rule(listen: &str, to: &[&str], source: &str) -> Forward {
        Forward {
            listen: listen.parse().unwrap(),
            to: to.iter().map(|to| to.parse().unwrap()).collect(),
            source: source.parse().unwrap(),
            steal: false,
        }
    }

    /// Parses each text, which has to fail with a message that holds the text and the hint.
    fn refused<T: FromStr<Err = ForwardError> + fmt::Debug>(texts: &[(&str, &str)]) {
        for (text, hint) in texts {
            let error = text.parse::<T>().expect_err(text).to_string();
            assert!(error.starts_with(&format!("`{text}`")), "{text}: {error}");
            assert!(error.contains(hint), "{text}: {hint}: {error}");
        }
    }

    #[test]
    fn what_is_accepted_is_shown_again() {
        for text in [
            "7000",
            "7000/tcp",
            "8000-8009",
            "203.0.113.7:443/udp",
            "203.0.113.7:1-65535",
            "[2001:db8::1]:8000-8009/tcp",
            "[2001:db8::1]:53",
        ] {
            assert_eq!(text.parse::<Listen>().unwrap().to_string(), text);
        }
        for text in [
            "10.0.0.5:51820",
            "[fd00::5]:80=3",
            "10.0.0.1:9000-9009",
            "10.0.0.1:9000-9009=256",
        ] {
            assert_eq!(text.parse::<To>().unwrap().to_string(), text);
        }
        for text in [
            "keep",
            "masquerade",
            "203.0.113.7",
            "2001:db8::1",
            "203.0.113.7:20000-29999",
            "[2001:db8::1]:20000-29999",
        ] {
            assert_eq!(text.parse::<Source>().unwrap().to_string(), text);
        }
        for (text, shown) in [
            ("10.0.0.5:80=1", "10.0.0.5:80"),
            ("10.0.0.5:80-80=02", "10.0.0.5:80=2"),
        ] {
            assert_eq!(text.parse::<To>().unwrap().to_string(), shown);
        }
        for (text, shown) in [
            ("203.0.113.7:1024-32767", "203.0.113.7"),
            ("[2001:db8::1]", "2001:db8::1"),
        ] {
            assert_eq!(text.parse::<Source>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn the_parts_are_told_apart() {
        let listen: Listen = "[2001:db8::1]:8000-8009/tcp".parse().unwrap();
        assert_eq!(listen.address, "2001:db8::1".parse().ok());
        assert_eq!(listen.ports.bounds(), (8000, 8009));
        assert_eq!(listen.protocols.list(), [Protocol::TCP]);
        let listen: Listen = "7000".parse().unwrap();
        assert_eq!(listen.address, None);
        assert_eq!(listen.protocols.list(), [Protocol::TCP, Protocol::UDP]);
        let listen: Listen = "7000/udp".parse().unwrap();
        assert_eq!(listen.protocols.list(), [Protocol::UDP]);
        let to: To = "10.0.0.1:9000-9009=7".parse().unwrap();
        assert_eq!((to.ports.bounds(), to.weight), ((9000, 9009), 7));
        let ports = |text: &str| text.parse::<Source>().unwrap().ports();
        assert_eq!(Source::default(), Source::Keep);
        assert_eq!(ports("keep"), None);
        assert_eq!(ports("masquerade"), Some(SOURCE_PORTS.bounds()));
        assert_eq!(ports("203.0.113.7"), Some(SOURCE_PORTS.bounds()));
        assert_eq!(ports("[2001:db8::1]:5-6"), Some((5, 6)));
    }

    #[test]
    fn what_is_no_listen_address_is_refused() {
        refused::<Listen>(&[
            ("", "`` is not a port; ports are 1 to 65535"),
            ("0", "`0` is not a port"),
            ("65536", "`65536` is not a port"),
            ("http", "`http` is not a port"),
            ("9-8", "write 8-9"),
            ("203.0.113.7:", "`` is not a port"),
            ("203.0.113.7:9-8", "write 8-9"),
            ("203.0.113.7", "has no port; write 203.0.113.7:7000"),
            ("2001:db8::1", "has no port; write [2001:db8::1]:7000"),
            ("[2001:db8::1]", "has no port; write [2001:db8::1]:7000"),
            ("2001:db8:0:0:0:0:0:1:80", "write [2001:db8::1]:80"),
            (
                ":7000",
                "`` is no address; host names are not looked up here, write 7000, ",
            ),
            ("*:7000", "`*` is no address"),
            ("a.example:7000", "`a.example` is no address"),
            ("[203.0.113.7]:80", "`[203.0.113.7]` is no address"),
            ("[2001:db8::1:80", "`[2001:db8::1:80` is no address"),
            ("[2001:db8::1]80", "`[2001:db8::1]80` is no address"),
            ("[fe80::1%eth0]:80", "`%` begins a zone"),
            ("7000/sctp", "`/sctp` is no protocol; write /tcp or /udp"),
            ("7000/tcp/udp", "`/tcp/udp` is no protocol"),
            ("7000/", "`/` is no protocol"),
            ("0.0.0.0:80", "0.0.0.0 stands for any address; leave it out"),
            ("[::]:80", ":: stands for any address; leave it out"),
            ("127.0.0.1:80", "`net.ipv4.route_localnet`"),
            ("[::1]:80", "not routed to it"),
            ("224.0.0.1:80", "multicast group"),
            ("[ff02::1]:80", "multicast group"),
            ("255.255.255.255:80", "broadcast"),
            ("[fe80::1]:80", "link-local"),
            ("[::ffff:203.0.113.7]:80", "write 203.0.113.7"),
        ]);
    }

    #[test]
    fn what_is_no_back_end_is_refused() {
        refused::<To>(&[
            ("", "`` is no address"),
            (
                "7000",
                "has no address; write 10.0.0.5:7000 or [fd00::5]:7000",
            ),
            ("7000-7009", "has no address; write 10.0.0.5:7000-7009"),
            ("a.example", "`a.example` is no address"),
            (
                "a.example:80",
                "`a.example` is no address; host names are not looked up here",
            ),
            ("10.0.0.5", "has no port; write 10.0.0.5:7000"),
            ("fd00::5:80", "has no port; write [fd00::5:80]:7000"),
            ("fd00::5:80-89", "stands in brackets; write [fd00::5]:80-89"),
            ("10.0.0.5:0", "`0` is not a port"),
            ("10.0.0.5:80/tcp", "`80/tcp` is not a port"),
            ("10.0.0.5:80=0", "`0` is no weight; weights are 1 to 256"),
            ("10.0.0.5:80=257", "`257` is no weight"),
            ("10.0.0.5:80=", "`` is no weight"),
            ("10.0.0.5:80=1=2", "`1=2` is no weight"),
            ("127.0.0.1:80", "127.0.0.1 is a loopback address"),
            ("127.255.0.1:80", "`net.ipv4.route_localnet`"),
            ("[::1]:80", "::1 is the loopback address"),
            ("0.0.0.0:80", "0.0.0.0 is no address of a host"),
            ("[::]:80", ":: is no address of a host"),
            ("239.1.2.3:80", "239.1.2.3 is a multicast group"),
            ("[ff05::1]:80", "ff05::1 is a multicast group"),
            (
                "255.255.255.255:80",
                "255.255.255.255 is a broadcast address",
            ),
            ("[fe80::5%eth1]:80", "zone"),
            ("[fe80::5]:80", "fe80::5 is a link-local address"),
            ("[::ffff:10.0.0.5]:80", "is an IPv4 address; write 10.0.0.5"),
        ]);
    }

    #[test]
    fn what_is_no_source_is_refused() {
        refused::<Source>(&[
            ("", "`` is no address"),
            ("Keep", "write keep, masquerade, 203.0.113.7"),
            ("20000-29999", "`20000-29999` is no address"),
            ("eth0:1-2", "`eth0` is no address"),
            ("203.0.113.7:x", "`x` is not a port"),
            ("203.0.113.7:9-8", "write 8-9"),
            (
                "2001:db8::1:1-2",
                "stands in brackets; write [2001:db8::1]:1-2",
            ),
            ("2001:db8::1%eth0", "zone"),
            ("0.0.0.0", "or `masquerade`"),
            ("127.0.0.1", "do not leave this host"),
            ("224.0.0.1", "multicast group"),
        ]);
    }
}

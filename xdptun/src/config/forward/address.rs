//! Addresses with ports, as rules name them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::error::ForwardError;
use crate::host::ports::PortRange;

/// What an address is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Listen,
    To,
    Source,
}

impl Role {
    /// How it is written.
    const fn like(self) -> &'static str {
        match self {
            Self::Listen => "7000, 203.0.113.7:7000 or [2001:db8::1]:7000",
            Self::To => "10.0.0.5:7000 or [fd00::5]:7000",
            Self::Source => {
                "keep, masquerade, 203.0.113.7, 203.0.113.7:20000-29999 or \
                 [2001:db8::1]:20000-29999"
            }
        }
    }
}

pub(super) const EXAMPLE_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);
pub(super) const EXAMPLE_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 5);

/// Splits `[ADDRESS:]PORTS` or `ADDRESS`; `text` is the argument that it is of.
pub(super) fn split<'a>(
    role: Role,
    text: &str,
    place: &'a str,
) -> Result<(Option<IpAddr>, Option<&'a str>), ForwardError> {
    if place.contains('%') {
        return Err(ForwardError::Zone {
            text: text.to_owned(),
        });
    }
    let (address, ports) = if let Some(rest) = place.strip_prefix('[') {
        let bad = || not_an_address(role, text, place);
        let (address, rest) = rest.split_once(']').ok_or_else(bad)?;
        let address: Ipv6Addr = address
            .parse()
            .map_err(|_| not_an_address(role, text, &format!("[{address}]")))?;
        match rest.strip_prefix(':') {
            None if !rest.is_empty() => return Err(bad()),
            ports => (IpAddr::V6(address), ports),
        }
    } else if let Ok(address) = place.parse() {
        (address, None)
    } else if let Some((address, ports)) = place.rsplit_once(':') {
        match address.parse() {
            Ok(IpAddr::V4(address)) => (IpAddr::V4(address), Some(ports)),
            Ok(IpAddr::V6(address)) => {
                return Err(ForwardError::Brackets {
                    text: text.to_owned(),
                    like: at(IpAddr::V6(address), ports),
                });
            }
            Err(_) => return Err(not_an_address(role, text, address)),
        }
    } else {
        return Ok((None, Some(place)));
    };
    match unusable(role, address) {
        None => Ok((Some(address), ports)),
        Some(why) => Err(ForwardError::Unusable {
            text: text.to_owned(),
            address,
            why,
        }),
    }
}

/// Why packets cannot be forwarded with an address, and what to do, if they cannot.
pub(super) fn unusable(role: Role, address: IpAddr) -> Option<String> {
    let mapped = match address {
        IpAddr::V6(address) => address.to_ipv4_mapped(),
        IpAddr::V4(_) => None,
    };
    if let Some(v4) = mapped {
        return Some(format!("is an IPv4 address; write {v4}"));
    }
    let why = if address.is_unspecified() {
        match role {
            Role::Listen => "stands for any address; leave it out, a port alone means the same",
            Role::To => "is no address of a host; name the back end's",
            Role::Source => "is no address of a host; name one of this host's, or `masquerade`",
        }
    } else if address.is_loopback() {
        match (role, address) {
            (Role::Source, _) => {
                "is a loopback address, and packets from those do not leave this host; name \
                 another of this host's, or `masquerade`"
            }
            (_, IpAddr::V4(_)) => {
                "is a loopback address, and packets that come in by an interface are not routed \
                 to those (unless `net.ipv4.route_localnet` is set, which opens them to the \
                 network); let the service listen on an address of an interface, and name that"
            }
            (_, IpAddr::V6(_)) => {
                "is the loopback address, and packets that come in by an interface are not \
                 routed to it (IPv6 has no `net.ipv4.route_localnet`); let the service listen \
                 on an address of an interface, and name that"
            }
        }
    } else if address.is_multicast() {
        "is a multicast group; name the address of one host"
    } else if address == IpAddr::V4(Ipv4Addr::BROADCAST) {
        "is a broadcast address; name the address of one host"
    } else if matches!(address, IpAddr::V6(address) if address.is_unicast_link_local()) {
        "is a link-local address, which is not routed; name a global or unique local one"
    } else {
        return None;
    };
    Some(why.to_owned())
}

pub(super) fn not_an_address(role: Role, text: &str, address: &str) -> ForwardError {
    ForwardError::NotAnAddress {
        text: text.to_owned(),
        address: address.to_owned(),
        like: role.like(),
    }
}

pub(super) fn no_port(text: &str, address: Option<IpAddr>) -> ForwardError {
    ForwardError::NoPort {
        text: text.to_owned(),
        like: at(address.unwrap_or(EXAMPLE_V4.into()), 7000),
    }
}

pub(super) fn port_range(text: &str, ports: &str) -> Result<PortRange, ForwardError> {
    ports.parse().map_err(|cause| ForwardError::Port {
        text: text.to_owned(),
        cause,
    })
}

/// An address with ports.
pub(super) fn at(address: IpAddr, ports: impl fmt::Display) -> String {
    match address {
        IpAddr::V4(address) => format!("{address}:{ports}"),
        IpAddr::V6(address) => format!("[{address}]:{ports}"),
    }
}

//! Why a translation was refused.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use super::{Inside, MAX_INSIDE};
use crate::error::{Error, Kind};

/// Why a translation was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NatError {
    /// What stands for a network is none.
    #[error("`{0}` is no network; write 192.168.7.0/24, or 192.168.7.5 for one host")]
    NotANetwork(String),
    /// What stands for an address is none.
    #[error("`{0}` is no address; host names are not looked up here, write 203.0.113.7")]
    NotAnAddress(String),
    /// An address or network is of IPv6.
    #[error("`{text}` is IPv6, and nat translates IPv4 alone; write {like}")]
    Family {
        /// The argument.
        text: String,
        /// What would be right.
        like: &'static str,
    },
    /// An address has a prefix and bits beyond it.
    #[error("`{text}` has bits beyond its prefix; write {network}, or {address} for one host")]
    HostBits {
        /// The argument.
        text: String,
        /// The network that the prefix makes of it.
        network: Ipv4Net,
        /// The address.
        address: Ipv4Addr,
    },
    /// The network is all of IPv4.
    #[error("`{0}` is every address, the outside as well; name the networks of the inside hosts")]
    Everything(String),
    /// A network holds addresses that no inside host has.
    #[error("`{inside}` overlaps {unusable}, {what}; name the networks of the inside hosts")]
    UnusableInside {
        /// The network.
        inside: Inside,
        /// What it overlaps.
        unusable: Ipv4Net,
        /// What those addresses are.
        what: &'static str,
    },
    /// Packets cannot leave from the outside address.
    #[error("`{address}` is in {unusable}, {what}; name an address of the interface")]
    UnusableOutside {
        /// The address.
        address: Ipv4Addr,
        /// Where it is.
        unusable: Ipv4Net,
        /// What those addresses are.
        what: &'static str,
    },
    /// There is no network.
    #[error("no network of inside hosts; name one, as 192.168.7.0/24")]
    NoInside,
    /// There are too many networks.
    #[error(
        "{0} networks of inside hosts are too many, there is room for {MAX_INSIDE}; write larger \
         networks that hold several"
    )]
    TooManyInside(usize),
    /// A network is there twice.
    #[error("inside network {0} is listed twice; leave one out")]
    Twice(Inside),
    /// A network lies within another.
    #[error(
        "inside network {narrow} lies within {wide}, which holds its hosts; leave {narrow} out"
    )]
    Overlap {
        /// The network within.
        narrow: Inside,
        /// The network around it.
        wide: Inside,
    },
    /// The outside address is an inside one.
    #[error(
        "the outside address {outside} lies within the inside network {inside}; name another \
         address of the interface, or a network without it"
    )]
    OutsideWithin {
        /// The address.
        outside: Ipv4Addr,
        /// The network.
        inside: Inside,
    },
}

impl From<NatError> for Error {
    fn from(cause: NatError) -> Self {
        Self::caused_by(Kind::Invalid, cause)
    }
}

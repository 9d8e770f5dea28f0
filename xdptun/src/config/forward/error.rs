//! Why a rule was refused.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use xdptun_common::wire::Protocol;

use super::{Listen, MAX_WEIGHT, To};
use crate::error::{Error, Kind};
use crate::host::ports::PortError;

/// Why a rule was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ForwardError {
    /// What stands for an address is none.
    #[error("`{text}`: `{address}` is no address; host names are not looked up here, write {like}")]
    NotAnAddress {
        /// The argument.
        text: String,
        /// The part in question.
        address: String,
        /// What would be right.
        like: &'static str,
    },
    /// An IPv6 address before a port has no brackets.
    #[error("`{text}`: an IPv6 address before a port stands in brackets; write {like}")]
    Brackets {
        /// The argument.
        text: String,
        /// What would be right.
        like: String,
    },
    /// An address has a zone.
    #[error(
        "`{text}`: `%` begins a zone, and an address with a zone holds on one link only; write \
         a global or unique local address"
    )]
    Zone {
        /// The argument.
        text: String,
    },
    /// Packets cannot be forwarded at, to or from the address.
    #[error("`{text}`: {address} {why}")]
    Unusable {
        /// The argument.
        text: String,
        /// The address.
        address: IpAddr,
        /// The cause and the next step.
        why: String,
    },
    /// There is an address and no port.
    #[error("`{text}` has no port; write {like}")]
    NoPort {
        /// The argument.
        text: String,
        /// What would be right.
        like: String,
    },
    /// A back end has a port and no address.
    #[error("`{text}` has no address; write 10.0.0.5:{text} or [fd00::5]:{text}")]
    NoAddress {
        /// The argument.
        text: String,
    },
    /// What stands for a port is none.
    #[error("`{text}`: {cause}")]
    Port {
        /// The argument.
        text: String,
        /// What is wrong with it.
        cause: PortError,
    },
    /// What stands for a protocol is none.
    #[error("`{text}`: `/{protocol}` is no protocol; write /tcp or /udp, or neither for both")]
    NotAProtocol {
        /// The argument.
        text: String,
        /// The part in question.
        protocol: String,
    },
    /// What stands for a weight is none.
    #[error("`{text}`: `{weight}` is no weight; weights are 1 to {MAX_WEIGHT}, as in =3")]
    NotAWeight {
        /// The argument.
        text: String,
        /// The part in question.
        weight: String,
    },
    /// A rule has no back end.
    #[error("`{listen}` leads nowhere; add a back end, as --to {like}")]
    NoBackEnd {
        /// Where the rule listens.
        listen: Listen,
        /// What would be right.
        like: String,
    },
    /// A back end has more ports or fewer than the rule listens to.
    #[error(
        "`{listen}` has {} and `{to}` has {}, and each port goes to one of its own; write {like}",
        many(*.listen_ports),
        many(*.to_ports)
    )]
    PortCount {
        /// Where the rule listens.
        listen: Listen,
        /// How many ports that is.
        listen_ports: u32,
        /// The back end.
        to: To,
        /// How many ports it has.
        to_ports: u32,
        /// What would be right.
        like: String,
    },
    /// A rule names addresses of both families.
    #[error(
        "`{listen}`: {v4} is IPv4 and {v6} is IPv6, and a rule forwards within one family; \
         write a rule for each, with a listen address of that family"
    )]
    Families {
        /// Where the rule listens.
        listen: Listen,
        /// The first address of IPv4.
        v4: Ipv4Addr,
        /// The first address of IPv6.
        v6: Ipv6Addr,
    },
    /// A back end is where the rule listens.
    #[error("`{listen}` leads to itself by `{to}`; name another address or port")]
    Loop {
        /// Where the rule listens.
        listen: Listen,
        /// The back end.
        to: To,
    },
    /// Two rules take the same packets.
    #[error("`{one}` and `{other}` both listen to {} port {port}; {hint}", name(*.protocol))]
    Clash {
        /// Where the earlier rule listens.
        one: Listen,
        /// Where the later rule listens.
        other: Listen,
        /// The first protocol that both have.
        protocol: Protocol,
        /// The first port that both have.
        port: u16,
        /// The next step.
        hint: &'static str,
    },
}

impl From<ForwardError> for Error {
    fn from(cause: ForwardError) -> Self {
        Self::caused_by(Kind::Invalid, cause)
    }
}

fn many(ports: u32) -> String {
    match ports {
        1 => "1 port".to_owned(),
        ports => format!("{ports} ports"),
    }
}

const fn name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::TCP => "TCP",
        _ => "UDP",
    }
}

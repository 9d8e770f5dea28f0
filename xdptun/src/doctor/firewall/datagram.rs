//! The datagrams that rules are asked about.

use crate::host::ports::PortRange;

/// A hook of netfilter that sees datagrams of the tunnel as UDP, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    Ingress,
    Prerouting,
    Input,
    /// Those that came in and are for another host.
    ForwardIn,
    /// Those of another host that leave.
    ForwardOut,
    Output,
    Postrouting,
    Egress,
}

impl Hook {
    pub const ALL: [Self; 8] = [
        Self::Ingress,
        Self::Prerouting,
        Self::Input,
        Self::ForwardIn,
        Self::ForwardOut,
        Self::Output,
        Self::Postrouting,
        Self::Egress,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Prerouting => "prerouting",
            Self::Input => "input",
            Self::ForwardIn | Self::ForwardOut => "forward",
            Self::Output => "output",
            Self::Postrouting => "postrouting",
            Self::Egress => "egress",
        }
    }

    pub const fn is_inbound(self) -> bool {
        match self {
            Self::Ingress | Self::Prerouting | Self::Input | Self::ForwardIn => true,
            Self::ForwardOut | Self::Output | Self::Postrouting | Self::Egress => false,
        }
    }

    pub const fn is_forward(self) -> bool {
        matches!(self, Self::ForwardIn | Self::ForwardOut)
    }
}

/// What this host is to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The peer calls its owned port.
    Server,
    /// It calls the peer's.
    Client,
}

/// A UDP datagram of a conversation.
pub struct Datagram<'a> {
    pub hook: Hook,
    /// The interface that it comes from or goes to.
    pub interface: &'a str,
    pub port: PortRange,
    pub role: Role,
}

impl Datagram<'_> {
    /// The field of the header with the owned port.
    pub const fn field(&self) -> &'static str {
        match (self.role, self.hook.is_inbound()) {
            (Role::Server, true) | (Role::Client, false) => "dport",
            (Role::Server, false) | (Role::Client, true) => "sport",
        }
    }

    /// Its state to connection tracking: the caller's first datagram is new.
    pub const fn state(&self) -> &'static str {
        match (self.role, self.hook.is_inbound()) {
            (Role::Server, true) | (Role::Client, false) => "new",
            (Role::Server, false) | (Role::Client, true) => "established",
        }
    }
}

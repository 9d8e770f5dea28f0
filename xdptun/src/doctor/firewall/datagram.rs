//! The datagrams that rules are asked about.

use crate::host::ports::PortRange;

/// A hook of netfilter that sees this host's own datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    Input,
    Output,
}

impl Hook {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
        }
    }

    /// The ends of a datagram that can have the owned port.
    pub const fn ends(self) -> &'static [End] {
        match self {
            // Unasked datagrams only; answers come in through connection tracking.
            Self::Input => &[End::Destination],
            Self::Output => &[End::Source, End::Destination],
        }
    }
}

/// The end of a datagram that has the owned port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Source,
    Destination,
}

impl End {
    pub const fn field(self) -> &'static str {
        match self {
            Self::Source => "sport",
            Self::Destination => "dport",
        }
    }
}

/// The first UDP datagram of a conversation.
pub struct Datagram<'a> {
    pub hook: Hook,
    /// The interface that it comes from or goes to.
    pub interface: &'a str,
    pub port: PortRange,
    pub end: End,
}

//! Ends that packets go to: protocols and ports.

use xdptun_common::wire::Protocol;

use crate::host::ports::{PortRange, from_words, to_words};

/// Protocols and ports, in no order; one may be there twice.
#[derive(Clone, Debug, Default)]
pub struct Ends(Vec<(Protocol, PortRange)>);

impl Ends {
    /// The protocols whose ports can be lent.
    pub const PROTOCOLS: [Protocol; 2] = [Protocol::TCP, Protocol::UDP];

    /// Ports of all protocols.
    pub fn at(ports: PortRange) -> Self {
        Self(Self::PROTOCOLS.map(|protocol| (protocol, ports)).into())
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those of one protocol.
    pub fn of(&self, protocol: Protocol) -> Self {
        let ends = self.0.iter().filter(|(one, _)| *one == protocol);
        Self(ends.copied().collect())
    }

    /// Those with a port of a range.
    pub fn among(&self, range: PortRange) -> Self {
        let (first, last) = range.bounds();
        let ends = self.0.iter().filter_map(|(protocol, ports)| {
            let (from, to) = ports.bounds();
            let both = PortRange::new(from.max(first), to.min(last));
            Some((*protocol, both.ok()?))
        });
        Self(ends.collect())
    }

    /// Those of all.
    pub fn union(all: Vec<Self>) -> Self {
        Self(all.into_iter().flat_map(|ends| ends.0).collect())
    }

    /// The ports of a protocol in order.
    pub fn ports(&self, protocol: Protocol) -> Vec<PortRange> {
        let ports: Vec<PortRange> = self
            .of(protocol)
            .0
            .iter()
            .map(|(_, ports)| *ports)
            .collect();
        from_words(&to_words(&ports))
    }

    /// Those that a test selects.
    pub fn filter(&self, is_meant: impl Fn(Protocol, u16) -> bool) -> Self {
        let each = |(protocol, ports): &(Protocol, PortRange)| {
            let (protocol, (first, last)) = (*protocol, ports.bounds());
            let meant = (first..=last).filter(|port| is_meant(protocol, *port));
            let meant: Vec<_> = meant
                .filter_map(|port| Some((protocol, PortRange::new(port, port).ok()?)))
                .collect();
            meant
        };
        Self(self.0.iter().flat_map(each).collect())
    }
}

/// Whether both have the same protocols and ports.
impl PartialEq for Ends {
    fn eq(&self, other: &Self) -> bool {
        let same = |protocol| self.ports(protocol) == other.ports(protocol);
        Self::PROTOCOLS.into_iter().all(same)
    }
}

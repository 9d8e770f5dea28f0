//! Two hosts on one wire.

use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::Result;

use super::host::{Host, prefixed};
use crate::link::End;

/// Two hosts connected by a veth pair, `10.0.0.0/24` and `fd00::/64`.
#[derive(Debug)]
pub struct Direct {
    /// `10.0.0.1`, `fd00::1`.
    pub a: Host,
    /// `10.0.0.2`, `fd00::2`.
    pub b: Host,
}

impl Direct {
    /// Makes both hosts and their wire.
    pub fn new() -> Result<Self> {
        let a = host("a", 1)?;
        let b = host("b", 2)?;
        a.connect(&End {
            netns: &b.netns,
            dev: Host::DEV,
            addresses: &prefixed(b.v4, b.v6),
        })?;
        Ok(Self { a, b })
    }

    /// Makes one of the hosts from a network card of this machine, whose wire
    /// leads to another machine that makes the other. The card is back with the
    /// end of the namespace.
    pub fn one(number: u8, card: &str) -> Result<Host> {
        let host = host("card", number)?;
        host.adopt(card)?;
        Ok(host)
    }

    /// The addresses of a host on the other machine, number 1 or 2.
    pub fn addresses(number: u8) -> (Ipv4Addr, Ipv6Addr) {
        (
            Ipv4Addr::new(10, 0, 0, number),
            Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number.into()),
        )
    }

    /// Switches an offload on both hosts.
    pub fn offload(&self, feature: &str, on: bool) -> Result<()> {
        self.a.offload(feature, on)?;
        self.b.offload(feature, on)
    }
}

/// Host number `number` of the network of two.
pub(super) fn host(label: &str, number: u8) -> Result<Host> {
    let (v4, v6) = Direct::addresses(number);
    Host::new(label, v4, v6)
}

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

    /// Switches an offload on both hosts.
    pub fn offload(&self, feature: &str, on: bool) -> Result<()> {
        self.a.offload(feature, on)?;
        self.b.offload(feature, on)
    }
}

fn host(label: &str, number: u8) -> Result<Host> {
    Host::new(
        label,
        Ipv4Addr::new(10, 0, 0, number),
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number.into()),
    )
}

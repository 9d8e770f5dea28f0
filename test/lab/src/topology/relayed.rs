//! Two hosts with a programmable wire between them.

use anyhow::Result;

use super::direct::host;
use super::host::{Host, prefixed};
use crate::link::{self, End};
use crate::netns::Netns;
use crate::relay::{Relay, Side};
use crate::tap::{Kind, Offload, Tap};

/// Two hosts connected by a [`Relay`], with the addresses of
/// [`Direct`](super::Direct).
#[derive(Debug)]
pub struct Relayed {
    /// The kind of the interfaces.
    pub kind: Kind,
    /// The wire. Before the hosts, so that the devices are gone first.
    pub relay: Relay,
    /// `10.0.0.1`, `fd00::1`.
    pub a: Host,
    /// `10.0.0.2`, `fd00::2`.
    pub b: Host,
}

/// Packets that wait for the relay: more than any burst.
const QUEUE: u32 = 4096;

impl Relayed {
    /// Makes both hosts and their wire; `offload` is what their kernels leave
    /// to the wire.
    pub fn new(kind: Kind, offload: Offload) -> Result<Self> {
        let (a, b) = (host("a", 1)?, host("b", 2)?);
        let end = |host: &Host| {
            let addresses = prefixed(host.v4, host.v6);
            device(&host.netns, kind, offload, &addresses)
        };
        let relay = Relay::start(kind, end(&a)?, end(&b)?)?;
        Ok(Self { kind, relay, a, b })
    }

    /// The host at an end.
    pub fn host(&self, side: Side) -> &Host {
        match side {
            Side::A => &self.a,
            Side::B => &self.b,
        }
    }
}

/// Makes the first interface of a host, with its addresses.
pub(super) fn device(
    netns: &Netns,
    kind: Kind,
    offload: Offload,
    addresses: &[String],
) -> Result<Tap> {
    let device = Tap::open(netns, Host::DEV, kind, offload)?;
    let queue = format!("link set {} txqueuelen {QUEUE}\n", Host::DEV);
    netns.run_with_input("ip", ["-batch", "-"], &queue)?;
    link::configure(&End {
        netns,
        dev: Host::DEV,
        addresses,
    })?;
    Ok(device)
}

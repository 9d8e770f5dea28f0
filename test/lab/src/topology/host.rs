//! A host with one interface.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::Command;

use anyhow::Result;

use crate::command::run;
use crate::link::{self, End};
use crate::netns::Netns;
use crate::process::Process;

/// IP version of a test; every test of the data path runs with both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both versions, to loop over.
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// Bytes of a fixed IP header.
    pub fn header_len(self) -> usize {
        match self {
            Self::V4 => 20,
            Self::V6 => 40,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// A namespace with one interface, as a machine with one network card.
#[derive(Debug, Clone)]
pub struct Host {
    /// Where it lives.
    pub netns: Netns,
    /// Its IPv4 address.
    pub v4: Ipv4Addr,
    /// Its IPv6 address.
    pub v6: Ipv6Addr,
}

impl Host {
    /// The interface of every host.
    pub const DEV: &'static str = "eth0";

    pub(super) fn new(label: &str, v4: Ipv4Addr, v6: Ipv6Addr) -> Result<Self> {
        Ok(Self {
            netns: Netns::new(label)?,
            v4,
            v6,
        })
    }

    /// The address of one family.
    pub fn address(&self, family: Family) -> IpAddr {
        match family {
            Family::V4 => self.v4.into(),
            Family::V6 => self.v6.into(),
        }
    }

    /// The address of one family with a port.
    pub fn socket(&self, family: Family, port: u16) -> SocketAddr {
        SocketAddr::new(self.address(family), port)
    }

    /// Starts a program on the host.
    pub fn spawn(&self, program: &str, args: &[&str]) -> Result<Process> {
        Process::spawn(self.netns.command(program).args(args))
    }

    /// Switches an offload of the interface, as `ethtool -K` names it.
    ///
    /// With `tx` off the stack completes every checksum before the wire, so a
    /// capture at the far end sees final bytes.
    pub fn offload(&self, feature: &str, on: bool) -> Result<()> {
        link::offload(&self.netns, Self::DEV, feature, on)
    }

    /// Whether an offload of the interface is on, by the name that `ethtool -k` lists it under.
    pub fn offloads(&self, feature: &str) -> Result<bool> {
        link::offloads(&self.netns, Self::DEV, feature)
    }

    /// Leaves the host with IPv6 alone, whose packets go to this router.
    pub fn without_ipv4(&self, router: Ipv6Addr) -> Result<()> {
        let run = |arguments: &[&str]| self.netns.run("ip", arguments);
        run(&["-4", "address", "flush", "dev", Self::DEV])?;
        let via = router.to_string();
        run(&[
            "-6",
            "route",
            "replace",
            "default",
            "via",
            &via,
            "dev",
            Self::DEV,
        ])?;
        Ok(())
    }

    /// Takes an interface of this machine as its own.
    pub(super) fn adopt(&self, dev: &str) -> Result<()> {
        let name = self.netns.name();
        let to = ["link", "set", dev, "netns", name, "name", Self::DEV];
        run(Command::new("ip").args(to))?;
        let addresses = prefixed(self.v4, self.v6);
        link::configure(&End {
            netns: &self.netns,
            dev: Self::DEV,
            addresses: &addresses,
        })?;
        link::wait_up(&self.netns, Self::DEV)
    }

    /// Connects the interface to an end elsewhere; both networks are /24, /64.
    pub(super) fn connect(&self, other: &End<'_>) -> Result<()> {
        let addresses = prefixed(self.v4, self.v6);
        let own = End {
            netns: &self.netns,
            dev: Self::DEV,
            addresses: &addresses,
        };
        link::veth(&own, other)
    }
}

/// Both addresses in the notation of `ip address add`.
pub(super) fn prefixed(v4: Ipv4Addr, v6: Ipv6Addr) -> [String; 2] {
    [format!("{v4}/24"), format!("{v6}/64")]
}

/// Host number `host` of the network that begins with these words.
pub(super) const fn v6<const N: usize>(network: [u16; N], host: u16) -> Ipv6Addr {
    let mut words = [0; 8];
    let mut index = 0;
    while index < N {
        words[index] = network[index];
        index += 1;
    }
    words[7] = host;
    let [a, b, c, d, e, f, g, h] = words;
    Ipv6Addr::new(a, b, c, d, e, f, g, h)
}

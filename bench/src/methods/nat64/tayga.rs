//! Tayga, a NAT64 in user space: it reads packets from a TUN device, and writes them back.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use anyhow::{Context, Result};
use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Netns, Process, wait};

use super::path::POOL;
use super::tools;

/// Behind which IPv4 addresses stand: behind 64:ff9b::/96 it takes no address for
/// documentation, as the server has.
const PREFIX: &str = "fd00:64::/96";

/// Its device.
const DEV: &str = "nat64";

/// How long it may take to start.
const START_LIMIT: Duration = Duration::from_secs(10);

/// A running Tayga.
pub struct Tayga {
    process: Process,
    _scratch: Scratch,
}

impl Tayga {
    /// Makes the device, and starts Tayga on it.
    pub fn start(netns: &Netns) -> Result<Self> {
        let scratch = Scratch::new()?;
        let config = scratch.path().join("tayga.conf");
        let text = format!(
            "tun-device {DEV}\nipv4-addr 100.64.0.1\nprefix {PREFIX}\ndynamic-pool {POOL}\n\
             data-dir {}\n",
            scratch.path().display()
        );
        fs::write(&config, text).with_context(|| format!("{}", config.display()))?;
        let command = || {
            let mut command = netns.command(tools::tayga());
            command.arg("--config").arg(&config);
            command
        };
        xdptun_lab::command::run(command().arg("--mktun"))?;
        netns.run("ip", ["link", "set", DEV, "up"])?;
        for (family, network) in [("-4", POOL), ("-6", PREFIX)] {
            netns.run("ip", [family, "route", "add", network, "dev", DEV])?;
        }
        let process = Process::spawn(command().arg("-d"))?;
        let tayga = Self {
            process,
            _scratch: scratch,
        };
        // A TUN device has a carrier while a program has it open.
        let carrier = ["link", "show", DEV];
        let ready = wait::until(START_LIMIT, "Tayga", || {
            let shown = netns.run("ip", carrier);
            shown.is_ok_and(|text| text.contains("LOWER_UP"))
        });
        tayga.explain(ready)?;
        Ok(tayga)
    }

    /// The IPv6 address for an IPv4 address.
    pub fn called(address: Ipv4Addr) -> Ipv6Addr {
        let [a, b, c, d] = address.octets().map(u16::from);
        Ipv6Addr::new(0xfd00, 0x64, 0, 0, 0, 0, a << 8 | b, c << 8 | d)
    }

    /// Adds what it said to an error.
    pub fn explain<T>(&self, result: Result<T>) -> Result<T> {
        self.process.with_output(result)
    }
}

//! One end of a WireGuard tunnel.

use std::fmt;
use std::net::IpAddr;
use std::sync::OnceLock;

use anyhow::{Result, bail, ensure};
use xdptun_lab::{Host, Netns};

use crate::config::Config;
use crate::user_space::{Program, UserSpace};

/// The name of the tunnel's interface on every host.
pub const DEV: &str = "wg0";

/// The WireGuard implementation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Implementation {
    /// The kernel's own WireGuard.
    Kernel,
    /// `boringtun-cli` in user space, where the kernel has none.
    Boringtun,
    /// `wireguard-go` in user space; only where it is asked for.
    WireguardGo,
}

/// The environment variable that chooses, by `kernel` or `boringtun`.
///
/// A choice is kept or an error; without one the kernel's is taken where it has
/// one.
pub const CHOICE: &str = "XDPTUN_WIREGUARD";

impl Implementation {
    /// The implementation that [`CHOICE`] names, or the one that this machine offers.
    pub fn chosen() -> Result<Self> {
        let Some(choice) = std::env::var_os(CHOICE) else {
            return Self::probe();
        };
        match choice.to_str() {
            Some("kernel") => {
                ensure!(
                    Self::probe()? == Self::Kernel,
                    "{CHOICE}=kernel, but this kernel makes no WireGuard interface"
                );
                Ok(Self::Kernel)
            }
            Some("boringtun") => Ok(Self::Boringtun),
            _ => bail!(
                "{CHOICE}={}: neither kernel nor boringtun",
                choice.display()
            ),
        }
    }

    /// The implementation that this machine offers, found by trying.
    pub fn probe() -> Result<Self> {
        static FOUND: OnceLock<Implementation> = OnceLock::new();
        if let Some(found) = FOUND.get() {
            return Ok(*found);
        }
        let netns = Netns::new("probe")?;
        let kernel = netns.run("ip", ["link", "add", DEV, "type", "wireguard"]);
        Ok(*FOUND.get_or_init(|| match kernel {
            Ok(_) => Self::Kernel,
            Err(_) => Self::Boringtun,
        }))
    }
}

impl fmt::Display for Implementation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kernel => "the kernel's WireGuard",
            Self::Boringtun => "boringtun (WireGuard in user space)",
            Self::WireguardGo => "wireguard-go (WireGuard in user space)",
        })
    }
}

/// A configured end; it ends with its namespace or when dropped.
#[derive(Debug)]
pub struct Tunnel {
    netns: Netns,
    address: IpAddr,
    /// `None` with the kernel's WireGuard.
    user_space: Option<UserSpace>,
}

impl Tunnel {
    /// Brings `wg0` up on a host, as `wg-quick up` would.
    pub fn up(host: &Host, config: &Config) -> Result<Self> {
        Self::by(Implementation::chosen()?, host, config)
    }

    /// The same by one implementation.
    pub fn by(implementation: Implementation, host: &Host, config: &Config) -> Result<Self> {
        let netns = &host.netns;
        let program = match implementation {
            Implementation::Kernel => None,
            Implementation::Boringtun => Some(Program::Boringtun),
            Implementation::WireguardGo => Some(Program::WireguardGo),
        };
        let user_space = match program {
            Some(program) => Some(UserSpace::start(netns, DEV, program)?),
            None => {
                netns.run("ip", ["link", "add", DEV, "type", "wireguard"])?;
                None
            }
        };
        let tunnel = Self {
            netns: netns.clone(),
            address: config.ip()?,
            user_space,
        };
        tunnel.wg(&["setconf", DEV, "/dev/stdin"], &config.setconf)?;
        let (address, mtu) = (&config.address, config.mtu);
        let batch = format!("address add {address} dev {DEV}\nlink set {DEV} mtu {mtu} up\n");
        netns.run_with_input("ip", ["-batch", "-"], &batch)?;
        Ok(tunnel)
    }

    /// The address of this end inside the tunnel.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Runs `wg` for this end.
    pub fn wg(&self, args: &[&str], input: &str) -> Result<String> {
        match &self.user_space {
            Some(running) => running.wg(args, input),
            None => self.netns.run_with_input("wg", args, input),
        }
    }
}

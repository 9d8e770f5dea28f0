//! Ways for a connection from an inside host to an IPv4 server.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context, Result};
use xdptun_lab::nat64::behind_prefix;
use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Attached, Family, Served, xdptun};

use super::tayga::Tayga;
use crate::methods::nat::path::{self as nat, Port, masquerade, network};
use crate::methods::tcp::Ends;

/// The IPv4 addresses of clients.
pub const POOL: &str = "100.64.0.0/16";

/// The network of the client.
const INSIDE: &str = "fd00:5::/64";

/// What the host in between does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// It routes IPv4, or translates it.
    V4(nat::Way),
    /// `xdptun nat64`, and `xdptun nat` behind it.
    Xdptun,
    /// `xdptun nat64`, and a masquerade of the kernel behind it.
    Masquerade,
    /// Tayga, and a masquerade of the kernel behind it.
    Tayga,
}

impl Way {
    pub const ALL: [Self; 6] = [
        Self::ROUTING,
        Self::V4(nat::Way::Xdptun),
        Self::V4(nat::Way::Nft),
        Self::Xdptun,
        Self::Masquerade,
        Self::Tayga,
    ];

    /// Plain IPv4.
    pub const ROUTING: Self = Self::V4(nat::Way::Routing);

    pub const fn name(self) -> &'static str {
        match self {
            Self::V4(nat::Way::Routing) => "IPv4 routing",
            Self::V4(nat::Way::Xdptun) => "NAT44, xdptun",
            Self::V4(nat::Way::Nft) => "NAT44, nft",
            Self::Xdptun => "nat64 and nat",
            Self::Masquerade => "nat64 and nft",
            Self::Tayga => "Tayga and nft",
        }
    }

    /// The NAT of IPv4 that is behind it as well.
    pub const fn nat44(self) -> Self {
        match self {
            Self::Xdptun | Self::V4(nat::Way::Xdptun) => Self::V4(nat::Way::Xdptun),
            _ => Self::V4(nat::Way::Nft),
        }
    }

    /// Whether it is what the goals are about.
    pub const fn is_judged(self) -> bool {
        matches!(self, Self::Xdptun | Self::Masquerade)
    }
}

/// A network of its own with one way across it.
pub enum Path {
    V4(Way, nat::Path),
    V6(Way, Served, Translator),
}

/// The program that translates between the versions.
pub enum Translator {
    Xdptun {
        attached: Attached,
        _scratch: Scratch,
    },
    Tayga(Tayga),
}

impl Path {
    pub fn new(way: Way) -> Result<Self> {
        if let Way::V4(nat) = way {
            return Ok(Self::V4(way, nat::Path::new(nat)?));
        }
        let net = network(false)?;
        if way != Way::Xdptun {
            masquerade(&net, POOL)?;
        }
        let translator = match way {
            Way::Tayga => Translator::Tayga(Tayga::start(&net.gateway)?),
            _ => translate(&net, way == Way::Xdptun)?,
        };
        Ok(Self::V6(way, net, translator))
    }

    pub const fn name(&self) -> &'static str {
        let (Self::V4(way, _) | Self::V6(way, ..)) = self;
        way.name()
    }

    /// Where connections to a port of the server begin and end.
    pub fn ends(&self, port: Port) -> Ends<'_> {
        match self {
            Self::V4(_, path) => path.ends(port),
            Self::V6(_, net, _) => Ends {
                client: &net.back_end.netns,
                entry: SocketAddr::new(self.called(net.client.v4).into(), port.number()),
                server: &net.client.netns,
                service: net.client.socket(Family::V4, port.number()),
            },
        }
    }

    /// The address behind which the client finds an IPv4 address.
    fn called(&self, address: Ipv4Addr) -> Ipv6Addr {
        match self {
            Self::V6(_, _, Translator::Tayga(_)) => Tayga::called(address),
            _ => behind_prefix(address),
        }
    }

    /// Adds what a program of the path said to an error.
    pub fn explain<T>(&self, result: Result<T>) -> Result<T> {
        let result = result.with_context(|| self.name());
        match self {
            Self::V4(_, path) => path.explain(result),
            Self::V6(_, _, Translator::Xdptun { attached, .. }) => attached.explain(result),
            Self::V6(_, _, Translator::Tayga(tayga)) => tayga.explain(result),
        }
    }
}

/// Starts xdptun from a file: `nat` has more room for one host there than `nat64 --iface` gives it.
fn translate(net: &Served, with_nat: bool) -> Result<Translator> {
    let wan = Served::WAN;
    // The server has an address for documentation, which is not global.
    let mut text =
        format!("[nat64]\ninside = \"{INSIDE}\"\npool = \"{POOL}\"\nallow-private = true\n");
    if with_nat {
        text += &format!(
            "[interface.{wan}.nat]\ninside = \"{POOL}\"\nports = \"1024-65535\"\n\
             max-bindings-per-host = 65536\n"
        );
    }
    let scratch = Scratch::new()?;
    let config = scratch.path().join("config.toml");
    fs::write(&config, text).with_context(|| format!("{}", config.display()))?;
    let mut command = net.gateway.command(xdptun::binary()?);
    let attached =
        Attached::translating(&net.gateway, command.args(["run", "--config"]).arg(&config))?;
    if with_nat {
        attached.wait_all_ready(&[wan])?;
    }
    Ok(Translator::Xdptun {
        attached,
        _scratch: scratch,
    })
}

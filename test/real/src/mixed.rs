//! wireguard-go through a TCP flow whose ends are phantun, or xdptun and phantun.

use std::fmt;

use anyhow::{Context, Result};
use xdptun_lab::{Family, Host};

use crate::path::Path;
use crate::phantun::{self, End};
use crate::wireguard::{Outside, Pair};

/// The TCP port of the server, phantun or xdptun.
const PORT: u16 = 4567;

/// The UDP port that phantun's client takes datagrams on.
const ENTRY: u16 = 4568;

/// That of WireGuard where no other program leads to it.
const WIREGUARD: u16 = 51820;

/// The options of xdptun for a peer that is phantun.
pub const COMPAT: [&str; 2] = ["--compat", "phantun"];

/// Which program is at which end.
#[derive(Debug, Clone, Copy)]
pub enum Ends {
    /// The client is phantun, the server xdptun.
    PhantunCalls,
    /// The client is xdptun, the server phantun.
    XdptunCalls,
    /// Both are phantun.
    Phantun,
}

impl fmt::Display for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PhantunCalls => "from phantun to xdptun",
            Self::XdptunCalls => "from xdptun to phantun",
            Self::Phantun => "phantun at both ends",
        })
    }
}

/// A tunnel; dropping it ends all programs.
#[derive(Debug)]
pub struct Running {
    /// WireGuard.
    pub tunnel: Pair,
    _phantun: Vec<End>,
    /// What it crosses.
    pub path: Path,
}

/// Brings a tunnel up across a router that drops UDP.
pub fn run(ends: Ends) -> Result<Running> {
    let mut path = Path::without_udp(PORT)?;
    let [server, client] = path.hosts().map(Host::clone);
    let local = |port| ([127, 0, 0, 1], port).into();
    let remote = server.socket(Family::V4, PORT);
    // xdptun changes the datagrams of WireGuard's own port.
    let [calls, serves] = match ends {
        Ends::PhantunCalls => [true, false],
        Ends::XdptunCalls => [false, true],
        Ends::Phantun => [true, true],
    };
    let mut phantun = Vec::new();
    if serves {
        phantun.push(phantun::server(&server, PORT, local(WIREGUARD))?);
    } else {
        path.attach(&server, &COMPAT)?;
    }
    if calls {
        phantun.push(phantun::client(&client, local(ENTRY), remote)?);
    } else {
        path.attach(&client, &COMPAT)?;
    }
    let outside = Outside {
        endpoint: if calls { local(ENTRY) } else { remote },
        ports: [if serves { WIREGUARD } else { PORT }, WIREGUARD],
    };
    let tunnel = Pair::up(&server, &client, outside).with_context(|| ends.to_string())?;
    Ok(Running {
        tunnel,
        _phantun: phantun,
        path,
    })
}

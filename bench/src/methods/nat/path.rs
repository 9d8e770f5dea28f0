//! Ways for a connection from an inside host to an outside server.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use xdptun_lab::crowd::prepare;
use xdptun_lab::{Attached, Family, Host, Served};

use crate::methods::tcp::Ends;

/// What a port of the server is for.
#[derive(Debug, Clone, Copy)]
pub enum Port {
    /// Its page.
    Web,
    /// Many connections at once.
    Crowd,
    /// One that carries much.
    Bulk,
}

impl Port {
    pub const fn number(self) -> u16 {
        8080 + self as u16
    }
}

/// Ports of connections that do not name theirs: none that a [`xdptun_lab::crowd::Crowd`] of
/// 12,000 names.
const LOCAL_PORTS: &str = "14000 65535";

/// The network of the inside host.
const INSIDE: &str = "10.5.0.0/24";

/// What the host in between does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// It routes; the server sees the inside address.
    Routing,
    /// `xdptun nat`.
    Xdptun,
    /// The kernel's NAT: `masquerade`.
    Nft,
}

impl Way {
    pub const ALL: [Self; 3] = [Self::Routing, Self::Xdptun, Self::Nft];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Routing => "routing",
            Self::Xdptun => "xdptun",
            Self::Nft => "nft",
        }
    }
}

/// A network of its own with one way across it.
///
/// The back end of [`Served`] is the inside host here, and its client the outside server.
pub struct Path {
    way: Way,
    net: Served,
    attached: Option<Attached>,
}

impl Path {
    pub fn new(way: Way) -> Result<Self> {
        let net = network(way == Way::Routing)?;
        let attached = match way {
            Way::Routing => None,
            Way::Xdptun => Some(translate(&net)?),
            Way::Nft => {
                masquerade(&net, INSIDE)?;
                None
            }
        };
        Ok(Self { way, net, attached })
    }

    pub const fn name(&self) -> &'static str {
        self.way.name()
    }

    /// Where connections to a port of the server begin and end.
    pub fn ends(&self, port: Port) -> Ends<'_> {
        let Host { netns: client, .. } = &self.net.back_end;
        let server = &self.net.client;
        let service: SocketAddr = server.socket(Family::V4, port.number());
        Ends {
            client,
            entry: service,
            server: &server.netns,
            service,
        }
    }

    /// Adds what a program of the path said to an error.
    pub fn explain<T>(&self, result: Result<T>) -> Result<T> {
        let result = result.with_context(|| self.name());
        match &self.attached {
            Some(attached) => attached.explain(result),
            None => result,
        }
    }
}

/// A network whose server can answer inside addresses only if it is `routed`.
pub fn network(routed: bool) -> Result<Served> {
    let net = Served::new()?;
    let (inside, outside) = (&net.back_end.netns, &net.client.netns);
    prepare(inside)?;
    prepare(outside)?;
    inside.sysctl("net.ipv4.ip_local_port_range", LOCAL_PORTS)?;
    if !routed {
        // No answer to a packet that was not translated.
        outside.run("ip", ["-4", "route", "delete", "default"])?;
    }
    Ok(net)
}

fn translate(net: &Served) -> Result<Attached> {
    // As many ports as the kernel's NAT has; all are for the one inside host.
    let ports = ["--ports", "1024-65535"];
    let bindings = ["--max-bindings-per-host", "65536"];
    let arguments = [["--inside", INSIDE], ports, bindings];
    Attached::nat(&net.gateway, Served::WAN, arguments.as_flattened())
}

/// Lets the kernel translate what comes from a network.
pub fn masquerade(net: &Served, inside: &str) -> Result<()> {
    let table = format!(
        "table ip nat {{
            chain out {{
                type nat hook postrouting priority srcnat; ip saddr {inside} oifname {} masquerade;
            }}
        }}",
        Served::WAN
    );
    net.gateway.run_with_input("nft", ["-f", "-"], &table)?;
    Ok(())
}

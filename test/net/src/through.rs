//! Clients that talk to servers through a gateway.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use xdptun_lab::{Attached, Family, Host, Inside, Netns, Served, xdptun};

use crate::{PORT, inside, translated};

/// The port at which the gateway listens when it forwards.
pub const LISTEN: u16 = 7000;

/// Runs a program ($2 and so on) that finds the resolver in a file ($1).
const WITH_RESOLVER: &str = "mount --bind \"$1\" /etc/resolv.conf; shift; exec \"$@\"";

/// A client and a server with a gateway between them.
#[derive(Debug)]
pub struct Through {
    /// The host of the client.
    pub client: Host,
    /// The host of the server.
    pub server: Host,
    /// Where the server listens, at [`PORT`].
    pub service: SocketAddr,
    /// Where the client calls.
    pub called: SocketAddr,
    /// The address from which the server sees the client call.
    pub seen: IpAddr,
    /// The name by which the client calls instead of the address, if it does.
    pub named: Option<Named>,
}

/// A server that its client knows by name.
#[derive(Debug)]
pub struct Named {
    /// The name.
    pub name: String,
    /// The client's `/etc/resolv.conf`.
    pub resolver: PathBuf,
}

impl Through {
    /// How the client names the server: an address or a name.
    #[must_use]
    pub fn host(&self) -> String {
        let name = self.named.as_ref().map(|named| named.name.clone());
        name.unwrap_or_else(|| self.called.ip().to_string())
    }

    /// The program as the client runs it: where names lead to the server, if it has one.
    #[must_use]
    pub fn by_client(&self, program: Command) -> Command {
        let Some(Named { resolver, .. }) = &self.named else {
            return program;
        };
        let mut command = self.client.netns.command("unshare");
        command.args(["--mount", "sh", "-ec", WITH_RESOLVER, "sh"]);
        command.arg(resolver).arg(program.get_program());
        command.args(program.get_args());
        for (name, value) in program.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        if let Some(folder) = program.get_current_dir() {
            command.current_dir(folder);
        }
        command
    }
}

/// Lets a client talk to a back end by a forwarded port: over both families, with its own address
/// and masqueraded.
///
/// # Panics
///
/// If that fails, or the gateway drops a packet.
pub fn forward(talk: impl Fn(&Through) -> Result<()>) {
    for family in Family::BOTH {
        for source in ["keep", "masquerade"] {
            let net = Served::new().unwrap();
            let service = net.back_end.socket(family, PORT);
            let (listen, to) = (LISTEN.to_string(), service.to_string());
            let rule = ["--listen", &listen, "--to", &to, "--source", source];
            let attached = Attached::forward(&net.gateway, Served::WAN, &rule).unwrap();
            let seen = if source == "masquerade" {
                net.strand_back_end().unwrap();
                net.inner(family)
            } else {
                net.client.address(family)
            };
            let through = Through {
                client: net.client.clone(),
                server: net.back_end.clone(),
                service,
                called: net.listen_at(family, LISTEN),
                seen,
                named: None,
            };
            let talked = talk(&through).with_context(|| format!("{family}, source {source}"));
            let passed = talked.and_then(|()| all_passed(&net.gateway));
            attached.explain(passed).unwrap();
            attached.stop().unwrap();
        }
    }
}

/// Lets an inside host talk to an outside one.
///
/// # Panics
///
/// If that fails, or the gateway drops a packet.
pub fn nat(talk: impl Fn(&Through) -> Result<()>) {
    let net = Inside::new().unwrap();
    let attached = inside::nat(&net, &[]);
    let [server, _] = &net.outside;
    let service = server.socket(Family::V4, PORT);
    let through = Through {
        client: net.a.clone(),
        server: server.clone(),
        service,
        called: service,
        seen: Inside::ADDRESS.into(),
        named: None,
    };
    let passed = talk(&through).and_then(|()| all_passed(&net.gateway));
    attached.explain(passed).unwrap();
    attached.stop().unwrap();
}

/// Lets an IPv6-only client talk to a server of IPv4.
///
/// # Panics
///
/// If that fails, or the gateway drops a packet.
pub fn nat64(talk: impl Fn(&Through) -> Result<()>) {
    let net = Inside::new().unwrap();
    let attached = translated::nat64(&net, &[]);
    let passed = talk(&to_ipv4(&net, None))
        .and_then(|()| all_passed(&net.gateway))
        .and_then(|()| translated::all_passed(&net.gateway));
    attached.explain(passed).unwrap();
    attached.stop().unwrap();
}

/// An IPv6-only client and a server of IPv4, which it may know by name.
#[must_use]
pub fn to_ipv4(net: &Inside, named: Option<Named>) -> Through {
    let [server, _] = &net.outside;
    Through {
        client: net.a.clone(),
        server: server.clone(),
        service: server.socket(Family::V4, PORT),
        called: translated::called(server.v4, PORT),
        seen: Inside::ADDRESS.into(),
        named,
    }
}

/// Requires that the gateway has dropped nothing.
fn all_passed(gateway: &Netns) -> Result<()> {
    let status = xdptun::status(gateway)?;
    let interfaces = status["gateways"].as_array().context("no gateway")?;
    for interface in interfaces {
        let counters = interface["counters"].as_object().context("no counters")?;
        let mut drops = counters.iter().filter(|(name, _)| name.contains("drop"));
        let dropped = drops.find(|(_, count)| count.as_u64() != Some(0));
        ensure!(dropped.is_none(), "{}: {dropped:?}", interface["name"]);
    }
    Ok(())
}

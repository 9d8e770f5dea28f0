//! Ways for a connection from a client to a server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::resource::{Resource, getrlimit};
use xdptun_lab::crowd::{prepare, prepare_clients};
use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Attached, Direct, Family, Host, Netns, Process, Served, wait, workspace};

use crate::methods::tcp::Ends;

/// What a port is for.
#[derive(Debug, Clone, Copy)]
pub enum Port {
    /// Many connections, and how fast they are made.
    Crowd,
    /// One that carries much.
    Bulk,
    /// One that carries a byte there and back.
    Trip,
}

impl Port {
    const ALL: [Self; 3] = [Self::Crowd, Self::Bulk, Self::Trip];

    /// What clients call.
    const fn listen(self) -> u16 {
        7000 + self as u16
    }

    /// Where the server listens.
    const fn service(self) -> u16 {
        8080 + self as u16
    }
}

/// How long a program may take to start.
const START_LIMIT: Duration = Duration::from_secs(10);

/// How a connection reaches the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Over one link.
    Direct,
    /// Through a host that routes, by the server's own address.
    Routing,
    /// Forwarded by xdptun; the server sees the client.
    Xdptun,
    /// The same; the server sees the host in between.
    Masquerade,
    /// Forwarded by the kernel's NAT, which translates both ends.
    Nft,
    /// Accepted by a proxy, which connects to the server.
    Haproxy,
}

impl Way {
    pub const ALL: [Self; 6] = [
        Self::Direct,
        Self::Routing,
        Self::Xdptun,
        Self::Masquerade,
        Self::Nft,
        Self::Haproxy,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => Path::DIRECT,
            Self::Routing => Path::ROUTING,
            Self::Xdptun => Path::XDPTUN,
            Self::Masquerade => "xdptun, masquerade",
            Self::Nft => Path::NFT,
            Self::Haproxy => "haproxy",
        }
    }

    /// Why it cannot be measured, if it cannot.
    pub fn missing(self) -> Option<String> {
        match self {
            Self::Haproxy => haproxy_is_missing(),
            _ => None,
        }
    }
}

enum Net {
    Direct(Direct),
    Served(Served),
}

/// A network of its own with one way across it.
pub struct Path {
    way: Way,
    net: Net,
    attached: Option<Attached>,
    proxy: Option<(Process, Scratch)>,
}

impl Path {
    pub const DIRECT: &'static str = "direct";
    pub const ROUTING: &'static str = "routing";
    pub const XDPTUN: &'static str = "xdptun";
    pub const NFT: &'static str = "nft";

    pub fn new(way: Way) -> Result<Self> {
        let net = match way {
            Way::Direct => Net::Direct(Direct::new()?),
            _ => Net::Served(Served::new()?),
        };
        let mut path = Self {
            way,
            net,
            attached: None,
            proxy: None,
        };
        prepare_clients(path.client())?;
        prepare(path.server())?;
        if let Net::Served(net) = &path.net {
            prepare(&net.gateway)?;
            let to = |port: Port| net.back_end.socket(Family::V4, port.service());
            let rules = Port::ALL.map(|port| (port.listen(), to(port)));
            match way {
                Way::Direct | Way::Routing => {}
                Way::Xdptun => path.attached = Some(forward(net, rules, "keep")?),
                Way::Masquerade => {
                    // As many ports as the others have.
                    let source = format!("{}:1024-65535", net.inner(Family::V4));
                    path.attached = Some(forward(net, rules, &source)?);
                }
                Way::Nft => translate(net, rules)?,
                Way::Haproxy => path.proxy = Some(proxy(net, rules)?),
            }
        }
        Ok(path)
    }

    pub const fn name(&self) -> &'static str {
        self.way.name()
    }

    /// Where connections to a port begin and end.
    pub fn ends(&self, port: Port) -> Ends<'_> {
        Ends {
            client: self.client(),
            entry: self.entry(port),
            server: self.server(),
            service: self.service(port),
        }
    }

    const fn client(&self) -> &Netns {
        match &self.net {
            Net::Direct(net) => &net.a.netns,
            Net::Served(net) => &net.client.netns,
        }
    }

    const fn server(&self) -> &Netns {
        &self.server_host().netns
    }

    const fn server_host(&self) -> &Host {
        match &self.net {
            Net::Direct(net) => &net.b,
            Net::Served(net) => &net.back_end,
        }
    }

    /// Where the server listens.
    fn service(&self, port: Port) -> SocketAddr {
        self.server_host().socket(Family::V4, port.service())
    }

    /// What the client calls.
    fn entry(&self, port: Port) -> SocketAddr {
        match (&self.net, self.way) {
            (Net::Direct(_), _) | (_, Way::Routing) => self.service(port),
            (Net::Served(net), _) => net.listen_at(Family::V4, port.listen()),
        }
    }

    /// Adds what a program of the path said to an error.
    pub fn explain<T>(&self, result: Result<T>) -> Result<T> {
        let result = result.with_context(|| self.name());
        match (&self.attached, &self.proxy) {
            (Some(attached), _) => attached.explain(result),
            (_, Some((proxy, _))) => proxy.with_output(result),
            (None, None) => result,
        }
    }
}

/// The port that clients call, and where its connections go.
type Rules = [(u16, SocketAddr); 3];

fn forward(net: &Served, rules: Rules, source: &str) -> Result<Attached> {
    let mut arguments = Vec::new();
    for (listen, to) in rules {
        let rule = ["--listen", &listen.to_string(), "--to", &to.to_string()].map(str::to_owned);
        arguments.extend(rule);
        arguments.extend(["--source", source].map(str::to_owned));
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    Attached::forward(&net.gateway, Served::WAN, &arguments)
}

fn translate(net: &Served, rules: Rules) -> Result<()> {
    let wan = Served::WAN;
    let rules = rules.map(|(listen, to)| format!("iifname {wan} tcp dport {listen} dnat to {to};"));
    let table = format!(
        "table ip forward {{
            chain in {{ type nat hook prerouting priority dstnat; {} }}
            chain out {{ type nat hook postrouting priority srcnat; oifname {} masquerade; }}
        }}",
        rules.join(" "),
        Served::LAN
    );
    net.gateway.run_with_input("nft", ["-f", "-"], &table)?;
    Ok(())
}

/// Where `cargo xtask bench` unpacks it.
fn folder() -> PathBuf {
    workspace::root().join(".tools/haproxy")
}

fn haproxy() -> PathBuf {
    folder().join("usr/sbin/haproxy")
}

/// How many connections haproxy may carry, and what it asks for then: two descriptors for each,
/// and some of its own.
const MAX_CONNECTIONS: u64 = 70_000;
/// See [`MAX_CONNECTIONS`].
const DESCRIPTORS: u64 = 2 * MAX_CONNECTIONS + 100;

fn haproxy_is_missing() -> Option<String> {
    let program = haproxy();
    if !program.is_file() {
        let path = program.display();
        return Some(format!(
            "{path}: no such file; `cargo xtask bench forward` unpacks Debian's package"
        ));
    }
    let (_, limit) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    (limit < DESCRIPTORS).then(|| {
        format!("it needs {DESCRIPTORS} descriptors; this machine allows {limit} (`ulimit -Hn`)")
    })
}

fn proxy(net: &Served, rules: Rules) -> Result<(Process, Scratch)> {
    let mut text = format!(
        "global\n maxconn {MAX_CONNECTIONS}\ndefaults\n mode tcp\n timeout connect 10s\n \
         timeout client 100s\n timeout server 100s\n"
    );
    for (listen, to) in rules {
        let at = net.listen_at(Family::V4, listen);
        text += &format!("listen to{listen}\n bind {at} backlog 65535\n server one {to}\n");
    }
    let scratch = Scratch::new()?;
    let file = scratch.path().join("haproxy.cfg");
    std::fs::write(&file, text)?;
    let mut command = net.gateway.command(haproxy());
    command.env("LD_LIBRARY_PATH", folder().join("usr/lib/x86_64-linux-gnu"));
    let process = Process::spawn(command.arg("-db").arg("-f").arg(file))?;
    let listens = wait::until(START_LIMIT, "haproxy", || {
        let table = net.gateway.run("ss", ["-Hltn"]);
        table.is_ok_and(|text| {
            Port::ALL
                .iter()
                .all(|port| text.contains(&format!(":{} ", port.listen())))
        })
    });
    process.with_output(listens)?;
    Ok((process, scratch))
}

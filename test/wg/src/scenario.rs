//! A client and a server; a tunnel; a file to download.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, bail, ensure};
use xdptun_lab::content::{self, Filling};
use xdptun_lab::scratch::Scratch;
use xdptun_lab::topology::Router;
use xdptun_lab::{Attached, Capture, Host, Netns, WireStats, link};

use crate::gateway::Gateway;
use crate::network::{Between, Network};
use crate::tunnel::{self, Implementation, Tunnel};
use crate::web::{self, Download};
use crate::{TUNNEL_PORT, config};

/// The name of the downloaded file.
const FILE: &str = "test";

/// How the file travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Path {
    /// Between the hosts' own addresses.
    Direct,
    /// Through WireGuard.
    WireGuard,
    /// Through WireGuard, disguised by xdptun on both hosts.
    Xdptun,
}

impl Path {
    /// All of them, in the order of the reference measurement.
    pub const ALL: [Self; 3] = [Self::Direct, Self::WireGuard, Self::Xdptun];
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Direct => "direct",
            Self::WireGuard => "WireGuard",
            Self::Xdptun => "WireGuard over xdptun",
        })
    }
}

/// The whole setting; dropping it removes everything.
#[derive(Debug)]
pub struct Scenario {
    /// Peer 1, which opens the tunnel and downloads.
    pub client: Host,
    /// Peer 2, which serves the file.
    pub server: Host,
    network: Network,
    tunnel: [Tunnel; 2],
    web: web::Server,
    downloads: Scratch,
    _served: Scratch,
    digest: String,
}

impl Scenario {
    /// Builds the network, the tunnel and a file of `mib` MiB.
    pub fn new(between: Between, mib: usize, filling: Filling) -> Result<Self> {
        Self::by(Implementation::chosen()?, between, mib, filling)
    }

    /// The same with one implementation of WireGuard.
    pub fn by(
        implementation: Implementation,
        between: Between,
        mib: usize,
        filling: Filling,
    ) -> Result<Self> {
        let served = Scratch::new()?;
        let digest = content::write(&served.path().join(FILE), mib, filling)?;
        let network = Network::new(between)?;
        let [client, server] = network.hosts().map(Host::clone);
        let [config1, config2] = config::generate(network.endpoint())?;
        let tunnel = [
            Tunnel::by(implementation, &client, &config1).context("peer 1 (client)")?,
            Tunnel::by(implementation, &server, &config2).context("peer 2 (server)")?,
        ];
        let web = web::Server::start(&server, served.path())?;
        Ok(Self {
            client,
            server,
            network,
            tunnel,
            web,
            downloads: Scratch::new()?,
            _served: served,
            digest,
        })
    }

    /// The strict router between the hosts; an error where there is none.
    pub fn router(&self) -> Result<&Router> {
        match &self.network {
            Network::Routed(net) => Ok(&net.router),
            Network::Wire(_) | Network::Gateway(_) => bail!("no router in this scenario"),
        }
    }

    /// The gateway between the hosts; an error where there is none.
    pub fn gateway(&self) -> Result<&Gateway> {
        match &self.network {
            Network::Gateway(gateway) => Ok(gateway),
            Network::Wire(_) | Network::Routed(_) => bail!("no gateway in this scenario"),
        }
    }

    /// Waits until the tunnel carries packets, with one ping through it.
    ///
    /// WireGuard repeats a lost handshake after five seconds.
    pub fn ping(&self) -> Result<()> {
        ping(&self.client, &self.tunnel[1])
    }

    /// Whether one of three pings through the tunnel is answered within a second.
    pub fn is_answered(&self) -> Result<bool> {
        let far = self.tunnel[1].address().to_string();
        let pings = ["-n", "-c", "3", "-i", "0.2", "-W", "1", &far];
        let mut command = self.client.netns.command("ping");
        let output = command.args(pings).output().context("cannot run ping")?;
        Ok(output.status.success())
    }

    /// The same as [`ping`](Self::ping) from peer 2, which knows where peer 1 is only if that has sent.
    pub fn ping_back(&self) -> Result<()> {
        ping(&self.server, &self.tunnel[0])
    }

    /// Takes the tunnel down, as `wg-quick down` does. Neither peer sends anything from now on, not
    /// even the keepalive that is due ten seconds after the last packet.
    pub fn down(&self) -> Result<()> {
        for host in [&self.client, &self.server] {
            host.netns.run("ip", ["link", "delete", tunnel::DEV])?;
        }
        Ok(())
    }

    /// Where peer 2 sees peer 1.
    pub fn peer1_seen(&self) -> Result<SocketAddr> {
        let endpoints = self.tunnel[1].wg(&["show", tunnel::DEV, "endpoints"], "")?;
        let endpoint = endpoints.trim().rsplit('\t').next().unwrap_or_default();
        endpoint
            .parse()
            .with_context(|| format!("peer 2 shows {endpoints:?} as peer 1's endpoint"))
    }

    /// Attaches xdptun to both hosts; WireGuard keeps running as it is.
    pub fn attach(&self) -> Result<[Attached; 2]> {
        self.attach_with(&[])
    }

    /// The same with these options.
    pub fn attach_with(&self, options: &[&str]) -> Result<[Attached; 2]> {
        let port = TUNNEL_PORT.to_string();
        let options = [&["--port", &port], options].concat();
        let attach = |host: &Host| Attached::start(&host.netns, Host::DEV, &options);
        Ok([
            attach(&self.server).context("server")?,
            attach(&self.client).context("client")?,
        ])
    }

    /// Switches on both hosts whether the stack hands WireGuard many packets in
    /// one buffer. A WireGuard that gets one at a time sends one at a time.
    pub fn segmentation(&self, on: bool) -> Result<()> {
        for host in [&self.client, &self.server] {
            for feature in ["tso", "gso"] {
                link::offload(&host.netns, tunnel::DEV, feature, on)?;
            }
        }
        Ok(())
    }

    /// Watches the wire between router and server.
    ///
    /// All that either host sends arrives there: whatever the client leaks the
    /// router would pass on, and the server has no other way out.
    pub fn watch(&self) -> Result<Capture<WireStats>> {
        let router: &Netns = &self.router()?.netns;
        let stats = WireStats::new(TUNNEL_PORT);
        Capture::fold(router, Router::WAN, stats, WireStats::add)
    }

    /// Downloads the file once; `path` chooses the server's address only.
    pub fn fetch(&self, path: Path, progress: impl FnMut(u64)) -> Result<Download> {
        let download = web::fetch(
            &self.client,
            self.address(path),
            FILE,
            self.downloads.path(),
            progress,
        );
        self.web.with_log(download)
    }

    /// Whether a download is byte for byte what was served.
    pub fn verify(&self, download: &Download) -> Result<()> {
        let found = content::digest(&download.path)?;
        ensure!(
            found == self.digest,
            "the download differs from the file: SHA-256 {found}, expected {}",
            self.digest
        );
        Ok(())
    }

    /// SHA-256 of the served file in hexadecimal.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    fn address(&self, path: Path) -> IpAddr {
        match path {
            Path::Direct => self.server.v4.into(),
            Path::WireGuard | Path::Xdptun => self.tunnel[1].address(),
        }
    }
}

fn ping(from: &Host, to: &Tunnel) -> Result<()> {
    let to = to.address().to_string();
    from.netns
        .run("ping", ["-n", "-c", "1", "-w", "15", &to])
        .context("the tunnel does not answer")?;
    Ok(())
}

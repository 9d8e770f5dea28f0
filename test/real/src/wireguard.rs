//! wireguard-go between two hosts.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use xdptun_lab::extent::Extent;
use xdptun_lab::{Host, Netns, link, wait};
use xdptun_test_net::tcp;
use xdptun_test_wg::config::Config;
use xdptun_test_wg::keys::KeyPair;
use xdptun_test_wg::{Implementation, Tunnel, tunnel};

use crate::compare::{Speeds, speed};

/// What wg-quick chooses.
pub const MTU: u32 = 1420;

/// The addresses inside: server, client.
const INSIDE: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 9, 0, 1), Ipv4Addr::new(10, 9, 0, 2)];

/// A port inside.
const INNER: u16 = 5001;

/// How long WireGuard may take to open: it repeats a lost handshake after five seconds.
const LIMIT: Duration = Duration::from_secs(20);

/// How the two find each other.
#[derive(Debug, Clone, Copy)]
pub struct Outside {
    /// Where the client sends its datagrams.
    pub endpoint: SocketAddr,
    /// The ports that server and client listen on.
    pub ports: [u16; 2],
}

/// Both ends.
#[derive(Debug)]
pub struct Pair {
    server: Netns,
    client: Netns,
    _ends: [Tunnel; 2],
}

impl Pair {
    /// Brings the tunnel up, and waits until it answers.
    pub fn up(server: &Host, client: &Host, outside: Outside) -> Result<Self> {
        let (of_server, of_client) = (KeyPair::generate()?, KeyPair::generate()?);
        let [serving, calling] = outside.ports;
        let [outer, inner] = INSIDE;
        let config = |own: &KeyPair, port: u16, near: Ipv4Addr, peer: String| Config {
            address: format!("{near}/24"),
            mtu: MTU,
            setconf: format!(
                "[Interface]\nListenPort = {port}\nPrivateKey = {}\n[Peer]\n{peer}",
                own.private
            ),
        };
        let known = format!(
            "PublicKey = {}\nAllowedIPs = {inner}/32\n",
            of_client.public
        );
        let called = format!(
            "PublicKey = {}\nAllowedIPs = {outer}/32\nEndpoint = {}\n",
            of_server.public, outside.endpoint
        );
        let up = |host, config: &Config| Tunnel::by(Implementation::WireguardGo, host, config);
        let pair = Self {
            server: server.netns.clone(),
            client: client.netns.clone(),
            _ends: [
                up(server, &config(&of_server, serving, outer, known)).context("server")?,
                up(client, &config(&of_client, calling, inner, called)).context("client")?,
            ],
        };
        pair.wait_open()?;
        Ok(pair)
    }

    /// Waits until a ping from the client comes back.
    pub fn wait_open(&self) -> Result<()> {
        let [server, _] = INSIDE.map(|address| address.to_string());
        let ping = ["-n", "-c", "1", "-W", "1", &server];
        wait::until(LIMIT, "an answer through the tunnel", || {
            self.client.run("ping", ping).is_ok()
        })
    }

    /// Pings from both ends, short and as long as the tunnel takes; all must be answered.
    pub fn ping(&self) -> Result<()> {
        let [server, client] = INSIDE.map(|address| address.to_string());
        // The IPv4 and the ICMP header.
        let full = (MTU - 28).to_string();
        for (from, to) in [(&self.client, &server), (&self.server, &client)] {
            for size in ["56", &full] {
                // The first full one may be what tells the sender how much the path takes.
                let first = ["-n", "-c", "1", "-W", "1", "-s", size, to];
                wait::until(LIMIT, "a first answer", || from.run("ping", first).is_ok())?;
                let others = ["-n", "-c", "20", "-i", "0.01", "-W", "2", "-s", size, to];
                let said = from.run("ping", others)?;
                ensure!(said.contains(" 0% packet loss"), "{size} bytes: {said}");
            }
        }
        Ok(())
    }

    /// From now on wireguard-go gets one packet at a time, and sends one datagram at a time in
    /// place of many at once (UDP GSO).
    pub fn send_one_by_one(&self) -> Result<()> {
        for netns in [&self.server, &self.client] {
            for feature in ["tso", "gso"] {
                link::offload(netns, tunnel::DEV, feature, false)?;
            }
        }
        Ok(())
    }

    /// A connection each way at once, whose bytes are compared.
    pub fn exchange(&self) -> Result<()> {
        let [far, near] = INSIDE.map(IpAddr::from);
        let (near, far) = ((near, 0).into(), (far, INNER).into());
        tcp::exchange(&self.client, near, &self.server, far)
    }

    /// How fast the tunnel is, up and down.
    pub fn speeds(&self) -> Result<Speeds> {
        let bytes = Extent::here().pick(16 << 20, 256 << 20);
        let [server, client] = INSIDE.map(|address| SocketAddr::from((address, INNER)));
        Ok([
            speed(&self.client, &self.server, server, bytes).context("up")?,
            speed(&self.server, &self.client, client, bytes).context("down")?,
        ])
    }
}

//! The network that the programs cross: a router that masquerades, refuses what belongs to no
//! connection, and with xdptun drops all UDP.

use anyhow::{Result, ensure};
use xdptun_lab::topology::Router;
use xdptun_lab::{Attached, Capture, Frame, Host, Routed, WireStats, link};
use xdptun_test_net::status::{self, Counters};

/// The network, and what is attached to its hosts.
#[derive(Debug)]
pub struct Path {
    /// The hosts and the router.
    pub net: Routed,
    port: u16,
    attached: Vec<Attached>,
}

impl Path {
    fn new(port: u16) -> Result<Self> {
        Ok(Self {
            net: Routed::new()?,
            port,
            attached: Vec::new(),
        })
    }

    /// UDP passes. The hosts cut UDP super-packets before they leave, as for most network cards:
    /// otherwise they would cross a veth pair in one piece, which no wire carries.
    pub fn plain(port: u16) -> Result<Self> {
        let path = Self::new(port)?;
        for host in path.hosts() {
            host.offload("tx-udp-segmentation", false)?;
        }
        Ok(path)
    }

    /// No UDP passes.
    pub fn without_udp(port: u16) -> Result<Self> {
        let path = Self::new(port)?;
        path.net.router.hold(&["meta l4proto udp"])?;
        Ok(path)
    }

    /// No UDP passes, and xdptun is attached to both hosts.
    pub fn disguised(port: u16) -> Result<Self> {
        let mut path = Self::without_udp(port)?;
        for host in path.hosts().map(Host::clone) {
            path.attach(&host, &[])?;
        }
        Ok(path)
    }

    /// Attaches xdptun to a host, with these options besides.
    pub fn attach(&mut self, host: &Host, options: &[&str]) -> Result<()> {
        let port = self.port.to_string();
        let options = [&["--port", &port], options].concat();
        let attached = Attached::start(&host.netns, Host::DEV, &options)?;
        self.attached.push(attached);
        Ok(())
    }

    /// Lets both hosts receive as from a network card: segment by segment, and through GRO.
    pub fn merge_at_hosts(&self) -> Result<()> {
        for dev in [Router::WAN, &Router::lan(0)] {
            link::offload(&self.net.router.netns, dev, "tso", false)?;
        }
        for host in self.hosts() {
            link::offload(&host.netns, Host::DEV, "gro", true)?;
        }
        Ok(())
    }

    /// The server.
    #[must_use]
    pub fn server(&self) -> &Host {
        &self.net.server
    }

    /// The client.
    #[must_use]
    pub fn client(&self) -> &Host {
        self.net.client()
    }

    /// Server and client.
    #[must_use]
    pub fn hosts(&self) -> [&Host; 2] {
        [self.server(), self.client()]
    }

    /// Watches the wire between router and server. On a host, what GRO has met comes in once
    /// more, restored.
    pub fn watch(&self) -> Result<Capture<WireStats>> {
        let count = |stats: &mut WireStats, frame: &Frame| stats.add(frame);
        let router = &self.net.router.netns;
        Capture::fold(router, Router::WAN, WireStats::new(self.port), count)
    }

    /// What each host has counted.
    pub fn counters(&self) -> Result<[Counters; 2]> {
        let [server, client] = self.hosts().map(|host| status::counters(&host.netns));
        Ok([server?, client?])
    }

    /// Whether both hosts have sent and received many fragments.
    pub fn ensure_fragments(&self) -> Result<()> {
        for counters in self.counters()? {
            let fragments = ["tx_fragment", "rx_fragment"].map(|name| counters.get(name).copied());
            let many = |count: &Option<u64>| count.is_some_and(|count| count > 500);
            ensure!(fragments.iter().all(many), "{counters:#?}");
        }
        Ok(())
    }

    /// Whether xdptun has lost nothing since then, and the router refused nothing.
    pub fn ensure_nothing_lost(&self, since: &[Counters; 2]) -> Result<()> {
        for (before, after) in since.iter().zip(self.counters()?) {
            let mut moved = status::moved(before, &after);
            moved.retain(|name, _| name.contains("_drop_") || name.contains("_lost"));
            ensure!(moved.is_empty(), "{moved:#?}");
        }
        let dropped = self.net.router.dropped()?;
        ensure!(dropped.invalid == 0, "{dropped:#?}");
        Ok(())
    }
}

/// Whether nothing but whole and correct segments crossed the wire.
pub fn ensure_disguised(wire: &WireStats) -> Result<()> {
    let undisguised = (wire.udp_datagrams, wire.fragments);
    ensure!(undisguised == (0, 0), "{wire:#?}");
    ensure!(wire.bad_checksums == 0 && wire.malformed == 0, "{wire:#?}");
    ensure!(wire.data_segments > 0, "{wire:#?}");
    Ok(())
}

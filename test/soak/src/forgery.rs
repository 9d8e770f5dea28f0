//! Bursts of forged segments, sent by the router.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use xdptun_lab::seeded::Random;
use xdptun_lab::topology::Router;
use xdptun_lab::{Host, Netns, Routed, burst, link};
pub use xdptun_test_net::forgery::{Kind, PAYLOAD};
use xdptun_test_net::{PORT, raw};

/// A burst, sent by the router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Burst {
    /// The kind of its segments.
    pub kind: Kind,
    /// Whether it goes to the server, or to a client.
    pub to_server: bool,
    /// How many segments.
    pub count: usize,
    /// Where their numbers come from.
    pub seed: u64,
}

impl Burst {
    /// Sends it, spread over all flows that the router knows. The router's own
    /// connection tracking does not see it.
    pub fn send(self, net: &Routed) -> Result<()> {
        let mut flows = flows(&net.router)?;
        // A client that has other addresses now has left flows behind.
        flows.retain(|flow| client_of(net, flow).is_some());
        if flows.is_empty() {
            return Ok(());
        }
        let mut random = Random::new(self.seed, 0, 0);
        let mut links = Links::default();
        for index in 0..self.count {
            let flow = &flows[index % flows.len()];
            let (from, to, dev, host) = if self.to_server {
                let dev = Router::WAN.to_owned();
                (flow.translated, flow.server, dev, &net.server)
            } else {
                let number = client_of(net, flow).context("a client of the network")?;
                let dev = Router::lan(number);
                (flow.server, flow.client, dev, &net.clients[number])
            };
            let numbers = |random: &mut Random| (random.number(), random.number());
            let packet = self.kind.forge(from, to, &mut random, numbers)?;
            links.add(&net.router.netns, dev, host, &packet)?;
        }
        for (dev, link) in &links.0 {
            burst::send_all(&net.router.netns, dev, &link.frames)?;
        }
        Ok(())
    }
}

/// The number of the client that a connection belongs to, if one has its address.
fn client_of(net: &Routed, flow: &Flow) -> Option<usize> {
    let mut clients = net.clients.iter();
    let address = flow.client.ip();
    clients.position(|host| [host.v4.into(), host.v6.into()].contains(&address))
}

/// The frames that the router is about to send, by interface.
#[derive(Debug, Default)]
struct Links(BTreeMap<String, Link>);

#[derive(Debug)]
struct Link {
    /// Receiver and sender.
    addresses: [[u8; 6]; 2],
    frames: Vec<Vec<u8>>,
}

impl Links {
    fn add(&mut self, router: &Netns, dev: String, to: &Host, packet: &[u8]) -> Result<()> {
        let link = match self.0.entry(dev) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let there = link::ethernet_address(&to.netns, Host::DEV)?;
                let here = link::ethernet_address(router, entry.key())?;
                entry.insert(Link {
                    addresses: [there, here],
                    frames: Vec::new(),
                })
            }
        };
        let frame = raw::frame(link.addresses, packet);
        link.frames.push(frame);
        Ok(())
    }
}

/// A connection as the router has it.
#[derive(Debug, PartialEq, Eq)]
struct Flow {
    client: SocketAddr,
    server: SocketAddr,
    /// The client as the server sees it.
    translated: SocketAddr,
}

fn flows(router: &Router) -> Result<Vec<Flow>> {
    let entries = router.conntrack("tcp", PORT)?;
    let established = entries.iter().filter(|entry| entry.contains("ESTABLISHED"));
    established
        .map(|entry| Flow::read(entry).with_context(|| entry.clone()))
        .collect()
}

impl Flow {
    /// Reads a line of `conntrack -L`: both directions, each as it is received.
    fn read(entry: &str) -> Option<Self> {
        let values = |key: &str| {
            let words = entry.split_whitespace();
            let values: Vec<_> = words
                .filter_map(|word| word.strip_prefix(key)?.strip_prefix('='))
                .collect();
            <[&str; 2]>::try_from(values).ok()
        };
        let [source, _] = values("src")?;
        let [target, translated] = values("dst")?;
        let [source_port, _] = values("sport")?;
        let [target_port, translated_port] = values("dport")?;
        let socket = |address: &str, port: &str| {
            Some(SocketAddr::new(address.parse().ok()?, port.parse().ok()?))
        };
        Some(Self {
            client: socket(source, source_port)?,
            server: socket(target, target_port)?,
            translated: socket(translated, translated_port)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_conntrack_prints() {
        let entry = "tcp      6 431999 ESTABLISHED src=10.1.0.2 dst=10.2.0.2 sport=4000 dport=8000 \
            src=10.2.0.2 dst=10.2.0.1 sport=8000 dport=20007 [ASSURED] mark=0 use=1";
        let expected = Flow {
            client: "10.1.0.2:4000".parse().unwrap(),
            server: "10.2.0.2:8000".parse().unwrap(),
            translated: "10.2.0.1:20007".parse().unwrap(),
        };
        assert_eq!(Flow::read(entry), Some(expected));
        assert_eq!(Flow::read("tcp 6 10 ESTABLISHED src=10.1.0.2"), None);
    }
}

//! What changes on a host, its link or the router while flows go on. Once the change is made,
//! none of their datagrams may be lost.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use xdptun_lab::topology::Router;
use xdptun_lab::{Host, Netns, link, wait};

use crate::journal::Flaw;
use crate::quiet::rest;
use crate::world::World;

/// How long neighbours may take to learn an Ethernet address.
const LEARNED: Duration = Duration::from_secs(3);

/// The host number of a second address; no client roams to it.
const SECOND: u8 = 150;

/// Offloads that cut and merge segments, and whether a host has them at first.
const SEGMENTATION: [(&str, bool); 3] = [("gso", true), ("tso", true), ("gro", false)];

/// Flushes the router's rules and loads them again, in one step: the router knows its
/// connections as before.
pub fn rules(world: &World, pause: Duration) -> Result<()> {
    world.net.router.reload_rules()?;
    rest(world, pause, &world.ledger.journal);
    Ok(())
}

/// Gives one end of a peer's link another Ethernet address for a while.
pub fn mac(world: &World, peer: usize, at_router: bool, pause: Duration) -> Result<()> {
    let router = match peer < world.net.clients.len() {
        true => Router::lan(peer),
        false => Router::WAN.to_owned(),
    };
    let mut ends = [
        (&host(world, peer).netns, Host::DEV),
        (&world.net.router.netns, router.as_str()),
    ];
    if at_router {
        ends.reverse();
    }
    let [(netns, dev), neighbour] = ends;
    // The router may still hold the addresses that the host had before it roamed.
    let host = host(world, peer);
    let is_stale = |one: &IpAddr| !at_router && *one != host.v4 && *one != host.v6;
    let old = link::ethernet_address(netns, dev)?;
    let mut new = old;
    new[5] ^= 1;
    link::set_ethernet_address(netns, dev, new)?;
    forgets(world, neighbour, old, is_stale)?;
    rest(world, pause, &world.ledger.journal);
    link::set_ethernet_address(netns, dev, old)?;
    forgets(world, neighbour, new, is_stale)
}

/// Waits until a neighbour no longer sends to an Ethernet address, except for stale IP addresses.
fn forgets(
    world: &World,
    (netns, dev): (&Netns, &str),
    address: [u8; 6],
    is_stale: impl Fn(&IpAddr) -> bool,
) -> Result<()> {
    let forgotten = wait::until_some(LEARNED, "the new Ethernet address", || {
        let known = link::addresses_of_neighbour(netns, dev, address)?;
        Ok(known.iter().all(&is_stale).then_some(()))
    });
    let forgotten = forgotten.with_context(|| format!("{dev} of {}", netns.name()));
    world.ledger.journal.check(Flaw::SlowRecovery, forgotten);
    Ok(())
}

/// Gives a peer a second address of each family for a while. The kernel prefers the new one of
/// IPv6, so the flows of a client move to it, and back.
pub fn address(world: &World, peer: usize, pause: Duration) -> Result<()> {
    let host = host(world, peer);
    let [a, b, c, _] = host.v4.octets();
    let v4 = Ipv4Addr::new(a, b, c, SECOND);
    let mut v6 = host.v6.segments();
    v6[7] = SECOND.into();
    let v6 = Ipv6Addr::from(v6);
    let batch = |verb: &str, more: &str| {
        let dev = Host::DEV;
        let batch =
            format!("address {verb} {v4}/24 dev {dev}\naddress {verb} {v6}/64 dev {dev} {more}\n");
        host.netns.run_with_input("ip", ["-batch", "-"], &batch)
    };
    batch("add", "nodad")?;
    rest(world, pause, &world.ledger.journal);
    batch("del", "")?;
    Ok(())
}

/// Switches the offloads that cut and merge segments for a while.
pub fn gso(world: &World, peer: usize, pause: Duration) -> Result<()> {
    let host = host(world, peer);
    for (feature, on) in SEGMENTATION {
        host.offload(feature, !on)?;
    }
    rest(world, pause, &world.ledger.journal);
    for (feature, on) in SEGMENTATION {
        host.offload(feature, on)?;
    }
    Ok(())
}

/// Gives a peer's interface other queueing disciplines for a while.
pub fn qdiscs(world: &World, peer: usize, pause: Duration) -> Result<()> {
    let netns = &host(world, peer).netns;
    for qdisc in ["pfifo", "bfifo"] {
        let replace = ["qdisc", "replace", "dev", Host::DEV, "root", qdisc];
        netns.run("tc", replace)?;
        rest(world, pause / 2, &world.ledger.journal);
    }
    netns.run("tc", ["qdisc", "del", "dev", Host::DEV, "root"])?;
    Ok(())
}

/// Moves a peer's interface to another network namespace, and after a while back.
pub fn moved(world: &World, number: usize, pause: Duration) -> Result<()> {
    let peer = &world.peers[number];
    let netns = &peer.host.netns;
    let elsewhere = Netns::new("elsewhere")?;
    let [gone, ready] = ["eth0: the interface is gone", "ready: eth0 "];
    let (times_gone, times_ready) = (peer.said(gone)?, peer.said(ready)?);
    link::move_to(netns, Host::DEV, &elsewhere)?;
    // A second change too soon after the first may let datagrams out as UDP.
    peer.wait_said(gone, times_gone + 1);
    thread::sleep(pause);
    link::move_to(&elsewhere, Host::DEV, netns)?;
    world.net.set_up_again(number)?;
    peer.wait_said(ready, times_ready + 1);
    Ok(())
}

/// Freezes the daemon of a peer for a while; open flows do not need it.
pub fn frozen(world: &World, peer: usize, pause: Duration) -> Result<()> {
    let _still = world.peers[peer].freeze()?;
    rest(world, pause, &world.ledger.journal);
    Ok(())
}

/// The host of that number, with the addresses that it has now.
fn host(world: &World, peer: usize) -> &Host {
    world.net.clients.get(peer).unwrap_or(&world.net.server)
}

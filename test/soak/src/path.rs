//! A path that reorders, or carries less than before, while traffic goes on: none of it
//! may be lost.

use std::time::Duration;

use anyhow::{Context, Result};
use xdptun_lab::topology::Router;
use xdptun_lab::{Family, Host, Netns, link, path, udp, wait};
use xdptun_test_net::{PORT, socket};

use crate::journal::Flaw;
use crate::quiet::rest;
use crate::world::World;

/// The MTU of every interface.
const MTU: u32 = 1500;

/// Bytes of a UDP header, and how much longer a TCP header is.
const UDP: usize = 8;
const GROWTH: u32 = 12;

/// How long a client may take to learn what fits: it has to send something too large.
const LEARNED: Duration = Duration::from_secs(3);

/// Lets segments overtake each other for a while, in both directions.
pub fn reorder(world: &World, pause: Duration) -> Result<()> {
    let router = &world.net.router.netns;
    let journal = &world.ledger.journal;
    let before = world.ledger.overtaken();
    let devs = world.devs();
    path::reorder(router, devs.iter().map(String::as_str))?;
    rest(world, pause, journal);
    path::keep_order(router)?;
    if world.ledger.overtaken() == before {
        journal.find(Flaw::Unseen, "the path kept the order of all datagrams");
    }
    for dev in &devs {
        let lost = path::lost_in_slow_lane(router, dev)?;
        if lost > 0 {
            let text = format!("{lost} segments did not fit the slow lane of {dev}");
            journal.find(Flaw::Unseen, &text);
        }
    }
    Ok(())
}

/// Lets the router carry no more than `mtu` bytes to the server for a while.
pub fn narrow(world: &World, mtu: u32, pause: Duration) -> Result<()> {
    let narrow = path::narrow(&world.net.router.netns, Router::WAN, mtu)?;
    for client in &world.net.clients {
        learns(world, &client.netns, mtu)?;
    }
    rest(world, pause, &world.ledger.journal);
    narrow.widen()?;
    for client in &world.net.clients {
        path::forget_mtus(&client.netns)?;
    }
    Ok(())
}

/// Gives a client's interface a smaller MTU for a while.
pub fn narrow_client(world: &World, client: usize, mtu: u32, pause: Duration) -> Result<()> {
    let netns = &world.net.clients[client].netns;
    link::set_mtu(netns, Host::DEV, mtu)?;
    // The kernel refuses what does not fit the interface; few datagrams are longer than
    // what fits as a segment and not longer than that.
    for family in Family::BOTH {
        let socket = udp::bind(netns, socket::anywhere(family))?;
        socket::never_fragment(&socket, family)?;
        let length = mtu as usize - family.header_len() - UDP;
        let server = world.net.server.socket(family, PORT);
        socket.send_to(&vec![0; length], server)?;
    }
    learns(world, netns, mtu)?;
    rest(world, pause, &world.ledger.journal);
    link::set_mtu(netns, Host::DEV, MTU)?;
    path::forget_mtus(netns)
}

/// Waits until a client knows that a datagram must be so much shorter than the segment
/// that it becomes.
fn learns(world: &World, client: &Netns, mtu: u32) -> Result<()> {
    let fits = format!(" mtu {} ", mtu - GROWTH);
    for family in Family::BOTH {
        let server = world.net.server.address(family).to_string();
        let mut shown = String::new();
        let learned = wait::until_some(LEARNED, "the path MTU", || {
            shown = client.run("ip", ["route", "get", &server])?;
            Ok(format!("{shown} ").contains(&fits).then_some(()))
        });
        let learned = learned.with_context(|| format!("{family}, not{fits}but {shown}"));
        world.ledger.journal.check(Flaw::SlowRecovery, learned);
    }
    Ok(())
}

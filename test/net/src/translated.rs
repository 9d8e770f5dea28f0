//! What IPv6-only clients of `xdptun nat64` send and get, and what is counted of it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
pub use xdptun_lab::nat64::behind_prefix;
use xdptun_lab::{Attached, Inside, Netns, xdptun};

use crate::status::Counters;

/// The network of the clients: that of the first two inside hosts.
pub const CLIENTS: &str = "fd00:7::/64";

/// The address of the gateway in it.
const GATEWAY: Ipv6Addr = Ipv6Addr::new(0xfd00, 7, 0, 0, 0, 0, 0, 1);

/// Leaves the first two inside hosts with IPv6 alone.
///
/// # Panics
///
/// If that fails.
pub fn without_ipv4(net: &Inside) {
    for host in [&net.a, &net.b] {
        host.without_ipv4(GATEWAY).unwrap();
    }
}

/// Lets the first two inside hosts, which lose IPv4, reach the outside ones behind the well-known
/// prefix, by the gateway's outside address; with these arguments as well.
///
/// # Panics
///
/// If that fails.
#[must_use]
pub fn nat64(net: &Inside, more: &[&str]) -> Attached {
    without_ipv4(net);
    // The outside hosts have addresses for documentation, which are not global.
    let arguments = [
        "--inside",
        CLIENTS,
        "--iface",
        Inside::WAN,
        "--allow-private",
    ];
    let attached = Attached::nat64(&net.gateway, &[&arguments, more].concat()).unwrap();
    attached.wait_all_ready(&[Inside::WAN]).unwrap();
    attached
}

/// Where a client finds a port of an IPv4 address.
#[must_use]
pub fn called(address: Ipv4Addr, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V6(behind_prefix(address)), port)
}

/// What `xdptun status` tells of NAT64.
pub fn status(gateway: &Netns) -> Result<Value> {
    let status = xdptun::status(gateway)?;
    let nat64 = status["nat64"].clone();
    ensure!(nat64.is_object(), "nothing is translated: {status}");
    Ok(nat64)
}

/// The counters that are not zero.
pub fn counters(gateway: &Netns) -> Result<Counters> {
    let status = status(gateway)?;
    let counters = status["counters"].as_object().context("no counters")?;
    let counters = counters
        .iter()
        .map(|(name, value)| (name.clone(), value.as_u64().unwrap_or_default()));
    Ok(counters.filter(|(_, value)| *value > 0).collect())
}

/// One counter.
#[must_use]
pub fn counter(gateway: &Netns, name: &str) -> u64 {
    let counters = counters(gateway).unwrap();
    counters.get(name).copied().unwrap_or_default()
}

/// The clients that have an address, as `xdptun sessions` tells of them.
#[must_use]
pub fn clients(gateway: &Netns) -> Vec<Value> {
    let arguments = ["sessions", "--function", "nat64", "--json"];
    let text = xdptun::run_in(gateway, &arguments).unwrap();
    let printed: Value = serde_json::from_str(&text).unwrap();
    printed["clients"].as_array().unwrap().clone()
}

/// The address that a client has.
#[must_use]
pub fn address_of(gateway: &Netns, client: Ipv6Addr) -> Option<Ipv4Addr> {
    let clients = clients(gateway);
    let of_client = |one: &&Value| one["client"] == client.to_string();
    let found = clients.iter().find(of_client)?;
    Some(found["address"].as_str().unwrap().parse().unwrap())
}

/// What the kernel of the gateway sends by itself: multicasts when the device comes up, and redirects.
const OF_THIS_HOST: [&str; 2] = ["to_v4_drop_destination", "to_v6_drop_redirect"];

/// Requires that nothing of a client, or for one, was dropped.
pub fn all_passed(gateway: &Netns) -> Result<()> {
    let counters = counters(gateway)?;
    let mut drops = counters
        .iter()
        .filter(|(name, _)| name.contains("_drop_") && !OF_THIS_HOST.contains(&name.as_str()));
    ensure!(drops.next().is_none(), "{counters:?}");
    Ok(())
}

//! Virtual Ethernet links between namespaces.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::netns::Netns;
use crate::wait;

/// One end of a veth pair.
#[derive(Debug, Clone, Copy)]
pub struct End<'a> {
    /// The namespace the end lives in.
    pub netns: &'a Netns,
    /// The name of the interface there.
    pub dev: &'a str,
    /// Addresses with prefix length, `10.1.0.2/24` or `fd00:1::2/64`.
    pub addresses: &'a [String],
}

/// Makes a veth pair and returns when both ends carry traffic.
///
/// IPv6 addresses are usable at once (no duplicate address detection).
pub fn veth(a: &End<'_>, b: &End<'_>) -> Result<()> {
    a.netns.run(
        "ip",
        [
            "link",
            "add",
            a.dev,
            "type",
            "veth",
            "peer",
            "name",
            b.dev,
            "netns",
            b.netns.name(),
        ],
    )?;
    for end in [a, b] {
        configure(end)?;
    }
    for end in [a, b] {
        wait_up(end.netns, end.dev)?;
        if end.addresses.iter().any(|address| address.contains(':')) {
            wait_for_ipv6(end)?;
        }
    }
    Ok(())
}

/// Waits until IPv6 routes can lead through an interface that is up: the kernel tells IPv6
/// last.
fn wait_for_ipv6(end: &End<'_>) -> Result<()> {
    let what = format!("IPv6 to use {}", end.dev);
    wait::until_some(Duration::from_secs(10), &what, || {
        let routes = ["-6", "route", "show", "dev", end.dev, "proto", "kernel"];
        let routes = end.netns.run("ip", routes)?;
        Ok(routes.contains("fe80::/64").then_some(()))
    })
}

/// Gives an interface its addresses and sets it up.
pub fn configure(end: &End<'_>) -> Result<()> {
    let mut batch = String::new();
    for address in end.addresses {
        let nodad = if address.contains(':') { " nodad" } else { "" };
        batch += &format!("address add {address} dev {}{nodad}\n", end.dev);
    }
    batch += &format!("link set {} up\n", end.dev);
    end.netns.run_with_input("ip", ["-batch", "-"], &batch)?;
    Ok(())
}

/// Waits until an interface is ready to send.
///
/// The kernel swaps the queue in some time after the carrier came; what is sent
/// before that is lost.
pub fn wait_up(netns: &Netns, dev: &str) -> Result<()> {
    wait::until_some(Duration::from_secs(10), &format!("{dev} to be up"), || {
        let state = link_attribute(netns, dev, "operstate")?;
        Ok((state == "UP").then_some(()))
    })
}

/// An interface that is down.
#[derive(Debug)]
#[must_use = "it stays down until `Down::up`"]
pub struct Down {
    netns: Netns,
    dev: String,
    /// For `ip -4` and `ip -6`: the default routes, which went with it.
    routes: [(&'static str, String); 2],
}

/// Takes an interface down, as an administrator does.
pub fn down(netns: &Netns, dev: &str) -> Result<Down> {
    let mut routes = [("-4", String::new()), ("-6", String::new())];
    for (version, batch) in &mut routes {
        let show = [*version, "route", "show", "default", "dev", dev];
        for line in netns.run("ip", show)?.lines() {
            *batch += &format!("route replace {line} dev {dev}\n");
        }
    }
    // The kernel would remove them, unlike those of IPv4.
    netns.sysctl(&format!("net.ipv6.conf.{dev}.keep_addr_on_down"), "1")?;
    netns.run("ip", ["link", "set", dev, "down"])?;
    Ok(Down {
        netns: netns.clone(),
        dev: dev.to_owned(),
        routes,
    })
}

impl Down {
    /// Takes it up with the default routes it had; returns when it carries traffic.
    pub fn up(self) -> Result<()> {
        let Self { netns, dev, routes } = self;
        netns.run("ip", ["link", "set", &dev, "up"])?;
        wait_up(&netns, &dev)?;
        for (version, batch) in routes {
            netns.run_with_input("ip", [version, "-batch", "-"], &batch)?;
        }
        Ok(())
    }
}

/// The Ethernet address of an interface.
pub fn ethernet_address(netns: &Netns, dev: &str) -> Result<[u8; 6]> {
    let address = link_attribute(netns, dev, "address")?;
    let octets = address.as_str().unwrap_or_default().split(':');
    let octets: Option<Vec<u8>> = octets
        .map(|octet| u8::from_str_radix(octet, 16).ok())
        .collect();
    octets
        .and_then(|octets| octets.try_into().ok())
        .with_context(|| format!("{dev}: {address} is no Ethernet address"))
}

/// Gives an interface another Ethernet address, and tells its neighbours, as network managers
/// do.
pub fn set_ethernet_address(netns: &Netns, dev: &str, address: [u8; 6]) -> Result<()> {
    netns.sysctl(&format!("net.ipv4.conf.{dev}.arp_notify"), "1")?;
    netns.sysctl(&format!("net.ipv6.conf.{dev}.ndisc_notify"), "1")?;
    set_ethernet_address_quietly(netns, dev, address)
}

/// The same without telling anybody.
pub fn set_ethernet_address_quietly(netns: &Netns, dev: &str, address: [u8; 6]) -> Result<()> {
    let address = in_words(address);
    netns.run("ip", ["link", "set", dev, "address", &address])?;
    Ok(())
}

/// The IP addresses that a host sends to this Ethernet address at one of its interfaces.
pub fn addresses_of_neighbour(netns: &Netns, dev: &str, address: [u8; 6]) -> Result<Vec<IpAddr>> {
    let address = in_words(address);
    let neighbours = netns.run("ip", ["neighbour", "show", "dev", dev])?;
    let lines = neighbours.lines().filter(|line| line.contains(&address));
    lines
        .map(|line| {
            let ip = line.split_whitespace().next().unwrap_or_default();
            ip.parse().with_context(|| format!("a neighbour: {line}"))
        })
        .collect()
}

fn in_words(ethernet_address: [u8; 6]) -> String {
    ethernet_address
        .map(|octet| format!("{octet:02x}"))
        .join(":")
}

/// Moves an interface to another namespace; its addresses and routes are gone then.
pub fn move_to(netns: &Netns, dev: &str, other: &Netns) -> Result<()> {
    netns.run("ip", ["link", "set", dev, "netns", other.name()])?;
    Ok(())
}

/// Switches an offload as `ethtool -K` names it: `tx`, `tso`, `gso`, `gro`, ...
pub fn offload(netns: &Netns, dev: &str, feature: &str, on: bool) -> Result<()> {
    let value = if on { "on" } else { "off" };
    netns.run("ethtool", ["-K", dev, feature, value])?;
    Ok(())
}

/// Whether an offload is on, by the name that `ethtool -k` lists it under.
pub fn offloads(netns: &Netns, dev: &str, feature: &str) -> Result<bool> {
    let listed = netns.run("ethtool", ["-k", dev])?;
    let line = listed.lines().find_map(|line| {
        let (name, state) = line.trim().split_once(": ")?;
        (name == feature).then_some(state)
    });
    let state = line.with_context(|| format!("{dev}: ethtool lists no {feature}"))?;
    Ok(state.starts_with("on"))
}

/// Sets the largest IP packet the interface carries, in bytes.
pub fn set_mtu(netns: &Netns, dev: &str, mtu: u32) -> Result<()> {
    netns.run("ip", ["link", "set", dev, "mtu", &mtu.to_string()])?;
    Ok(())
}

/// The names of all interfaces in a namespace, in the kernel's order.
pub fn names(netns: &Netns) -> Result<Vec<String>> {
    let links = links(netns, &[])?;
    Ok(links
        .iter()
        .filter_map(|link| Some(link["ifname"].as_str()?.to_owned()))
        .collect())
}

/// The index of an interface, the last part of where xdptun pins its state.
pub fn index(netns: &Netns, dev: &str) -> Result<u32> {
    let index = link_attribute(netns, dev, "ifindex")?;
    index
        .as_u64()
        .and_then(|index| u32::try_from(index).ok())
        .with_context(|| format!("{dev}: `ip link` shows no index but {index}"))
}

fn link_attribute(netns: &Netns, dev: &str, attribute: &str) -> Result<Value> {
    let mut links = links(netns, &["dev", dev])?;
    let link = links
        .pop()
        .with_context(|| format!("{dev}: no such interface in {}", netns.name()))?;
    Ok(link[attribute].clone())
}

fn links(netns: &Netns, selector: &[&str]) -> Result<Vec<Value>> {
    let args = ["-json", "link", "show"].iter().chain(selector);
    let text = netns.run("ip", args)?;
    serde_json::from_str(&text).context("`ip -json link` did not print JSON")
}

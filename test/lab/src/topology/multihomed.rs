//! Two hosts with several links between them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::Result;

use super::host::{Family, Host, prefixed, v6};
use super::relayed::device;
use crate::link::{self, End};
use crate::netns::Netns;
use crate::relay::{Relay, Side};
use crate::tap::{Kind, Offload};

/// Two hosts connected by several links, number `i` by interfaces `eth<i>` in the networks
/// `10.5.i.0/24` and `fd00:5:i::/64`.
///
/// The addresses of the hosts themselves are on no link: their routes decide which link
/// leads there, at first number 0. The way back may be another, as no host checks by which
/// interface a source is reached (`rp_filter`).
#[derive(Debug)]
pub struct Multihomed {
    /// The wire of link 0, if it has no link header. Before the hosts, so that the devices
    /// are gone first.
    pub relay: Option<Relay>,
    /// `10.6.0.1`, `fd00:6::1`.
    pub a: Host,
    /// `10.6.0.2`, `fd00:6::2`.
    pub b: Host,
}

impl Multihomed {
    /// Makes both hosts and two Ethernet links.
    pub fn new() -> Result<Self> {
        Self::with_links(2)
    }

    /// Makes both hosts and up to 250 Ethernet links.
    pub fn with_links(count: u8) -> Result<Self> {
        let [a, b] = [host("a", Side::A)?, host("b", Side::B)?];
        let net = Self { relay: None, a, b };
        (0..count).try_for_each(|link| net.plug_in(link))?;
        net.route(0)?;
        Ok(net)
    }

    /// Makes both hosts and two links: number 0 without a link header (TUN), number 1
    /// Ethernet. `offload` is what the hosts leave to the wire of number 0.
    pub fn with_bare_link(offload: Offload) -> Result<Self> {
        let [a, b] = [host("a", Side::A)?, host("b", Side::B)?];
        let end = |host: &Host, side| {
            let addresses = addresses(side, 0);
            device(&host.netns, Kind::Tun, offload, &addresses)
        };
        let wire = Relay::start(Kind::Tun, end(&a, Side::A)?, end(&b, Side::B)?)?;
        let relay = Some(wire);
        let net = Self { relay, a, b };
        net.plug_in(1)?;
        net.route(0)?;
        Ok(net)
    }

    /// The host at an end.
    pub fn host(&self, side: Side) -> &Host {
        match side {
            Side::A => &self.a,
            Side::B => &self.b,
        }
    }

    /// The interfaces of a link.
    pub fn dev(link: u8) -> String {
        format!("eth{link}")
    }

    /// A host's address on a link, with a port.
    pub fn on_link(side: Side, link: u8, family: Family, port: u16) -> SocketAddr {
        let (v4, v6) = on_link(side, link);
        let address = match family {
            Family::V4 => IpAddr::from(v4),
            Family::V6 => v6.into(),
        };
        SocketAddr::new(address, port)
    }

    /// From now on packets between the hosts' own addresses take a link, both ways. The
    /// second host is first: it has a way back for all that the first one sends.
    pub fn route(&self, link: u8) -> Result<()> {
        self.route_from(Side::B, link)?;
        self.route_from(Side::A, link)
    }

    /// From now on packets of one host to the other's own addresses take a link. No packet is
    /// without a route meanwhile.
    pub fn route_from(&self, side: Side, link: u8) -> Result<()> {
        let (from, to) = (self.host(side), self.host(side.other()));
        let (v4, v6) = on_link(side.other(), link);
        let batch = format!(
            "route replace {}/32 via {v4} src {}\nroute replace {}/128 via {v6} src {}\n",
            to.v4, from.v4, to.v6, from.v6
        );
        from.netns.run_with_input("ip", ["-batch", "-"], &batch)?;
        Ok(())
    }

    /// Makes an Ethernet link.
    pub fn plug_in(&self, link: u8) -> Result<()> {
        let (a, b) = (addresses(Side::A, link), addresses(Side::B, link));
        link::veth(
            &End {
                netns: &self.a.netns,
                dev: &Self::dev(link),
                addresses: &a,
            },
            &End {
                netns: &self.b.netns,
                dev: &Self::dev(link),
                addresses: &b,
            },
        )
    }

    /// Deletes an Ethernet link: the interfaces of both hosts.
    pub fn unplug(&self, link: u8) -> Result<()> {
        self.a
            .netns
            .run("ip", ["link", "delete", &Self::dev(link)])?;
        Ok(())
    }
}

fn host(label: &str, side: Side) -> Result<Host> {
    let number = number(side);
    let own = (
        Ipv4Addr::new(10, 6, 0, number),
        v6([0xfd00, 6], number.into()),
    );
    let host = Host::new(label, own.0, own.1)?;
    accept_any_way(&host.netns)?;
    // They come back with the link, as those of IPv4 do.
    let keep = "net.ipv6.conf.all.keep_addr_on_down";
    host.netns.sysctl(keep, "1")?;
    let batch = format!(
        "address add {}/32 dev lo\naddress add {}/128 dev lo\n",
        own.0, own.1
    );
    host.netns.run_with_input("ip", ["-batch", "-"], &batch)?;
    Ok(host)
}

/// Lets packets in by any interface, whichever leads to their source.
pub(super) fn accept_any_way(netns: &Netns) -> Result<()> {
    // The larger of this one and that of the interface counts.
    netns.sysctl("net.ipv4.conf.all.rp_filter", "0")?;
    netns.sysctl("net.ipv4.conf.default.rp_filter", "0")
}

fn number(side: Side) -> u8 {
    match side {
        Side::A => 1,
        Side::B => 2,
    }
}

fn on_link(side: Side, link: u8) -> (Ipv4Addr, Ipv6Addr) {
    let number = number(side);
    (
        Ipv4Addr::new(10, 5, link, number),
        v6([0xfd00, 5, link.into()], number.into()),
    )
}

fn addresses(side: Side, link: u8) -> [String; 2] {
    let (v4, v6) = on_link(side, link);
    prefixed(v4, v6)
}

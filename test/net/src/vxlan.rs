//! VXLAN tunnels between the hosts: packets inside UDP datagrams, whose own
//! checksums a device may have still to finish.

use std::net::IpAddr;

use anyhow::Result;
use xdptun_lab::{Family, Host};

/// The tunnel device on both hosts.
pub const DEV: &str = "vx0";
/// That of a tunnel over an MTU of 1500.
pub const MTU: usize = 1450;
/// The UDP port of the tunnel (RFC 7348 section 5).
pub const PORT: u16 = 4789;

/// Host `number` of the inner network.
#[must_use]
pub fn inner(family: Family, number: u8) -> IpAddr {
    match family {
        Family::V4 => [10, 9, 0, number].into(),
        Family::V6 => [0xfd09, 0, 0, 0, 0, 0, 0, number.into()].into(),
    }
}

/// Makes the host's end of the tunnel; `checksums` says whether its datagrams
/// have some of their own.
pub fn dig(host: &Host, number: u8, other: &Host, checksums: bool) -> Result<()> {
    let netns = &host.netns;
    // Headers are computed in tests, and must not hold a random number.
    netns.sysctl("net.ipv6.auto_flowlabels", "0")?;
    let (local, remote) = (host.v4, other.v4);
    let sum = if checksums { "udpcsum" } else { "noudpcsum" };
    let batch = format!(
        "link add {DEV} type vxlan id 7 local {local} remote {remote} dstport {PORT} {sum}
         address add {}/24 dev {DEV}
         address add {}/64 dev {DEV} nodad
         link set {DEV} up\n",
        inner(Family::V4, number),
        inner(Family::V6, number),
    );
    netns.run_with_input("ip", ["-batch", "-"], &batch)?;
    Ok(())
}

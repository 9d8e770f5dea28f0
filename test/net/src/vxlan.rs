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

/// The address of host `number`'s end of the tunnel.
fn link_address(number: u8) -> String {
    format!("02:00:00:00:07:{number:02x}")
}

/// Makes the end of host `number` (1 or 2) of the tunnel; `checksums` says whether
/// its datagrams have some of their own.
///
/// Nothing passes that a test does not send: both ends know each other's addresses,
/// and what is for everybody (groups that are joined, routers that are looked for)
/// has nowhere to go.
pub fn dig(host: &Host, number: u8, other: &Host, checksums: bool) -> Result<()> {
    let netns = &host.netns;
    // Headers are computed in tests, and must not hold a random number.
    netns.sysctl("net.ipv6.auto_flowlabels", "0")?;
    let (own, peer) = (link_address(number), link_address(3 - number));
    let [peer_v4, peer_v6] = [Family::V4, Family::V6].map(|family| inner(family, 3 - number));
    let local = host.v4;
    let sum = if checksums { "udpcsum" } else { "noudpcsum" };
    let batch = format!(
        "link add {DEV} address {own} type vxlan id 7 local {local} dstport {PORT} {sum}
         address add {}/24 dev {DEV}
         address add {}/64 dev {DEV} nodad
         link set {DEV} up
         neighbour replace {peer_v4} lladdr {peer} dev {DEV} nud permanent
         neighbour replace {peer_v6} lladdr {peer} dev {DEV} nud permanent\n",
        inner(Family::V4, number),
        inner(Family::V6, number),
    );
    netns.run_with_input("ip", ["-batch", "-"], &batch)?;
    let remote = other.v4.to_string();
    netns.run(
        "bridge",
        ["fdb", "append", &peer, "dev", DEV, "dst", &remote],
    )?;
    Ok(())
}

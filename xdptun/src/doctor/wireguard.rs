//! Whether the packets of the WireGuard devices fit.

use std::path::Path;

use futures_util::TryStreamExt as _;
use ipnet::IpNet;
use rtnetlink::packet_route::link::{InfoKind, LinkAttribute, LinkMessage};

use super::{Finding, Subject};
use crate::error::{Context as _, Result};
use crate::host::interface::kind;
use crate::host::mtu::{WIREGUARD_DEFAULT, WireguardMtu};
use crate::host::netlink;

const CHECK: &str = "wireguard-mtu";

/// The directory of the control sockets of implementations in user space
/// (wireguard.com/xplatform).
const SOCKETS: &str = "/var/run/wireguard";

pub fn check(subject: &Subject) -> Result<Vec<Finding>> {
    let links: Vec<LinkMessage> = netlink::block_on(async |handle| {
        let all: Result<Vec<_>, _> = handle.link().get().execute().try_collect().await;
        all.context("cannot list the interfaces")
    })?;
    let has_socket = |name: &str| Path::new(SOCKETS).join(format!("{name}.sock")).exists();
    let over_v6 = over_v6(subject)?;
    let findings = links
        .iter()
        .filter_map(|link| device(link, has_socket))
        .map(|(name, mtu)| judge(subject.name(), subject.interface.mtu, over_v6, &name, mtu));
    Ok(findings.collect())
}

/// Whether a peer is known to be reached over IPv6.
fn over_v6(subject: &Subject) -> Result<bool> {
    let Some(pinned) = &subject.pinned else {
        return Ok(false);
    };
    let flows = pinned.group.maps.flows()?;
    let peers = pinned.group.maps.peers()?;
    Ok(flows.iter().any(|(key, _)| key.remote().is_ipv6())
        || peers.iter().any(|peer| matches!(peer, IpNet::V6(_))))
}

/// Name and MTU in bytes of a link, if it is a WireGuard device.
fn device(link: &LinkMessage, has_socket: impl Fn(&str) -> bool) -> Option<(String, u32)> {
    let attributes = link.attributes.iter();
    let (mut name, mut mtu) = (None, None);
    for attribute in attributes {
        match attribute {
            LinkAttribute::IfName(value) => name = Some(value.clone()),
            LinkAttribute::Mtu(value) => mtu = Some(*value),
            _ => {}
        }
    }
    let (name, mtu) = (name?, mtu?);
    let is_wireguard = match kind(link) {
        Some(InfoKind::Wireguard) => true,
        Some(InfoKind::Tun) => has_socket(&name),
        _ => false,
    };
    is_wireguard.then_some((name, mtu))
}

fn judge(interface: &str, interface_mtu: u32, over_v6: bool, name: &str, mtu: u32) -> Finding {
    let fits = WireguardMtu::on(interface_mtu);
    let limit = if over_v6 { fits.v6 } else { fits.v4 };
    if mtu <= fits.v6 {
        return Finding::ok(CHECK, format!("{name}: MTU {mtu} fits through {interface}"));
    }
    if mtu <= limit {
        let what = format!(
            "{name}: MTU {mtu} fits through {interface} over IPv4; over IPv6 it must be {} or less",
            fits.v6
        );
        return Finding::ok(CHECK, what);
    }
    let wanted = limit.min(WIREGUARD_DEFAULT);
    let what = format!(
        "{name}: MTU {mtu} does not fit through {interface} with its {interface_mtu}: \
         at most {} over IPv4 and {} over IPv6; larger packets leave in fragments, \
         each a segment of its own. `MTU = {wanted}` in {name}.conf keeps it after a restart",
        fits.v4, fits.v6
    );
    Finding::warn(CHECK, what).mend(format!("ip link set mtu {wanted} dev {name}"))
}

#[cfg(test)]
mod tests {
    use rtnetlink::packet_route::link::LinkInfo;

    use super::super::Level;
    use super::*;

    fn link(name: &str, kind: InfoKind) -> LinkMessage {
        let mut link = LinkMessage::default();
        link.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::Mtu(1420),
            LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)]),
        ];
        link
    }

    #[test]
    fn wireguard_is_known_by_kind_or_by_its_socket() {
        let has_socket = |name: &str| name == "wg1";
        let found = |name, kind| device(&link(name, kind), has_socket).map(|(name, _)| name);
        assert_eq!(found("wg0", InfoKind::Wireguard).as_deref(), Some("wg0"));
        assert_eq!(found("wg1", InfoKind::Tun).as_deref(), Some("wg1"));
        assert_eq!(found("tun0", InfoKind::Tun), None);
        assert_eq!(found("wg1", InfoKind::Dummy), None);
    }

    #[test]
    fn the_default_fits_over_ipv4_only() {
        for (mtu, over_v6, level, mend) in [
            (1408, true, Level::Ok, None),
            (1420, false, Level::Ok, None),
            (1428, false, Level::Ok, None),
            (
                1429,
                false,
                Level::Warn,
                Some("ip link set mtu 1420 dev wg0"),
            ),
            (
                1420,
                true,
                Level::Warn,
                Some("ip link set mtu 1408 dev wg0"),
            ),
        ] {
            let finding = judge("eth0", 1500, over_v6, "wg0", mtu);
            assert_eq!(
                (finding.level, finding.mend.as_deref()),
                (level, mend),
                "{finding:?}"
            );
        }
    }
}

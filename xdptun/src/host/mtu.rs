//! The longest datagrams that fit an interface, and what longer ones cost.

use std::net::SocketAddr;

use serde::Serialize;

/// Length of the IPv4 header and the TCP header.
const HEADERS_V4: u32 = 20 + 20;
/// The same over IPv6.
const HEADERS_V6: u32 = 40 + 20;
/// WireGuard's own fields: type, index, counter and tag (`protocol.tex` section 5.4.6).
const WIREGUARD: u32 = 32;
/// What a datagram has on the wire beside its payload and the headers of each segment, if it
/// leaves in two fragments: a fragment header each, and its UDP header.
const OF_TWO_FRAGMENTS: u32 = 2 * 8 + 8;
/// The default of `wg-quick` on an interface with MTU 1500.
pub const WIREGUARD_DEFAULT: u32 = 1420;
/// The smallest MTU of IPv6 (RFC 8200 section 5).
pub const IPV6_LEAST: u32 = 1280;

/// The largest MTU of a WireGuard device whose disguised packets still fit the
/// interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WireguardMtu {
    /// If the peer is reached over IPv4.
    pub v4: u32,
    /// If the peer is reached over IPv6.
    pub v6: u32,
}

impl WireguardMtu {
    /// The MTU that the interface itself needs so that IPv6 can be used inside.
    pub const FOR_IPV6_INSIDE: Self = Self {
        v4: IPV6_LEAST + HEADERS_V4 + WIREGUARD,
        v6: IPV6_LEAST + HEADERS_V6 + WIREGUARD,
    };

    /// For an interface with the given MTU, in bytes.
    #[must_use]
    pub const fn on(interface_mtu: u32) -> Self {
        Self {
            v4: interface_mtu.saturating_sub(HEADERS_V4 + WIREGUARD),
            v6: interface_mtu.saturating_sub(HEADERS_V6 + WIREGUARD),
        }
    }
}

/// What it costs that datagrams to these peers leave an interface with the given MTU in fragments, and
/// which setting avoids it. Without peers, it names the numbers of both versions of IP.
///
/// The cost is that of the shortest datagram that is cut, beside one of the same payload in a single
/// segment. Longer ones cost less, beside full segments.
#[must_use]
pub fn cost_of_fragments(
    interface_mtu: u32,
    peers: impl IntoIterator<Item = SocketAddr>,
) -> String {
    let (mut v4, mut v6) = (false, false);
    for peer in peers {
        v4 |= peer.is_ipv4();
        v6 |= peer.is_ipv6();
    }
    let number = |over_v4: u32, over_v6: u32| match (v4, v6) {
        (false, true) => over_v6.to_string(),
        (true, false) => over_v4.to_string(),
        _ if over_v4 == over_v6 => over_v4.to_string(),
        _ => format!("{over_v4} (IPv6: {over_v6})"),
    };
    let payload = |headers: u32| interface_mtu.saturating_sub(headers);
    let percent =
        |headers: u32| ((headers + OF_TWO_FRAGMENTS) * 100).div_ceil(interface_mtu.max(1));
    let wireguard = WireguardMtu::on(interface_mtu);
    let fits = number(payload(HEADERS_V4), payload(HEADERS_V6));
    format!(
        "with MTU {interface_mtu}, datagrams of more than {fits} bytes leave in fragments: up to 100 % \
         more packets and {} % more bytes; set MTU = {} in wg0.conf (other programs: datagrams of {fits} \
         bytes at most), or less if the path is narrower",
        number(percent(HEADERS_V4), percent(HEADERS_V6)),
        number(wireguard.v4, wireguard.v6)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ethernet_carries_the_default_over_ipv4_only() {
        let mtu = WireguardMtu::on(1500);
        assert_eq!(mtu, WireguardMtu { v4: 1428, v6: 1408 });
        assert!(WIREGUARD_DEFAULT <= mtu.v4 && WIREGUARD_DEFAULT > mtu.v6);
        let least = WireguardMtu::FOR_IPV6_INSIDE;
        assert_eq!(WireguardMtu::on(least.v4).v4, IPV6_LEAST);
        assert_eq!(WireguardMtu::on(least.v6).v6, IPV6_LEAST);
    }

    #[test]
    fn the_cost_of_fragments_is_that_of_the_versions_in_use() {
        let [v4, v6] = ["10.0.0.2:51820", "[fd00::2]:51820"].map(|peer| peer.parse().unwrap());
        assert_eq!(
            cost_of_fragments(1500, [v4]),
            "with MTU 1500, datagrams of more than 1460 bytes leave in fragments: up to 100 % more \
             packets and 5 % more bytes; set MTU = 1428 in wg0.conf (other programs: datagrams of 1460 bytes at \
             most), or less if the path is narrower"
        );
        let of_v6 = cost_of_fragments(1500, [v6, v6]);
        for number in ["1440 bytes", "6 % more bytes", "MTU = 1408 in"] {
            assert!(of_v6.contains(number), "{of_v6}");
        }
        let both = cost_of_fragments(9000, [v4, v6]);
        assert_eq!(both, cost_of_fragments(9000, []));
        for numbers in ["8960 (IPv6: 8940)", " 1 % more bytes", "8928 (IPv6: 8908)"] {
            assert!(both.contains(numbers), "{both}");
        }
    }

    /// As counted on the wire: the first datagram that is cut, and the longest in two full fragments.
    #[test]
    fn the_cost_of_fragments_is_the_most() {
        for (mtu, headers, fragment) in [(1500, HEADERS_V4, 1448), (1500, HEADERS_V6, 1432)] {
            let most = f64::from(headers + OF_TWO_FRAGMENTS) / f64::from(mtu);
            for payload in mtu - headers + 1..3 * fragment - 8 {
                let fragments = (payload + 8).div_ceil(fragment);
                let cut = payload + 8 + fragments * (headers + 8);
                let full = f64::from(payload) * f64::from(mtu) / f64::from(mtu - headers);
                assert!(f64::from(cut) / full - 1.0 <= most, "{payload}");
                let of_full = f64::from(payload) / f64::from(mtu - headers);
                assert!(f64::from(fragments) <= 2.0 * of_full, "{payload}");
            }
        }
    }
}

//! The MTU of a WireGuard device whose peer is reached through xdptun.

use serde::Serialize;

/// Length of the IPv4 header, the TCP header, and WireGuard's own fields (type, index,
/// counter and tag: 32 bytes; `protocol.tex` section 5.4.6).
const OVERHEAD_V4: u32 = 20 + 20 + 32;
/// The same over IPv6.
const OVERHEAD_V6: u32 = 40 + 20 + 32;
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
        v4: IPV6_LEAST + OVERHEAD_V4,
        v6: IPV6_LEAST + OVERHEAD_V6,
    };

    /// For an interface with the given MTU, in bytes.
    #[must_use]
    pub const fn on(interface_mtu: u32) -> Self {
        Self {
            v4: interface_mtu.saturating_sub(OVERHEAD_V4),
            v6: interface_mtu.saturating_sub(OVERHEAD_V6),
        }
    }
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
}

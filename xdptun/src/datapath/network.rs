//! Networks as keys of longest-prefix maps.

use aya::maps::lpm_trie;
use ipnet::{IpNet, Ipv6Net};
use xdptun_common::address::address_bytes;

/// A network in a map: the length of its prefix, and a 16-byte address.
pub type NetworkKey = lpm_trie::Key<[u8; 16]>;

/// The key of a network, IPv4 as v4-mapped.
#[must_use]
pub fn network_key(network: IpNet) -> NetworkKey {
    let network = as_v6(network);
    NetworkKey::new(network.prefix_len().into(), network.network().octets())
}

/// The programs compare 16-byte addresses, IPv4 as v4-mapped.
fn as_v6(network: IpNet) -> Ipv6Net {
    let address = address_bytes(network.addr()).into();
    let prefix_len = match network {
        IpNet::V4(network) => 96 + network.prefix_len(),
        IpNet::V6(network) => network.prefix_len(),
    };
    // 96 + at most 32, or at most 128.
    Ipv6Net::new_assert(address, prefix_len)
}

//! Hosts whose own TCP ours is compared with, and where the two differ on purpose.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};

use xdptun_lab::{Attached, Direct, Family, Host};

use crate::look::Known;
use crate::{PORT, mode};

/// A port of Linux's own TCP, beside [`PORT`] on the same hosts.
pub const LINUX: u16 = PORT + 1;

/// Where our segments differ from those of Linux, and why. A difference that is gone
/// fails the tests as well: it has to go from here, and from docs/security.md.
pub const KNOWN: &[Known] = &[
    Known {
        kind: "ACK",
        field: "window",
        reason: "from then on the window tells peers what an ACK is for",
    },
    Known {
        kind: "repeated SYN",
        field: "flow label after the first's",
        reason: "Linux tries another path (net.core.txrehash); ours keeps to the one of the flow",
    },
    Known {
        kind: "half-open connection",
        field: "SYN-ACK sent again",
        reason: "a SYN is answered with a cookie, and nothing is kept of it that could be sent again",
    },
];

/// Settings of a host that its own TCP follows, and so ours has to follow.
pub type Settings = &'static [(&'static str, &'static str)];

/// As a host has them.
pub const DEFAULTS: Settings = &[];
/// What a SYN shows of a host, otherwise.
pub const CHANGED: Settings = &[
    ("net.ipv4.tcp_ecn", "1"),
    ("net.ipv4.tcp_rmem", "4096 131072 16777216"),
    ("net.ipv4.ip_default_ttl", "57"),
    ("net.ipv6.conf.eth0.hop_limit", "58"),
];
/// A window that is smaller than others.
pub const SMALL: Settings = &[("net.ipv4.tcp_rmem", "4096 16384 65536")];

/// Two hosts with these settings.
///
/// # Panics
///
/// If that is not possible.
pub fn hosts(settings: Settings) -> Direct {
    let net = Direct::new().unwrap();
    net.offload("tx", false).unwrap();
    for host in [&net.a, &net.b] {
        // Ours are those of a host without timestamps.
        let timestamps = ("net.ipv4.tcp_timestamps", "0");
        for (key, value) in [timestamps].iter().chain(settings) {
            host.netns.sysctl(key, value).unwrap();
        }
    }
    net
}

/// An address that no host has.
pub fn nobody(family: Family, number: u8) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(10, 0, 0, number).into(),
        Family::V6 => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number.into()).into(),
    }
}

/// Listens with the TCP of a host.
///
/// # Panics
///
/// If that is not possible.
pub fn listen(host: &Host, family: Family, port: u16) -> TcpListener {
    let bound = host
        .netns
        .enter(|| TcpListener::bind(host.socket(family, port)));
    bound.unwrap().unwrap()
}

/// Attaches to a host with [`PORT`] as the owned port, and further arguments.
///
/// # Panics
///
/// If that is not possible.
pub fn attach(host: &Host, more: &[&str]) -> Attached {
    let port = PORT.to_string();
    let args = [&["--port", &port], more].concat();
    mode::TC.attach(host, &args).unwrap()
}

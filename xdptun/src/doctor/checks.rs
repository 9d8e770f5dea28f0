//! The checks by name.

/// Each check, and what it looks at. A name is the same in all versions.
pub const CHECKS: [(&str, &str); 53] = [
    (
        "accept-ra",
        "whether a host that forwards still gets its IPv6 routes from routers",
    ),
    (
        "attachment",
        "attachments whose interface is gone, or whose pins cannot be seen",
    ),
    (
        "back-end",
        "whether a route leads to each back end, and whether it takes a connection",
    ),
    (
        "bpffs",
        "whether a BPF file system is mounted, for the pins",
    ),
    (
        "btf",
        "whether the kernel describes its types, which `--veil` needs",
    ),
    (
        "capabilities",
        "whether this process may look at everything",
    ),
    (
        "clock",
        "whether the clock is synchronised, if there is a secret",
    ),
    (
        "conntrack",
        "whether connection tracking forgets tunnels before their keepalive",
    ),
    ("daemon", "whether the daemon of the tunnel runs"),
    (
        "destination-rules",
        "rules of netfilter that take packets to forwarded or outside ports",
    ),
    (
        "drops",
        "counters of drops, and of packets that are too big, that grow in a second",
    ),
    (
        "ephemeral-port",
        "whether the kernel may give an owned port to any socket",
    ),
    (
        "firewall",
        "rules of nftables and iptables-legacy that drop UDP of owned ports, on each hook",
    ),
    ("flows", "whether peers answer, and why not"),
    ("forwarding", "whether the kernel forwards packets"),
    ("fragments", "whether datagrams left in fragments"),
    ("gateway-daemon", "whether the daemon of the gateway runs"),
    (
        "gateway-hooks",
        "whether the programs of the gateway are on their hooks",
    ),
    ("gro", "whether merged segments can be told apart"),
    (
        "hooks",
        "whether the programs of the tunnel are on their hooks",
    ),
    (
        "inside-route",
        "whether inside hosts are reached by another interface",
    ),
    ("interface", "whether the interface is there and up"),
    (
        "jit",
        "whether the kernel translates programs for the processor",
    ),
    ("kernel", "whether the kernel is new enough"),
    (
        "lro",
        "whether the device merges segments so that they cannot be told apart again",
    ),
    (
        "masquerade",
        "rules of netfilter that translate inside hosts before xdptun does",
    ),
    (
        "memory-lock",
        "whether memory of programs counts against a limit",
    ),
    (
        "mtu",
        "whether IPv6 datagrams of any size fit, and what WireGuard inside can use",
    ),
    ("nat64-daemon", "whether the daemon of NAT64 runs"),
    (
        "nat64-dns64",
        "whether this host's resolvers make AAAA records for the prefix",
    ),
    ("nat64-hooks", "whether the program of NAT64 is on its hook"),
    (
        "nat64-masquerade",
        "whether a rule or `xdptun nat` gives the pool an address outside",
    ),
    ("nat64-pool", "whether the pool has room"),
    ("nat64-route", "whether prefix and pool lead to the device"),
    (
        "outside-address",
        "whether the outside address is this host's",
    ),
    (
        "outside-ports",
        "whether sockets of this host may use outside ports",
    ),
    ("policy-daemon", "whether the daemon of the policy runs"),
    (
        "policy-hooks",
        "whether the programs of the policy are on their hooks",
    ),
    (
        "policy-steps",
        "whether payloads were searched to their end",
    ),
    ("programs", "whether the kernel takes the programs"),
    ("ring-buffer", "whether the kernel has BPF ring buffers"),
    (
        "route",
        "whether routes lead to peers by an attached interface",
    ),
    (
        "rp-filter",
        "whether reverse path filtering drops what peers send",
    ),
    ("served-port", "sockets of this host on forwarded ports"),
    (
        "source-ports",
        "whether sockets of this host may use the source ports of sessions",
    ),
    (
        "tai-clock",
        "whether the kernel has the clock that secrets need",
    ),
    (
        "tc",
        "tc programs and filters of others: their place, and filters that drop",
    ),
    ("tcp-server", "TCP servers on owned ports"),
    ("tcx", "whether the kernel has TCX"),
    (
        "udp-gso",
        "whether programs that send many datagrams at once can use the interface",
    ),
    ("vlan", "VLANs on top of the interface"),
    ("wireguard-mtu", "whether WireGuard devices fit"),
    (
        "xdp",
        "XDP programs of others, and whether the driver takes XDP",
    ),
];

/// What no check looks at.
pub const NOT_LOOKED_AT: &str = "firewalls between the hosts, rules of bridges and ebtables, what eBPF \
    programs of others drop, conditions of rules other than ports, protocols, interfaces and states, \
    and what is attached, routed or filtered inside network namespaces of containers";

/// Whether there is a check of this name.
pub fn is_check(name: &str) -> bool {
    CHECKS.iter().any(|(check, _)| *check == name)
}

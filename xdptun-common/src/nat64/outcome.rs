//! Counters, and the fate of a packet with each outcome.

use crate::report::outcome::{counters, outcomes};

outcomes! {
    /// How a packet that is to be translated ended.
    Outcome, first 0;
    ToV4 "to_v4" ComeIn "IPv6 packets of clients, sent on as IPv4." "If it grows and `to_v6` does not, no answer comes back: nothing translates the source of the pool to an address that the network knows (`--iface`), the kernel does not forward, or its firewall drops.";
    ToV4Error "to_v4_error" ComeIn "ICMPv6 errors about packets to clients, sent on as ICMP." "";
    ToV4DropOutside "to_v4_drop_outside" Lose "IPv6 packets dropped because their source is in no network of `--inside`. The sender is told (ICMPv6)." "Name the network with `--inside`, if it is one of clients.";
    ToV4DropPrivate "to_v4_drop_private" Lose "IPv6 packets dropped because the well-known prefix may not stand before an IPv4 address that is not global (RFC 6052 section 3.1). The client is told (ICMPv6)." "Use a prefix of your own (`--prefix`), or `--allow-private`.";
    ToV4DropFull "to_v4_drop_full" Lose "IPv6 packets of clients that have no IPv4 address and got none, as no address of the pool was free. The client is told (ICMPv6)." "Give `--pool` a larger network.";
    ToV4DropShare "to_v4_drop_share" Lose "IPv6 packets of clients that got no IPv4 address, as too many have one that were never answered. The client is told (ICMPv6)." "If nothing is answered, see `to_v4`; else a host inside sends from many addresses: `xdptun sessions` shows which.";
    ToV4DropNetwork "to_v4_drop_network" Lose "IPv6 packets of clients that got no IPv4 address, as their network of 64 bits has as many as it may. The client is told (ICMPv6)." "If so many hosts are there, raise `--per-prefix`; else one of them sends from many addresses.";
    ToV4DropProtocol "to_v4_drop_protocol" Lose "IPv6 packets dropped because they are neither TCP, UDP nor ICMPv6 (RFC 6146 section 3.4)." "Another protocol needs a tunnel.";
    ToV4DropFragment "to_v4_drop_fragment" Lose "Fragments of ICMPv6 messages, dropped: their checksum needs a length that a fragment does not tell (RFC 7915 section 5.1)." "Send smaller pings.";
    ToV4DropMessage "to_v4_drop_message" Lose "ICMPv6 messages dropped because ICMP has none that says the same, or because they are about no packet that was translated." "";
    ToV4DropExtensions "to_v4_drop_extensions" Lose "IPv6 packets dropped because of an extension header that asks for a route, authenticates addresses, or stands behind that of a fragment." "The sender asks for it; send without.";
    ToV4DropDestination "to_v4_drop_destination" Lose "IPv6 packets on the device that are not for the prefix: multicasts of this host." "Nothing to do.";
    ToV4DropMalformed "to_v4_drop_malformed" Lose "IPv6 packets dropped because their length fields contradict each other or the packet." "Damaged or forged; if it goes on, look with tcpdump where they come from.";
    ToV4DropTooLong "to_v4_drop_too_long" Lose "IPv6 packets dropped because they are longer than IPv4 has numbers for." "Only super-packets of more than 65,535 bytes are (BIG TCP): `ip link set DEVICE gso_max_size 65536 gro_max_size 65536`.";
    ToV4DropAccess "to_v4_drop_access" Lose "IPv6 packets dropped because the kernel refused to let them be changed." "The kernel is short of memory.";
    ToV6 "to_v6" ComeIn "IPv4 packets to clients, sent on as IPv6." "";
    ToV6Error "to_v6_error" ComeIn "ICMP errors about packets of clients, sent on as ICMPv6." "";
    ToV6DropUnknown "to_v6_drop_unknown" Lose "IPv4 packets dropped because no client has their destination address." "Nothing to do: the answer came when the address was no more in use, or somebody tries addresses.";
    ToV6DropPrivate "to_v6_drop_private" Lose "IPv4 packets dropped because their source is not global and the prefix is the well-known one (RFC 6052 section 3.1)." "Use a prefix of your own (`--prefix`), or `--allow-private`.";
    ToV6DropProtocol "to_v6_drop_protocol" Lose "IPv4 packets dropped because they are neither TCP, UDP nor ICMP (RFC 6146 section 3.4)." "Another protocol needs a tunnel.";
    ToV6DropFragment "to_v6_drop_fragment" Lose "Fragments of ICMP messages, and first fragments of UDP without checksum, dropped: IPv6 needs a checksum over all of it (RFC 7915 sections 4.2 and 4.5)." "Send smaller pings; let the sender compute UDP's checksum.";
    ToV6DropMessage "to_v6_drop_message" Lose "ICMP messages dropped because ICMPv6 has none that says the same, or because they are about no packet that was translated." "";
    ToV6DropRedirect "to_v6_drop_redirect" Lose "ICMP redirects to clients dropped, as IPv6 has none that mean the same: those of this host when clients reach each other by IPv4 addresses." "Nothing to do; `sysctl -w net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.xdptun64.send_redirects=0` ends them.";
    ToV6DropMalformed "to_v6_drop_malformed" Lose "IPv4 packets dropped because their length fields contradict each other or the packet." "Damaged or forged; if it goes on, look with tcpdump where they come from.";
    ToV6DropTooLong "to_v6_drop_too_long" Lose "UDP datagrams without checksum dropped because they are longer than the 16 KiB that can be added up, and fragments because even their halves are too long for the way to clients." "Let the sender compute UDP's checksum; see that the route to the pool has its MTU (`ip route`).";
    ToV6DropAccess "to_v6_drop_access" Lose "IPv4 packets dropped because the kernel refused to let them be changed." "The kernel is short of memory.";
}

counters! {
    /// What is counted beside packets.
    Count, first Outcome::ALL.len() as u32;
    LeasesBegan "leases_began" "Clients that got an IPv4 address." "";
    LeasesAnswered "leases_answered" "Of these, the ones to which something was sent." "";
    Cut "fragments_cut" "IPv4 fragments that IPv6's headers made too long for the way to clients, and that went on as two." "";
    Refusals "refusals" "ICMPv6 errors sent to clients whose packet was refused." "";
}

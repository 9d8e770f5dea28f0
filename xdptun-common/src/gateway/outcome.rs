//! Counters, and the fate of a packet with each outcome.

use crate::report::outcome::{counters, outcomes};

outcomes! {
    /// How a packet that concerns the gateway ended.
    Outcome, first 0;
    InForwarded "in_forwarded" Pass "Packets to a listen address, sent on to a back end." "If it grows and `out_returned` does not, no answer comes back: the kernel does not forward, its firewall drops, the back end is down, or its answers take another way (`--source masquerade`).";
    InReturned "in_returned" Pass "Packets of back ends to a masqueraded source, sent on to the client." "";
    InTranslated "in_translated" Pass "Packets to an outside port, sent on to the inside host that it is bound to." "";
    InError "in_error" Pass "ICMP errors about packets of sessions that came in, sent on to the end that they concern." "";
    InHeld "in_held" Hold "Fragments that came before the first one of their datagram, which has the ports. They wait with the daemon for up to two seconds, and are counted once more when they go on." "If it grows much, the network reorders packets, or somebody sends fragments that have no first.";
    InDropFull "in_drop_full" Lose "Packets that would begin a session, dropped because the table of sessions is full; those of an inside host that calls another by its outside end also because there is no room for a binding. Open sessions go on. The inside host is told (ICMP)." "`xdptun sessions` shows what is open. For more room detach, and start with a larger `--max-sessions`; that ends all sessions.";
    InDropPorts "in_drop_ports" Lose "Packets that would begin a session, dropped because no source port was found free. An inside host that calls another by its outside end is told (ICMP)." "Give `--source` a larger range of ports; for inside hosts `--ports`.";
    InDropUnreachable "in_drop_unreachable" Lose "Packets dropped because no route leads to their back end, so that there is no address to masquerade them with." "Look at the route: `ip route get BACK-END`.";
    InDropClash "in_drop_clash" Lose "Connections dropped that a client opens to a back end directly, from a port from which it has one open to the listen address: the answers could not be told apart." "Nothing to do: the client tries another port.";
    InDropCut "in_drop_cut" Lose "Segments of clients whose connection was cut, because a reload or a take-over took its rule or back end away; the client gets RST." "`xdptun reload --drain` lets such connections go on until they end.";
    InDropFiltered "in_drop_filtered" Lose "Packets dropped that nobody asked for, to a port of `--ports`: no inside host is bound to it, or, with `--filtering address-and-port-dependent`, that host has sent nothing to their sender. Or they go to an address of NAT64's pool. They get no answer, so that two hosts behind NATs can open a connection to each other (RFC 5382 REQ-4)." "Nothing to do: scanners send them all the time.";
    InDropMalformed "in_drop_malformed" Lose "Packets dropped because their length fields contradict each other or the packet." "Damaged or forged; if it goes on, look with tcpdump where they come from.";
    InDropExtensions "in_drop_extensions" Lose "Packets dropped because an IPv6 extension header before the transport forbids that addresses change (routing, authentication)." "The sender asks for a route or authentication; send without.";
    InDropAccess "in_drop_access" Lose "Packets dropped because the kernel refused to let their headers be written." "The kernel is short of memory.";
    OutReturned "out_returned" Pass "Packets of back ends, sent to clients from the listen address." "";
    OutMasqueraded "out_masqueraded" Pass "Packets to back ends, sent from a source address of this host." "";
    OutTranslated "out_translated" Pass "Packets of inside hosts, sent from their outside port." "";
    OutError "out_error" Pass "ICMP errors about packets of sessions, sent from the listen address or, by an inside host, from the outside address." "";
    OutHeld "out_held" Hold "Fragments that were about to leave before the first one of their datagram. They wait with the daemon for up to two seconds, and are counted once more when they go on." "If it grows much, the network of the inside hosts or back ends reorders packets.";
    OutDropFull "out_drop_full" Lose "Packets of inside hosts that would begin a session, dropped because there are as many sessions or bindings as there is room for; what is open goes on. The host is told (ICMP)." "`xdptun sessions` shows what is open. For more room detach, and start with a larger `--max-sessions` or `--max-bindings`; that ends all sessions.";
    OutDropPorts "out_drop_ports" Lose "Packets of inside hosts dropped because no outside port was found free. The host is told (ICMP)." "Give `--ports` a larger range.";
    OutDropHost "out_drop_host" Lose "Packets of an inside host dropped because as many of its ports are bound as one host may have. The host is told (ICMP)." "Look what the host does (`xdptun sessions`), or raise `--max-bindings-per-host`.";
    OutDropAddress "out_drop_address" Lose "Packets of inside hosts dropped because the interface has no IPv4 address, or not yet. A host that would begin a session is told (ICMP); connections that are open go on once the address is back." "Look at the address: `ip address`; a DHCP or PPP client sets it.";
    OutDropClash "out_drop_clash" Lose "Packets of inside hosts dropped because their answers could not be told from those of a forwarded session with the same outside port." "Nothing to do: the host tries another port.";
    OutDropCut "out_drop_cut" Lose "Packets of back ends in sessions that were cut, because a reload or a take-over took their rule or back end away; of a connection the back end gets RST." "`xdptun reload --drain` lets such sessions go on until they end.";
    OutDropStray "out_drop_stray" Lose "TCP segments of inside hosts dropped because they belong to no connection that is known and begin none: it was silent for too long, or the outside address has changed since it began. The host gets RST." "If connections are silent for long, raise `--tcp-timeout`, or let their programs send keepalives.";
    OutDropUntranslated "out_drop_untranslated" Lose "Other packets of inside hosts dropped because they cannot be translated, and must not leave with an inside address: neither TCP, UDP nor ICMP echo, an ICMP error about no session, a fragment that came before its first and could not wait, a multicast, a damaged header." "Look with tcpdump what it is; a protocol without ports needs a tunnel.";
    OutDropRedirect "out_drop_redirect" Lose "ICMP redirects of this host about forwarded packets, dropped: the client must go on to send to the listen address." "";
    OutDropMalformed "out_drop_malformed" Lose "Packets dropped on their way out because their length fields contradict each other or the packet." "Some program or host writes wrong lengths; look for it with tcpdump.";
    OutDropExtensions "out_drop_extensions" Lose "Packets dropped on their way out because an IPv6 extension header forbids that addresses change." "The sender asks for a route or authentication; send without.";
    OutDropAccess "out_drop_access" Lose "Packets dropped on their way out because the kernel refused to let their headers be written." "The kernel is short of memory.";
}

counters! {
    /// What is counted of sessions.
    Count, first Outcome::ALL.len() as u32;
    Began "sessions_began" "Sessions begun: a first packet to a listen address, of an inside host, or to one that is bound." "";
    Proven "sessions_proven" "Sessions that both ends have used, so that they last." "";
    Reopened "sessions_reopened" "Connections opened anew between the ends of one that had ended." "";
    Bound "bindings_began" "Ends of inside hosts that were bound to an outside port." "";
}

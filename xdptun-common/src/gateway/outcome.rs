//! Counters, and the fate of a packet with each outcome.

use crate::report::outcome::{counters, outcomes};

outcomes! {
    /// How a packet that concerns the gateway ended.
    Outcome, first 0;
    InForwarded "in_forwarded" Pass "Packets to a listen address, sent on to a back end." "If it grows and `out_returned` does not, no answer comes back: the kernel does not forward, its firewall drops, the back end is down, or its answers take another way (`--source masquerade`).";
    InReturned "in_returned" Pass "Packets of back ends to a masqueraded source, sent on to the client." "";
    InError "in_error" Pass "ICMP errors about forwarded packets that came in, sent on to the end that they concern." "";
    InDropFull "in_drop_full" Lose "Packets dropped because there are as many sessions as the table has room for; sessions that are open go on." "`xdptun sessions` shows what is open. For more room detach, and start with a larger `--max-sessions`; that ends all sessions.";
    InDropPorts "in_drop_ports" Lose "Packets dropped because no source port was found free." "Give `--source` a larger range of ports, or one more address.";
    InDropUnreachable "in_drop_unreachable" Lose "Packets dropped because no route leads to their back end, so that there is no address to masquerade them with." "Look at the route: `ip route get BACK-END`.";
    InDropClash "in_drop_clash" Lose "Connections dropped that a client opens to a back end directly, from a port from which it has one open to the listen address: the answers could not be told apart." "Nothing to do: the client tries another port.";
    InDropMalformed "in_drop_malformed" Lose "Packets dropped because their length fields contradict each other or the packet." "Damaged or forged; if it goes on, look with tcpdump where they come from.";
    InDropExtensions "in_drop_extensions" Lose "Packets dropped because an IPv6 extension header before the transport forbids that addresses change (routing, authentication)." "The sender asks for a route or authentication; send without.";
    InDropAccess "in_drop_access" Lose "Packets dropped because the kernel refused to let their headers be written." "The kernel is short of memory.";
    OutReturned "out_returned" Pass "Packets of back ends, sent to clients from the listen address." "";
    OutMasqueraded "out_masqueraded" Pass "Packets to back ends, sent from a source address of this host." "";
    OutError "out_error" Pass "ICMP errors about forwarded packets that left, sent from the listen address." "";
    OutDropRedirect "out_drop_redirect" Lose "ICMP redirects of this host about forwarded packets, dropped: the client must go on to send to the listen address." "";
    OutDropMalformed "out_drop_malformed" Lose "Packets dropped on their way out because their length fields contradict each other or the packet." "Some program or host writes wrong lengths; look for it with tcpdump.";
    OutDropExtensions "out_drop_extensions" Lose "Packets dropped on their way out because an IPv6 extension header forbids that addresses change." "The sender asks for a route or authentication; send without.";
    OutDropAccess "out_drop_access" Lose "Packets dropped on their way out because the kernel refused to let their headers be written." "The kernel is short of memory.";
}

counters! {
    /// What is counted of sessions.
    Count, first Outcome::ALL.len() as u32;
    Began "sessions_began" "Sessions begun: a first packet to a listen address." "";
    Proven "sessions_proven" "Sessions that both ends have used, so that they last." "";
    Reopened "sessions_reopened" "Connections opened anew between the ends of one that had ended." "";
}

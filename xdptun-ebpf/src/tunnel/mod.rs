//! The tunnel: datagrams leave as segments, and segments come back as datagrams.
//!
//! | file | what it does |
//! |---|---|
//! | [`admission`] | runs the handshake by the rules of this host |
//! | [`answers`] | whether an answer may be sent now |
//! | [`calls`] | TCP connections from owned ports, of this host and of hosts behind it |
//! | [`cookie`] | initial sequence numbers |
//! | [`defaults`] | what a TCP connection of this host begins with |
//! | [`disguise`] | a datagram becomes a segment |
//! | [`egress`] | what leaves: disguises it, opens flows, sends what the daemon asks for |
//! | [`events`] | tells the daemon of waiting datagrams, and of changes of flows |
//! | [`fast`] | data of established flows, in one piece |
//! | [`fragments`] | fragments of datagrams, each in a segment |
//! | [`group`] | what the interfaces have in common, noted for the next process |
//! | [`icmp`] | ICMP errors, received and sent |
//! | [`ingress`] | what arrives: runs the handshake, answers, restores |
//! | [`join`] | restored datagrams that go up by way of GRO |
//! | [`limits`] | how many answers may leave and flows may be opened in a second |
//! | [`merged`] | keeps the order of segments where GRO has merged some |
//! | [`proof`] | whether a caller knows the secret |
//! | [`reply`] | writes SYN, SYN-ACK, ACK, FIN and RST |
//! | [`restore`] | a segment becomes a datagram |
//! | [`rules`] | which ports and peers are ours |
//! | [`scope`] | which packets a capture copies |
//! | [`sent`] | segments that left lately, which an ICMP error has to quote |
//! | [`share`] | who may still open a flow |
//! | [`shift`] | moves a payload behind a TCP header |
//! | [`table`] | the flow table: look-ups, states, and what flows count |
//! | [`veil`] | hides payloads, and pads short ones |
//! | [`verdict`] | what a decision makes of the packet, and what the entry point does next |
//! | [`verify`] | addresses and checksums, before the handshake sees a segment |
//! | [`vlan`] | datagrams behind VLAN tags |
//! | [`xdp`] | restores data of established flows before tc |

pub mod admission;
pub mod answers;
pub mod calls;
pub mod cookie;
pub mod defaults;
pub mod disguise;
pub mod egress;
pub mod events;
pub mod fast;
pub mod fragments;
pub mod group;
pub mod icmp;
pub mod ingress;
pub mod join;
pub mod limits;
pub mod merged;
pub mod proof;
pub mod reply;
pub mod restore;
pub mod rules;
pub mod scope;
pub mod sent;
pub mod share;
pub mod shift;
pub mod table;
pub mod veil;
pub mod verdict;
pub mod verify;
pub mod vlan;
pub mod xdp;

//! The gateway: packets to this host go on to other hosts, and those of hosts behind it leave
//! with its address; their answers come back.
//!
//! | file | what it does |
//! |---|---|
//! | [`at_hand`] | what is known of the packet at hand |
//! | [`process`] | a packet at a hook: finds its session and translates it |
//! | [`open`] | the first packet of a session: rules, back ends, the session's entries |
//! | [`inside`] | the first packet of a session of an inside host (NAPT44) |
//! | [`nat`] | what is translated for inside hosts |
//! | [`bindings`] | which inside end has which outside port |
//! | [`source`] | the source address and port of a masqueraded session |
//! | [`sessions`] | the table: look-ups, what is seen of a session, which ones last |
//! | [`rewrite`] | changes an address and a port in a packet |
//! | [`cut`] | sessions that user space has ended |
//! | [`fragments`] | fragments without ports follow the one with them |
//! | [`errors`] | ICMP errors about translated packets |
//! | [`requests`] | what the daemon is asked: to hold fragments, to answer packets that are refused |
//! | [`limits`] | how often |
//! | [`rules`] | what is forwarded, and to where |

pub mod at_hand;
pub mod bindings;
pub mod cut;
pub mod errors;
pub mod fragments;
pub mod inside;
pub mod limits;
pub mod nat;
pub mod open;
pub mod process;
pub mod requests;
pub mod rewrite;
pub mod rules;
pub mod sessions;
pub mod source;

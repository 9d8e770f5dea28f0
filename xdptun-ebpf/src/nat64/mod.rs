//! NAT64: packets of IPv6-only clients as packets of IPv4, and the other way.
//!
//! The programs run on a device of their own, to which the prefix and the pool are routed. A packet
//! that leaves by it comes in by it again, as one of the other version, and the kernel routes it on.
//!
//! | file | what it does |
//! |---|---|
//! | [`translator`] | what is translated |
//! | [`leases`] | which client has which IPv4 address |
//! | [`step`] | what comes of a packet, as a number |
//! | [`to_v4`] | a packet of IPv6 |
//! | [`to_v6`] | a packet of IPv4 |
//! | [`cut`] | a fragment that IPv6's headers make too long |
//! | [`errors`] | ICMP errors, with the packet inside |
//! | [`rewrite`] | the headers in a packet, the checksum of its transport |
//! | [`refuse`] | tells a client that its packet was refused |

pub mod cut;
pub mod errors;
pub mod leases;
pub mod refuse;
pub mod rewrite;
pub mod step;
pub mod to_v4;
pub mod to_v6;
pub mod translator;

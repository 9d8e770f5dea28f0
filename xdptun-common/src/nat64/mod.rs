//! Translation between IPv6 and IPv4, without state: addresses (RFC 6052), headers and ICMP
//! messages (RFC 7915).

pub mod address;
pub mod header;
pub mod message;

//! What the kernel and the user side of xdptun share, free of I/O.
//!
//! Everything here is a pure function or plain data, so it runs under unit
//! tests and proptest on the build machine and, compiled for BPF, in the kernel:
//!
//! * [`address`], [`ports`], [`checksum`], [`wire`]: addresses, sets of ports,
//!   one's-complement arithmetic (RFC 1071, RFC 1624), and headers as they lie in a packet;
//! * [`parse`], [`quote`]: which transport segment a packet or an ICMP error holds, and
//!   where;
//! * [`flow`]: keys, sequence numbers and times of flows;
//! * [`report`]: copies of packets and counters, from the programs to user space;
//! * [`attachment`]: what user space notes of an attachment, for the process after it;
//! * [`member`]: the interfaces that share programs, and how a program finds the one at hand;
//! * [`global`]: names of read-only variables;
//! * [`again`]: marks of packets that pass a hook again, or that xdptun itself made;
//! * [`count`]: a function for the tests, which only counts;
//! * [`nat64`]: packets of IPv6 as packets of IPv4, and the other way, and who has which address;
//! * [`policy`]: rules about payloads, and the search for their patterns;
//! * [`tunnel`]: the fake connection, its proofs and limits, and what becomes of a packet.
//!
//! These are rooms: each uses only those before it.
//!
//! Values that cross the kernel boundary keep addresses and ports as
//! big-endian byte arrays and have no padding, so that neither byte order nor
//! layout can differ between the sides. Numbers that only the two sides use
//! (counters, times, sequence numbers) are native integers.
#![cfg_attr(not(test), no_std)]

pub mod address;
pub mod again;
pub mod attachment;
pub mod checksum;
pub mod count;
pub mod flow;
pub mod gateway;
pub mod global;
pub mod member;
pub mod nat64;
pub mod parse;
mod plain;
pub mod policy;
pub mod ports;
pub mod quote;
pub mod report;
pub mod siphash;
pub mod tunnel;
pub mod wire;

pub use plain::{Plain, bytes_of, read_plain};
pub(crate) use plain::{from_raw, plain};

//! Packets through the kernel programs, one at a time, without a network.
//!
//! `BPF_PROG_TEST_RUN` runs a loaded program on a packet and gives back the
//! verdict and the packet after it. A test is a table of [`Row`]s; a row says
//! what goes in and *all* that comes out: verdict, bytes, mark, counters, flow
//! table, events for the daemon. What it does not name must not change.
//!
//! | module | what it holds |
//! |---|---|
//! | [`packet`] | builds frames field by field; checksums by `etherparse` |
//! | [`icmp`] | ICMP messages, and what they quote |
//! | [`path`] | the two hosts of all tests, and their flow |
//! | [`moment`] | the kernel's coarse clock, which a row knows exactly |
//! | [`program`] | the programs, what they are told, and what goes with a packet |
//! | [`kernel`] | loads the programs, fills and reads their maps, runs them |
//! | [`counters`] | reads all counters at once |
//! | [`case`] | one run and what it must lead to; runs tables |
//! | [`fuzz`] | random packets against rules, rather than rows |
//! | [`gateway`] | the same for the programs of the gateway: conversations rather than rows |
//! | [`policy`] | the programs of the policy |
//! | [`nat64`] | the same for the program of NAT64 |
//! | [`diff`] | what differs, for people |

pub mod case;
pub mod counters;
pub mod diff;
pub mod fuzz;
pub mod gateway;
pub mod icmp;
pub mod kernel;
pub mod moment;
pub mod nat64;
pub mod packet;
pub mod path;
pub mod policy;
pub mod program;
pub mod stack;
pub mod veil;

pub use case::{Case, Row, check, row};
pub use icmp::Message;
pub use kernel::{Datapath, Limited};
pub use moment::Moment;
pub use packet::{Packet, flags};
pub use path::{Family, Path};
pub use program::{Config, Program, Skb};

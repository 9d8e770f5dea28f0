//! The laboratory: network namespaces, links, captures and processes that the
//! end-to-end tests, the demo and the benchmarks share.
//!
//! Nothing here touches the network of the machine: all traffic stays inside
//! namespaces this crate makes. Whatever it makes is removed on success, on
//! failure (drop) and on SIGINT, SIGTERM or SIGHUP ([`cleanup`]).

pub mod bpf;
pub mod burst;
pub mod capture;
pub mod cgroup;
pub mod checksum;
pub mod cleanup;
pub mod command;
pub mod content;
pub mod cpu;
pub mod crowd;
pub mod document;
pub mod extent;
pub mod link;
pub mod machine;
pub mod nat64;
pub mod netns;
pub mod numbered;
mod packet_socket;
pub mod path;
pub mod privilege;
pub mod process;
pub mod relay;
pub mod scratch;
pub mod secret;
pub mod seeded;
pub mod segment;
pub mod sockopt;
pub mod stats;
pub mod stop;
pub mod tap;
pub mod timestamps;
pub mod topology;
pub mod udp;
pub mod vnet;
pub mod wait;
pub mod workspace;
pub mod xdptun;

pub use capture::{Capture, Frame};
pub use netns::Netns;
pub use process::Process;
pub use relay::{Carried, Relay, Side};
pub use stats::WireStats;
pub use tap::{Kind, Offload};
pub use topology::{Direct, Family, Host, Inside, Multihomed, Relayed, Routed, Served, Uplinked};
pub use xdptun::Attached;

//! HTTP/3 between two hosts: the other job of xdptun, after WireGuard.
//!
//! QUIC stacks hand the kernel many datagrams in one send (UDP GSO), look for
//! the largest datagram the path takes, and check all they receive, so that a
//! transfer shows most of what a disguise can get wrong.
//!
//! | module | what it gives |
//! |---|---|
//! | [`report`] | what the client says about its downloads |
//! | [`scenario`] | the programs on two hosts of the laboratory |
//! | [`server`], [`files`] | the server, and the folder it serves |
//! | [`client`], [`target`] | the client, and the URLs it takes |
//! | [`tls`], [`socket`], [`cli`] | what both ends share |

pub mod report;
pub mod scenario;

#[cfg(feature = "programs")]
pub mod cli;
#[cfg(feature = "programs")]
pub mod client;
#[cfg(feature = "programs")]
pub mod files;
#[cfg(feature = "programs")]
pub mod server;
#[cfg(feature = "programs")]
pub mod socket;
#[cfg(feature = "programs")]
pub mod target;
#[cfg(feature = "programs")]
pub mod tls;

pub use report::Report;
pub use scenario::Scenario;

/// The UDP port of the server, which xdptun disguises.
pub const PORT: u16 = 8000;

//! What any function needs of this host: its interface, addresses, clock and sockets, counters,
//! captures, frames for the daemon, the growth of tables, limits, redirects, marks of these, the
//! splitter, and the kernel's verdicts.

pub mod again;
pub mod attachment;
pub mod capture;
pub mod clock;
pub mod counters;
pub mod frame;
pub mod growth;
pub mod interface;
pub mod local;
pub mod rate_limit;
pub mod redirect;
pub mod socket;
pub mod split;
pub mod verdict;

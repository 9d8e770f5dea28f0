//! Packets to this host that go on to other hosts.

mod crowd;
mod forward;
mod reload;

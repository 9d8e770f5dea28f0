//! Packets to this host that go on to other hosts, and those of hosts behind it.

mod clients;
mod crowd;
mod cut;
mod forward;
mod nat44;
mod nat64;
mod reload;

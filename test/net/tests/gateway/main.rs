//! Packets to this host that go on to other hosts.

mod forward;

//! IPv6-only clients reach IPv4.

mod addresses;
mod attached;
mod carried;
mod crowd;
mod disguised;
mod paths;
mod reload;

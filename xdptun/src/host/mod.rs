//! This host: its interfaces, addresses, ports and clock, and what xdptun needs of its
//! kernel.

pub mod addresses;
pub mod clock;
pub mod ephemeral;
pub mod ethtool;
pub mod first_address;
pub mod forwarding;
pub mod frame_socket;
pub mod interface;
pub mod listeners;
pub mod mtu;
pub mod netlink;
pub mod netns;
pub mod ports;
pub mod preflight;
pub mod proc;
pub mod random;
pub mod route;
pub mod sysctl;
pub mod words;

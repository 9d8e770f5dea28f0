//! Protocol headers as they lie in a packet.
//!
//! Every header is a structure of byte arrays, big-endian in the bytes and native
//! in the accessors, without padding; the size is checked at compile time. The
//! alignment is that of the widest field, so that the compiler copies it in words
//! on BPF: it would split an unaligned read into bytes.

mod ethernet;
mod icmp;
mod ip;
mod tcp;
mod transport;
mod udp;
mod wireguard;

pub use ethernet::{EtherType, EthernetHeader, LINK_ETHERNET, LINK_NONE};
pub use icmp::{Echo, Icmp, IcmpHeader};
pub use ip::{
    Fragment, FragmentHeader, Ip, IpFields, IpVersion, Ipv4Header, Ipv6Header, Part, Protocol,
};
pub use tcp::{Flags, TcpFields, TcpHeader};
pub use udp::UdpHeader;
pub use wireguard::WireGuardData;

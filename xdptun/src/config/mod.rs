//! The configuration: a file, or the arguments of `xdptun attach`, `xdptun forward`, `xdptun nat`,
//! `xdptun nat64` or `xdptun policy`.

mod file;
mod forward;
mod interface;
mod nat;
mod nat64;
mod peer;
mod policy;
mod secrets;
mod time;
mod values;
mod veil;

pub use file::{Config, DEFAULT_PATH, SAMPLE};
pub use forward::{
    Forward, ForwardError, Listen, Protocols, Source, To, check_all, parse_table, read_table,
};
pub use interface::{IDLE_TIMEOUT, InterfaceConfig, KEEPALIVE};
pub use nat::{Filtering, Inside, MAX_INSIDE, Nat, NatError, outside_address};
pub use nat64::{ClientNetwork, Fixed, MAX_CLIENT_NETWORKS, Nat64, Nat64Error, Pool, Prefix};
pub use peer::{Peer, PeerConfig, PeerError, network, peers_fit};
pub use policy::{
    Offset, Pattern, PolicyAction, PolicyDirection, PolicyError, PolicyProtocol, PolicyRule,
    RuleName, addresses_of, check_policies,
};
pub use secrets::Secrets;
pub use time::{Seconds, TcpTimeout, TcpTransitoryTimeout, Time, UdpTimeout, parse_duration};
pub use values::{
    Compat, DEFAULT_MAX_FLOWS, GroChoice, IngressChoice, LogLevel, MaxBindings, MaxBindingsPerHost,
    MaxFlows, MaxSessions, Mtu, PerPrefix, TcChoice, UpTo,
};
pub use veil::Veil;

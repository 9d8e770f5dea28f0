//! The tunnel: UDP datagrams that cross the network as TCP segments.

pub mod counters;
pub mod daemon;
mod function;
mod keys;
mod load;
pub mod maps;
mod pinned;
mod plan;
pub mod resolve;
pub(crate) mod secret;
pub mod settings;
mod sizes;
mod tcp_defaults;

pub use function::Tunnel;
pub use keys::Keys;
pub use load::try_load;
pub use plan::Plan;
pub use settings::Settings;

use crate::group;

/// What the tunnel has attached to a group of interfaces.
pub type Attached = group::Attached<Tunnel>;
/// The programs of the tunnel for one link layer.
pub type Loaded = group::Loaded<Tunnel>;
/// What the tunnel has attached to one interface.
pub type Pinned = group::pinned::Pinned<Tunnel>;

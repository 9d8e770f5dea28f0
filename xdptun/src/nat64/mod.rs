//! NAT64: IPv6-only clients reach IPv4, and are reached from there at addresses of a pool.

mod daemon;
mod function;
mod load;
pub mod maps;
mod plan;
pub mod preflight;
pub mod session;
mod sweep;

pub use function::Nat64;
pub use plan::{DEVICE, Plan, Settings};

use crate::group;

/// What NAT64 has attached to its device.
pub type Attached = group::Attached<Nat64>;
/// The same, as another process finds it.
pub type Pinned = group::pinned::Pinned<Nat64>;

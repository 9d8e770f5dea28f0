//! The gateway: packets to this host go on to other hosts, and those of hosts behind it leave
//! with its address; their answers come back.

pub mod bindings;
pub mod cut;
mod daemon;
pub mod follow;
mod function;
mod load;
pub mod maps;
mod plan;
pub mod preflight;
pub mod present;
pub mod requests;
mod rules;
pub mod session;
pub mod settings;
mod surroundings;
mod sweep;

pub use function::Gateway;
pub use plan::Plan;
pub use settings::Settings;

use crate::group;

/// What the gateway has attached to a group of interfaces.
pub type Attached = group::Attached<Gateway>;
/// What the gateway has attached to one interface.
pub type Pinned = group::pinned::Pinned<Gateway>;

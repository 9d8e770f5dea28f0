//! The policy: the payload of packets is searched for the patterns of rules.

mod daemon;
mod function;
mod load;
pub mod maps;
mod plan;
mod rules;

pub use function::Policy;
pub use plan::Plan;
pub use rules::PresentRule;

use crate::group;

/// What the policy has attached to a group of interfaces.
pub type Attached = group::Attached<Policy>;
/// What the policy has attached to one interface.
pub type Pinned = group::pinned::Pinned<Policy>;

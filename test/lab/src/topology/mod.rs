//! Small networks made of namespaces.

mod direct;
mod host;
mod relayed;
mod routed;

pub use direct::Direct;
pub use host::{Family, Host};
pub use relayed::Relayed;
pub use routed::{Dropped, Routed, Router};

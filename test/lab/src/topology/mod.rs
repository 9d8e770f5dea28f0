//! Small networks made of namespaces.

mod direct;
mod host;
mod routed;

pub use direct::Direct;
pub use host::{Family, Host};
pub use routed::{Dropped, Routed, Router};

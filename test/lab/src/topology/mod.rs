//! Small networks made of namespaces.

mod direct;
mod host;
mod relayed;
mod routed;
mod router;

pub use direct::Direct;
pub use host::{Family, Host};
pub use relayed::Relayed;
pub use routed::Routed;
pub use router::{Dropped, Router};

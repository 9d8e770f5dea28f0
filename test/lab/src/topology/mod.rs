//! Small networks made of namespaces.

mod direct;
mod host;
mod inside;
mod multihomed;
mod relayed;
mod routed;
mod router;
mod served;
mod uplinked;

pub use direct::Direct;
pub use host::{Family, Host};
pub use inside::Inside;
pub use multihomed::Multihomed;
pub use relayed::Relayed;
pub use routed::Routed;
pub use router::{Dropped, Router};
pub use served::Served;
pub use uplinked::Uplinked;

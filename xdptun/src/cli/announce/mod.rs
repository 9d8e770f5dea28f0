//! The lines that `xdptun attach`, `xdptun forward` and `xdptun run` print when they work on an
//! interface. The last one begins with `ready:`.

pub mod gateway;
pub mod nat64;
pub mod policy;
pub mod tunnel;

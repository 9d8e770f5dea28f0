//! Debian: its names for processors, its packages, and a system made of them.
//!
//! Nothing here needs root but [`system`].

pub mod apt;
mod arch;
pub mod system;

pub use apt::{Apt, unpack};
pub use arch::Arch;

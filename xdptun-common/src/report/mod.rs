//! What the programs tell user space as it happens.

pub mod copy;
pub mod event;

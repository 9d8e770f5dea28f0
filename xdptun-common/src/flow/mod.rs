//! What flows of any function have: a key, sequence numbers, times.

pub mod key;
pub mod seq;
pub mod tick;

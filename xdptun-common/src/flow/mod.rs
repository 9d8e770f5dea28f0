//! What flows of any feature have: a key, sequence numbers, times.

pub mod key;
pub mod seq;
pub mod tick;

//! Words of map values that several CPUs change at once.

pub mod word;

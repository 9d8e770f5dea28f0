//! What entries of any table of flows are made of.

pub mod word;

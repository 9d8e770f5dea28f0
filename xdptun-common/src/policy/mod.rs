//! Literal patterns in the payload of single packets: rules, the tables that patterns become, and
//! the search.
//!
//! [`compile`] makes a [`Table`](table::Table) of patterns; [`search`] looks for them in a payload
//! that is read chunk by chunk. Both are pure, and the same code runs in the kernel.

pub mod compile;
pub mod event;
pub mod outcome;
pub mod rule;
pub mod search;
pub mod table;

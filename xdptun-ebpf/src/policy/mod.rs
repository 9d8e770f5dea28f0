//! The policy: the payload of a packet is searched for the patterns of rules.
//!
//! | file | what it does |
//! |---|---|
//! | `process` | what comes of a packet: its rules one after the other |
//! | `at_hand` | what is known of the packet, and the chunk of its payload that is searched |
//! | `rules` | the maps of rules, and the hits of each |
//! | `scan` | the search |
//! | `events` | what the daemon is told |

pub mod at_hand;
pub mod events;
pub mod process;
pub mod rules;
pub mod scan;

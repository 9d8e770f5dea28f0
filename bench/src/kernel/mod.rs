//! What the kernel tells about programs, and the small programs that price its
//! helpers.

mod fdinfo;
mod load;
mod maps;
mod micro;
mod programs;

pub use maps::map_memory;
pub use micro::{Micro, PRICED};
pub use programs::{Counting, Programs};

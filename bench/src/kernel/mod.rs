//! The kernel's data about programs, and the small programs that measure the cost of its
//! helpers.

mod fdinfo;
mod load;
mod maps;
mod micro;
mod programs;
mod test_run;

pub use maps::map_memory;
pub use micro::{Micro, PRICED};
pub use programs::{Counting, Programs};
pub use test_run::time_of;

//! This process: its signals, its privileges, and its service manager.

pub mod memory;
pub mod notify;
pub mod privileges;
pub mod signals;
pub mod task;

//! This process: its signals, its privileges, and its service manager.

pub mod notify;
pub mod privileges;
pub mod signals;
pub mod task;

//! xdptun's packages: what is in them, and what they do to a system.

mod alpine;
mod arch;
mod contents;
mod image;
mod install;
mod openwrt;
mod rpm;
mod service;

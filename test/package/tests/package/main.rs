//! xdptun's packages: what is in them, and what they do to a system.

mod contents;
mod image;
mod install;
mod service;

//! The commands that start, check, change and end attachments.

mod cli;
mod notify;
mod service;
mod states;

//! The commands that start, check, change and end attachments.

mod cli;
mod groups;
mod hangup;
mod notify;
mod service;
mod states;

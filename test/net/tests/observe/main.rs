//! The commands and interfaces that show what xdptun does.

mod capture;
mod doctor;
mod doctor_gateway;
mod flows;
mod json;
mod metrics;
mod watch;

//! The commands and interfaces that show what xdptun does.

mod capture;
mod doctor;
mod doctor_faults;
mod doctor_gateway;
mod doctor_nat;
mod doctor_nat64;
mod flows;
mod gateway;
mod json;
mod metrics;
mod prometheus;
mod watch;
mod width;

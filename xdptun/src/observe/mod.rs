//! Status, rates, metrics and captures of attachments.

pub mod capture;
pub mod metrics;
pub mod nat64;
pub mod policy;
pub mod rates;
pub mod status;

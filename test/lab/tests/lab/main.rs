//! The laboratory itself.

mod lab;
mod relay;

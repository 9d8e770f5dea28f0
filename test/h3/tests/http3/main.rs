//! HTTP/3 between the programs of this package.

mod disguised;
mod gateway;
mod programs;

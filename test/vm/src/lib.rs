//! What the suites share that run in guests only (`cargo xtask vm`).

pub mod numbered;

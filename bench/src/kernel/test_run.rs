//! One program on one packet, many times (`BPF_PROG_TEST_RUN`).
//!
//! The kernel reuses the packet between runs, so this is only for packets that a program
//! does not change.

use anyhow::{Context, Result, ensure};
use aya::programs::ProgramInfo;

use super::load;

/// How often.
const REPEAT: u32 = 200_000;

/// Nanoseconds of one run, as the kernel reports them.
pub fn time_of(program: &ProgramInfo, packet: &[u8]) -> Result<f64> {
    let program = program.fd().context("the program is gone")?;
    let (after, nanoseconds) = load::test_run(program, packet, REPEAT)?;
    ensure!(
        after == packet,
        "the program changes the packet, so that only the first run counts"
    );
    Ok(f64::from(nanoseconds))
}

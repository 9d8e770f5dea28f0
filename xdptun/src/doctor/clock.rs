//! The wall clock, which must agree between hosts with a secret.

use std::io;

use super::Finding;
use crate::error::{Context as _, Result};

const CHECK: &str = "clock";

pub fn check() -> Result<Finding> {
    Ok(judge(is_synchronised()?))
}

/// Whether the clock is synchronised, as the kernel was told (`adjtimex(2)`).
fn is_synchronised() -> Result<bool> {
    // SAFETY: all-zero bytes are a valid `timex`, which asks for no change.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is the kernel's and outlives the call.
    let state = unsafe { libc::adjtimex(&raw mut timex) };
    if state < 0 {
        return Err(io::Error::last_os_error()).context("adjtimex");
    }
    Ok(state != libc::TIME_ERROR && timex.status & libc::STA_UNSYNC == 0)
}

fn judge(synchronised: bool) -> Finding {
    if synchronised {
        return Finding::ok(CHECK, "the clock is synchronised, as `--secret` needs it");
    }
    let what = "the clock is not synchronised; with `--secret` it must be within three minutes \
                of the peer's";
    Finding::warn(CHECK, what).mend("timedatectl set-ntp true")
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn a_clock_that_runs_free_is_told() {
        assert_eq!(judge(true).level, Level::Ok);
        assert_eq!(judge(false).level, Level::Warn);
        assert!(matches!(check().unwrap().level, Level::Ok | Level::Warn));
    }
}

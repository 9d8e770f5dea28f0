//! Waiting for a condition with a deadline, never for a fixed time.

use std::env::VarError;
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How often a condition is looked at: far below what a person or a protocol
/// timer notices, far above what would load the machine.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The environment variable with the number that every limit is multiplied by.
///
/// Limits are made for a machine that is idle; an emulated one is many times
/// slower. They tell a failure from a success only when nothing happens at all,
/// so a longer one weakens no test.
pub const FACTOR: &str = "XDPTUN_TIME_FACTOR";

/// A limit as it holds on this machine; an error if [`FACTOR`] is no number.
pub fn stretched(limit: Duration) -> Result<Duration> {
    static HERE: LazyLock<Option<u32>> = LazyLock::new(|| match std::env::var(FACTOR) {
        Ok(text) => text.parse().ok().filter(|factor| *factor >= 1),
        Err(VarError::NotPresent) => Some(1),
        Err(VarError::NotUnicode(_)) => None,
    });
    let factor = HERE.with_context(|| format!("{FACTOR} is not a whole number from 1 on"))?;
    Ok(limit * factor)
}

/// Waits until `condition` holds; an error names `what` was waited for.
pub fn until(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) -> Result<()> {
    until_some(limit, what, || Ok(condition().then_some(())))
}

/// Waits until `probe` yields a value; an error of `probe` ends the wait.
pub fn until_some<T>(
    limit: Duration,
    what: &str,
    mut probe: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let limit = stretched(limit)?;
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = probe()? {
            return Ok(value);
        }
        if Instant::now() >= deadline {
            bail!("waited {limit:?} in vain for {what}");
        }
        thread::sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_did_not_happen() {
        let error = until(Duration::ZERO, "the end of the world", || false).unwrap_err();
        assert_eq!(
            error.to_string(),
            "waited 0ns in vain for the end of the world"
        );
    }

    #[test]
    fn looks_at_least_once_even_with_no_time() {
        until(Duration::ZERO, "a true condition", || true).unwrap();
    }
}

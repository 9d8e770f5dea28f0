//! When to tell that somebody refuses what we send.

use std::time::Duration;

use tokio::time::Instant;

/// How long to be silent after having told it: who calls goes on to call.
const SILENCE: Duration = Duration::from_secs(60);

/// What was counted, and when it was told.
pub struct Refusals {
    counted: u64,
    told: Option<Instant>,
}

impl Refusals {
    /// None but those counted so far, which are old.
    pub const fn new(counted: u64) -> Self {
        Self {
            counted,
            told: None,
        }
    }

    /// Whether this count is worth telling, `cares` being whether anything waits for an
    /// answer. Called also when nothing does, as SYNs go on for a while.
    pub fn is_news(&mut self, count: u64, cares: bool, now: Instant) -> bool {
        let grown = count > self.counted;
        self.counted = count;
        let is_due = self.told.is_none_or(|told| now - told >= SILENCE);
        let is_news = grown && cares && is_due;
        if is_news {
            self.told = Some(now);
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_told_once_a_minute() {
        let begin = Instant::now();
        let mut refusals = Refusals::new(7);
        let mut is_news = |count, after| refusals.is_news(count, true, begin + after);
        assert!(!is_news(7, Duration::ZERO));
        assert!(is_news(8, Duration::ZERO));
        assert!(!is_news(9, SILENCE / 2));
        assert!(!is_news(9, SILENCE), "none came since");
        assert!(is_news(10, SILENCE));
        assert!(!is_news(11, SILENCE + SILENCE / 2));
    }

    #[test]
    fn what_came_while_nothing_waited_is_old() {
        let now = Instant::now();
        let mut refusals = Refusals::new(0);
        assert!(!refusals.is_news(5, false, now));
        assert!(!refusals.is_news(5, true, now));
        assert!(refusals.is_news(6, true, now));
    }
}

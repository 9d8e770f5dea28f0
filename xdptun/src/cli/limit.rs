//! A rate limit for log lines of one kind, with a summary of the lines beyond it.

use std::mem;
use std::time::{Duration, Instant};

/// How many lines of one kind are logged in each [`WINDOW`]: more than an operator reads,
/// fewer than fill a disk.
pub const LINES: u32 = 20;
/// The length of a window. The first line after its end begins the next.
pub const WINDOW: Duration = Duration::from_secs(10);

/// Admits the first lines of a window, and adds the others to a summary.
#[derive(Default)]
pub struct Limiter<T> {
    began: Option<Instant>,
    admitted: u32,
    rest: T,
    has_rest: bool,
}

/// The verdict on a line.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Log it.
    Log,
    /// It was added to the summary. The first such line of a window gives the time at which
    /// to call [`Limiter::take_rest`].
    Kept(Option<Instant>),
}

impl<T: Default> Limiter<T> {
    /// Judges a line; `keep` adds it to the summary if it is not to be logged.
    pub fn admit(&mut self, now: Instant, keep: impl FnOnce(&mut T)) -> Verdict {
        let began = match self.began {
            // The summary is taken before another window begins.
            Some(began) if self.has_rest || now < began + WINDOW => began,
            _ => {
                self.admitted = 0;
                now
            }
        };
        self.began = Some(began);
        if self.admitted < LINES {
            self.admitted += 1;
            return Verdict::Log;
        }
        keep(&mut self.rest);
        let is_first = !mem::replace(&mut self.has_rest, true);
        Verdict::Kept(is_first.then(|| began + WINDOW))
    }

    /// Ends the window; returns its summary, if any line was kept.
    pub fn take_rest(&mut self) -> Option<T> {
        self.began = None;
        let has_rest = mem::take(&mut self.has_rest);
        has_rest.then(|| mem::take(&mut self.rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines that come at once; how many are logged, and when the rest is due.
    fn burst(limiter: &mut Limiter<u32>, now: Instant, lines: u32) -> (u32, Option<Instant>) {
        let (mut logged, mut due) = (0, None);
        for _ in 0..lines {
            match limiter.admit(now, |rest| *rest += 1) {
                Verdict::Log => logged += 1,
                Verdict::Kept(None) => {}
                Verdict::Kept(at) => assert_eq!(due.replace(at.unwrap()), None, "once"),
            }
        }
        (logged, due)
    }

    #[test]
    fn a_few_lines_are_all_logged() {
        let begin = Instant::now();
        let mut limiter = Limiter::default();
        for window in 0..3 {
            let now = begin + window * WINDOW;
            assert_eq!(burst(&mut limiter, now, LINES), (LINES, None));
        }
        assert_eq!(limiter.take_rest(), None);
    }

    #[test]
    fn a_flood_is_summed_up_once_a_window() {
        let begin = Instant::now();
        let mut limiter = Limiter::default();
        let due = begin + WINDOW;
        assert_eq!(burst(&mut limiter, begin, 1000), (LINES, Some(due)));
        let later = begin + WINDOW / 2;
        assert_eq!(burst(&mut limiter, later, 1000), (0, None));
        // However late the sum is.
        assert_eq!(burst(&mut limiter, due + WINDOW, 7), (0, None));
        assert_eq!(limiter.take_rest(), Some(2007 - LINES));
        assert_eq!(limiter.take_rest(), None);
        // The flood goes on.
        let next = burst(&mut limiter, due, 1000);
        assert_eq!(next, (LINES, Some(due + WINDOW)));
        assert_eq!(limiter.take_rest(), Some(1000 - LINES));
    }

    #[test]
    fn lines_that_come_slowly_use_up_one_window() {
        let begin = Instant::now();
        let mut limiter = Limiter::default();
        for line in 0..LINES {
            let now = begin + WINDOW * line / LINES;
            assert_eq!(burst(&mut limiter, now, 1), (1, None));
        }
        let last = begin + WINDOW - Duration::from_millis(1);
        assert_eq!(burst(&mut limiter, last, 1), (0, Some(begin + WINDOW)));
    }
}

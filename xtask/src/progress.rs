//! The step at hand, on standard error.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Steps with the time since the start.
#[derive(Debug)]
pub struct Progress {
    started: Instant,
}

impl Progress {
    /// Starts the clock.
    pub fn start() -> Self {
        Self {
            started: Instant::now(),
        }
    }

    /// Tells about a step that begins or a result that is in.
    pub fn say(&self, text: &str) {
        eprintln!("[{:6.1} s] {text}", self.elapsed().as_secs_f64());
    }

    /// The time since the start.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// A bar for a download; shown on a terminal only.
    pub fn download(&self, bytes: u64) -> ProgressBar {
        let template = "           {bar:40} {bytes:>10} of {total_bytes}, {binary_bytes_per_sec}";
        let style =
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        ProgressBar::new(bytes).with_style(style)
    }
}

//! Messages to the service manager (sd_notify(3)): ready, alive, stopping.
//!
//! Without a service manager (`NOTIFY_SOCKET` is not set) they go nowhere.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

/// Tells that everything is attached.
pub fn ready() {
    send(&[NotifyState::Ready]);
}

/// Tells what goes on, in words.
pub fn status(status: &str) {
    send(&[NotifyState::Status(status)]);
}

/// Tells that this process is about to end.
pub fn stopping() {
    send(&[NotifyState::Stopping]);
}

/// The service manager kills or restarts a service whose messages do not arrive, so the
/// operator must see the cause.
fn send(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        warn!("the service manager cannot be told {state:?}: {error}");
    }
}

/// Tells the service manager that this thread still runs tasks, twice in the time that it
/// waits for that (`WatchdogSec=`).
pub struct Watchdog(Option<Duration>);

impl Watchdog {
    /// For the time that the service manager set, if any.
    #[must_use]
    pub fn from_env() -> Self {
        Self(sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero()))
    }

    /// Sends the message again and again; returns at once if the service manager wants none.
    pub async fn run(self) {
        let Some(limit) = self.0 else {
            return;
        };
        let mut half = interval(limit / 2);
        half.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            half.tick().await;
            send(&[NotifyState::Watchdog]);
        }
    }
}

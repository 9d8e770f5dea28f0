//! The end of the service: which signals end it, and how it ends its interfaces.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind};
use tokio::time::timeout;
use tracing::info;

use super::Service;
use crate::error::{Error, Kind, Result, bail};
use crate::group::{Order, Reason, TAKE_OVER};
use crate::process::notify;
use crate::process::signals::{Termination, catch, catch_hangup, received};

/// How long clients that capture may take to read why the capture ends.
const FAREWELL: Duration = Duration::from_secs(1);

/// How the service ends.
#[derive(Clone, Copy, Debug)]
pub enum Ending {
    /// The service detaches everything.
    Stop,
    /// The service leaves everything to another process.
    Succeed,
    /// The service detaches what it attached, and leaves what it took over.
    Abandon,
}

impl Ending {
    fn order<P>(self) -> Order<Reason<P>> {
        match self {
            Self::Stop => Order::Stop,
            Self::Succeed => Order::Pause(Reason::Succeeded),
            Self::Abandon => Order::Pause(Reason::Abandoned),
        }
    }
}

/// The signals that end the service.
pub struct Endings {
    termination: Termination,
    take_over: Signal,
    /// The terminal is gone.
    hangup: Option<Signal>,
}

impl Endings {
    /// Catches them from now on. SIGHUP `reloads`, or ends it.
    pub fn catch(reloads: bool) -> Result<Self> {
        Ok(Self {
            termination: Termination::catch()?,
            take_over: catch(SignalKind::from_raw(TAKE_OVER as i32))?,
            hangup: match reloads {
                true => None,
                false => catch_hangup()?,
            },
        })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) -> Ending {
        let ending = tokio::select! {
            () = self.termination.requested() => Ending::Stop,
            _ = self.take_over.recv() => Ending::Succeed,
            () = received(&mut self.hangup) => {
                info!("the terminal is gone (SIGHUP): detaching, as by Ctrl-C");
                Ending::Stop
            }
        };
        notify::stopping();
        ending
    }
}

impl Service {
    /// Ends all interfaces.
    ///
    /// # Errors
    ///
    /// If one of them could not end, or the service had given it up before.
    pub(super) async fn end(mut self, how: Ending) -> Result<()> {
        for group in self.groups.values() {
            group.names.end();
            group.handle.order(how.order());
        }
        if let Some(gateway) = &mut self.gateway {
            gateway.end_following();
            gateway.handle.order(how.order());
        }
        if let Some(policy) = &self.policy {
            policy.handle.order(how.order());
        }
        if let Some(nat64) = &self.nat64 {
            nat64.handle.order(how.order());
        }
        while let Some(ended) = self.tasks.join_next().await {
            let ended = ended?;
            if ended.1.is_err() {
                self.note_end(ended);
            }
        }
        // Each client that captures is told why the capture ends.
        let told = async { while self.captures.join_next().await.is_some() {} };
        let _in_time = timeout(FAREWELL, told).await;
        match &self.all_states.given_up()[..] {
            [] => Ok(()),
            given_up if self.mode.file.is_none() => {
                // Interfaces of one group have one reason.
                let reasons: BTreeSet<_> = given_up.iter().map(|(_, why)| why.as_str()).collect();
                let reasons: Vec<_> = reasons.into_iter().collect();
                Err(Error::new(Kind::Other, reasons.join("; ")))
            }
            given_up => {
                let mut names: Vec<_> = given_up.iter().map(|(name, _)| name.as_str()).collect();
                names.dedup();
                bail!(Other, "given up: {}; the log tells why", names.join(", "));
            }
        }
    }

    /// Ends all interfaces after an error at the start, and returns that error.
    pub(super) async fn abandon(self, error: Error) -> Result<()> {
        match self.end(Ending::Abandon).await {
            Ok(()) => Err(error),
            Err(also) => Err(error.context(format!("and in the end: {also:#}"))),
        }
    }
}

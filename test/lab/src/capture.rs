//! Captures of the frames that cross an interface, through a packet socket.
//!
//! Where the tap sits decides what it sees. Outgoing frames are seen after the
//! tc egress programs, incoming ones before tc ingress but after native XDP.
//! The router and the far end therefore show what a host put on the wire.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::netns::Netns;
pub use crate::packet_socket::Frame;
use crate::packet_socket::{PacketSocket, Statistics};
use crate::stop::{self, Stop, Stopped};
use crate::timestamps;

/// Frames are read in batches: to wake for each one would cost the captured traffic a
/// third of its speed on two cores.
const READ_INTERVAL: Duration = Duration::from_millis(5);

/// A running capture that accumulates into an `S`.
#[derive(Debug)]
pub struct Capture<S> {
    dev: String,
    state: Arc<Mutex<S>>,
    stop: Stop,
    thread: JoinHandle<Result<Statistics>>,
}

impl Capture<Vec<Frame>> {
    /// Captures every frame on `dev` into memory.
    pub fn start(netns: &Netns, dev: &str) -> Result<Self> {
        Self::fold(netns, dev, Vec::new(), |frames: &mut Vec<Frame>, frame| {
            frames.push(frame.clone());
        })
    }
}

impl<S: Send + 'static> Capture<S> {
    /// Captures every frame on `dev` and hands each to `take`.
    ///
    /// For transfers that are too large to keep in memory. Frames sent after
    /// this returns are seen.
    pub fn fold(
        netns: &Netns,
        dev: &str,
        initial: S,
        mut take: impl FnMut(&mut S, &Frame) + Send + 'static,
    ) -> Result<Self> {
        timestamps::enable()?;
        let socket = netns
            .enter(|| PacketSocket::open(dev))?
            .with_context(|| format!("{}: cannot capture on {dev}", netns.name()))?;
        let state = Arc::new(Mutex::new(initial));
        let (stop, stopped) = stop::channel()?;
        let thread = {
            let state = Arc::clone(&state);
            thread::spawn(move || pump(socket, &stopped, |frame| take(&mut lock(&state), frame)))
        };
        Ok(Self {
            dev: dev.to_owned(),
            state,
            stop,
            thread,
        })
    }

    /// Looks at what was captured so far.
    pub fn peek<R>(&self, look: impl FnOnce(&S) -> R) -> R {
        look(&lock(&self.state))
    }

    /// Ends the capture and returns what it holds, with every frame that
    /// crossed the interface before this call.
    ///
    /// A capture that lost frames proves nothing, so it is an error.
    pub fn stop(self) -> Result<S> {
        drop(self.stop);
        let statistics = match self.thread.join() {
            Ok(result) => result.with_context(|| format!("capture on {} failed", self.dev))?,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        ensure!(
            statistics.dropped == 0,
            "capture on {} lost {} of {} frames: the machine is too busy to capture at this rate",
            self.dev,
            statistics.dropped,
            statistics.seen,
        );
        let state = Arc::into_inner(self.state).context("the capture is still in use")?;
        Ok(state.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

fn lock<S>(state: &Mutex<S>) -> MutexGuard<'_, S> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pump(
    mut socket: PacketSocket,
    stopped: &Stopped,
    mut take: impl FnMut(&Frame),
) -> Result<Statistics> {
    let mut frame = Frame::default();
    let mut last_round = false;
    loop {
        while socket.receive(&mut frame)? {
            take(&frame);
        }
        if last_round {
            return socket.statistics();
        }
        // Frames that crossed before the stop are still read.
        last_round = stopped.within(READ_INTERVAL)?;
    }
}

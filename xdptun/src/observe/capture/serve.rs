//! The daemon's side of a capture: it passes copies on to the client, and makes the programs
//! stop when the client has gone.

use std::num::NonZeroU32;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{MissedTickBehavior, interval};
use tracing::debug;
use xdptun_common::report::copy::MAX_COPIED;

use super::VERSION;
use super::frame::{push_copy, push_end, push_round};
use crate::control::Asker;
use crate::datapath::recorder::Recorder;
use crate::error::Result;
use crate::group::{Handle, Order, Reason, Recording};
use crate::host::clock::monotonic_ns;

/// How often the buffers are emptied. A wake-up for each packet would slow the traffic down
/// noticeably.
const ROUND: Duration = Duration::from_millis(2);

/// The longest copy.
const LONGEST: NonZeroU32 = NonZeroU32::new(MAX_COPIED).unwrap();

/// The source of copies, again for each set of programs; at the end, the reason.
type Feed = UnboundedReceiver<Result<Recorder, String>>;

/// What a client wants to have recorded.
pub struct Recorded {
    /// The interface's name.
    pub interface: String,
    /// How many bytes of each packet.
    pub snap_len: NonZeroU32,
    /// The version of the client.
    pub version: String,
}

/// Has an interface record its packets for a client, until the client goes.
pub async fn serve<P>(handle: Handle<P>, recorded: Recorded, asker: Asker) {
    let Recorded {
        interface,
        snap_len,
        version,
    } = recorded;
    if version != VERSION {
        let _gone = asker.answer(&Err(other_version(&version))).await;
        return;
    }
    let (sender, mut feed) = unbounded_channel();
    // A longer copy would not fit the kernel's buffers; `capture` asks for none.
    let snap_len = snap_len.min(LONGEST);
    handle.order(Order::Pause(Reason::Record(Recording {
        interface,
        snap_len,
        feed: sender,
    })));
    let began = next(&mut feed).await;
    let recorder = match began {
        Ok(recorder) => recorder,
        Err(why) => {
            let _gone = asker.answer(&Err(why)).await;
            return;
        }
    };
    if let Some(stream) = asker.answer(&Ok(Vec::new())).await
        && let Err(error) = pass_on(stream, recorder, &mut feed).await
    {
        debug!("the client of a capture is gone: {error:#}");
    }
    // A closed feed tells the interface which recording to stop.
    drop(feed);
    handle.order(Order::Pause(Reason::StopRecording));
}

fn other_version(version: &str) -> String {
    format!(
        "the running xdptun is version {VERSION}, this one {version}; \
         `--take-over` puts this one in its place"
    )
}

async fn next(feed: &mut Feed) -> Result<Recorder, String> {
    let next = feed.recv().await;
    next.unwrap_or_else(|| Err("the running xdptun no longer keeps the interface".into()))
}

/// Passes copies on until the client or the interface ends the recording. The client ends
/// it by closing its half of the connection.
async fn pass_on(stream: UnixStream, mut recorder: Recorder, feed: &mut Feed) -> Result<()> {
    let (mut listener, mut out) = stream.into_split();
    let mut ticks = interval(ROUND);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Packets that earlier sets of programs did not record.
    let mut unrecorded = 0;
    let mut frames = Vec::new();
    loop {
        let mut end = None;
        let mut successor = None;
        tokio::select! {
            _ = ticks.tick() => {}
            next = next(feed) => match next {
                Ok(recorder) => successor = Some(recorder),
                Err(why) => end = Some(why),
            },
            _ = listener.read_u8() => end = Some(String::new()),
        }
        let until = monotonic_ns();
        recorder.drain(|cpu, head, tail| push_copy(&mut frames, cpu, head, tail));
        if !frames.is_empty() || end.is_some() {
            push_round(&mut frames, until, unrecorded + recorder.unrecorded()?);
        }
        if let Some(successor) = successor {
            unrecorded += recorder.unrecorded()?;
            recorder = successor;
        }
        if let Some(why) = &end {
            push_end(&mut frames, why);
        }
        out.write_all(&frames).await?;
        frames.clear();
        if end.is_some() {
            return Ok(());
        }
    }
}

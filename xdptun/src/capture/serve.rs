//! The side of who keeps the interface: passes copies on as long as somebody
//! listens, and sees to it that none are made after that.

use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{MissedTickBehavior, interval};
use tracing::debug;
use xdptun_common::report::copy::MAX_COPIED;

use super::VERSION;
use super::frame::{push_copy, push_end, push_round};
use crate::clock::monotonic_ns;
use crate::control::Asker;
use crate::daemon::Order;
use crate::datapath::Recorder;
use crate::tunnel::{Handle, Reason, Recording};

/// How often the buffers are emptied. To wake for each packet would cost what is
/// captured a good part of its speed.
const ROUND: Duration = Duration::from_millis(2);

/// The longest copy.
const LONGEST: NonZeroU32 = NonZeroU32::new(MAX_COPIED).unwrap();

/// Where copies come from, and why they end.
type Feed = UnboundedReceiver<Result<Recorder, String>>;

/// Has an interface record its packets for whoever asks, until he goes.
pub async fn serve(handle: Handle, snap_len: NonZeroU32, version: String, asker: Asker) {
    if version != VERSION {
        let _gone = asker.answer(&Err(other_version(&version))).await;
        return;
    }
    let (sender, mut feed) = unbounded_channel();
    // What is longer than the kernel's records can be is not asked for by `capture`.
    let snap_len = snap_len.min(LONGEST);
    handle.order(Order::Pause(Reason::Record(Recording {
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
        debug!("who captured is gone: {error:#}");
    }
    // By this the interface knows that the order is meant for this recording.
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
    next.unwrap_or_else(|| Err("the running xdptun has let go of the interface".into()))
}

/// Passes on what is recorded until somebody ends it. Whoever listens says that he
/// has enough by closing his half of the connection.
async fn pass_on(stream: UnixStream, mut recorder: Recorder, feed: &mut Feed) -> Result<()> {
    let (mut listener, mut out) = stream.into_split();
    let mut ticks = interval(ROUND);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // What programs before these could not record.
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

//! The recording of packets, for one client at a time.

use std::num::NonZeroU32;

use tokio::sync::mpsc::UnboundedSender;
use tracing::{info, warn};

use super::function::Function;
use super::run::Group;
use crate::datapath::recorder::Recorder;

/// A client's request for packets.
#[derive(Debug)]
pub struct Recording {
    /// The interface, by the name that the configuration has for it.
    pub interface: String,
    /// How many bytes of each packet to copy.
    pub snap_len: NonZeroU32,
    /// Gets the source of the copies, again with each set of programs; at the end, why the
    /// recording ended.
    pub feed: UnboundedSender<Result<Recorder, String>>,
}

impl Recording {
    /// Hands over the copies of a new set of programs.
    pub(super) fn feed(&self, recorder: Recorder) {
        let _left = self.feed.send(Ok(recorder));
    }

    /// Ends it, for this reason.
    pub(super) fn end(self, why: impl Into<String>) {
        let _left = self.feed.send(Err(why.into()));
    }
}

impl<F: Function> Group<F> {
    /// Begins a recording, if there is none; returns whether it loaded other programs.
    pub(super) fn record(&mut self, recording: Recording) -> bool {
        if self.recording.is_some() {
            recording
                .end("another client captures on this group of interfaces already; one at a time");
            return false;
        }
        let name = recording.interface.clone();
        self.recording = Some(recording);
        let begun = self.renew();
        match begun {
            Ok(()) => info!("{name}: packets are recorded for `xdptun capture`"),
            Err(error) => {
                self.end_recording(&format!("the programs cannot be replaced: {error:#}"));
                // Some of the programs may be new.
                self.unrecord();
            }
        }
        true
    }

    /// Ends a recording that its client no longer reads; returns whether it loaded other
    /// programs.
    pub(super) fn stop_recording(&mut self) -> bool {
        // The order may be meant for an earlier recording: keep one that is still read.
        let read = |recording: &Recording| !recording.feed.is_closed();
        if self.recording.as_ref().is_none_or(read) {
            return false;
        }
        self.end_recording("no client reads it");
        self.unrecord();
        true
    }

    /// Ends a recording of an interface, if there is one.
    pub(super) fn end_recording_of(&mut self, ifindex: u32, why: &str) {
        let name = self.attached.at(ifindex).map(|one| one.kept_as.clone());
        let of = |recording: &Recording| Some(&recording.interface) == name.as_ref();
        if self.recording.as_ref().is_some_and(of) {
            self.end_recording(why);
        }
    }

    /// Ends a recording, if there is one. The programs are not replaced.
    pub(super) fn end_recording(&mut self, why: &str) {
        if let Some(recording) = self.recording.take() {
            recording.end(why);
        }
    }

    /// Puts programs that do not record in the place of those that do.
    fn unrecord(&mut self) {
        let name = self.name();
        match self.renew() {
            Ok(()) => info!("{name}: packets are not recorded any more"),
            Err(error) => warn!(
                "{name}: the programs cannot be replaced, so they go on copying packets that no \
                 client reads: {error:#}; `--take-over` replaces them"
            ),
        }
    }
}

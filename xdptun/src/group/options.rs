//! How programs are attached and set up.

use std::num::NonZeroU32;

use crate::config::{GroChoice, IngressChoice, LogLevel, TcChoice};

/// An option that cannot become what is wanted while programs are attached.
pub struct Contradiction {
    /// Its name in a file.
    pub option: &'static str,
    /// The value that it should have.
    pub wanted: String,
    /// The value that it has.
    pub has: String,
}

impl Contradiction {
    /// The one between two values of an option, if they differ.
    pub fn between(option: &'static str, wanted: u32, has: u32) -> Option<Self> {
        (wanted != has).then(|| Self {
            option,
            wanted: wanted.to_string(),
            has: has.to_string(),
        })
    }
}

/// How programs are attached and set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options<S> {
    /// Which program handles what comes in.
    pub ingress: IngressChoice,
    /// Whether restored datagrams are merged on their way up.
    pub gro: GroChoice,
    /// How the tc programs are attached.
    pub tc: TcChoice,
    /// Whether the programs log every packet.
    pub trace: Trace,
    /// What the programs copy for a capture, if there is one.
    pub record: Option<Recorded>,
    /// The function's own.
    pub settings: S,
}

/// Whether the programs log every packet, which is slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trace {
    /// They log none.
    #[default]
    Off,
    /// They log every one.
    On,
}

impl From<LogLevel> for Trace {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Trace => Self::On,
            LogLevel::Error | LogLevel::Warn | LogLevel::Info | LogLevel::Debug => Self::Off,
        }
    }
}

/// What the programs copy for a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The length of the link header of the interface, in bytes. The programs for other link
    /// layers copy nothing.
    pub link_len: u32,
    /// How many bytes of each packet.
    pub snap_len: NonZeroU32,
}

impl<S: Clone> Options<S> {
    /// How many bytes of each packet the programs for this link layer copy, if they copy any.
    pub fn record_at(&self, link_len: u32) -> Option<NonZeroU32> {
        let record = self.record.filter(|record| record.link_len == link_len);
        record.map(|record| record.snap_len)
    }
}

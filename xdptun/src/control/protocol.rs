//! Questions and answers: a line of JSON each way, over a Unix socket.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::host::netns;

pub(super) const DIRECTORY: &str = "/run/xdptun";

/// How long the other end may take to send or receive a line.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);
/// How long an answer to a command may take: the service may load new programs and look
/// names up.
pub(super) const ANSWER: Duration = Duration::from_secs(60);
/// The longest line, in bytes.
pub(super) const MAX_LEN: u64 = 4096;
/// The longest answer, in bytes.
pub(super) const MAX_ANSWER: u64 = 1 << 20;

/// A question to a running xdptun.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Question {
    /// What is the state of each interface?
    Status,
    /// A request to do something.
    #[serde(untagged)]
    Command(Command),
}

/// A request to a running xdptun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    /// Read the configuration again and apply it.
    Reload {
        /// Whether sessions of rules that are gone go on until they end.
        drain: bool,
    },
    /// Copy the packets of an interface to the client as long as it listens.
    Capture {
        /// The function whose packets they are.
        function: String,
        /// The interface's name.
        interface: String,
        /// How many bytes of each packet.
        snap_len: NonZeroU32,
        /// The version of the client: the data that follows differs between versions.
        version: String,
    },
}

/// The answer to a command: a line for each change, or why there was none.
pub type Answer = Result<Vec<String>, String>;

/// Which process listens.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// The service of this network namespace, `xdptun run`.
    Service,
    /// The process without a file that has the interface of that name for a function.
    Interface {
        /// The function.
        function: &'static str,
        /// The name.
        name: &'a str,
    },
}

impl Place<'_> {
    /// The path of the socket. All network namespaces share the file system, so the name
    /// holds the number of the namespace.
    pub(super) fn path(self) -> Result<PathBuf> {
        let netns = netns::cookie()?;
        Ok(Path::new(DIRECTORY).join(match self {
            Self::Service => format!("{netns}.sock"),
            Self::Interface { function, name } => format!("{netns}-{function}-{name}.sock"),
        }))
    }
}

/// The state of an interface, as the service reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Its name in the file.
    pub name: String,
    /// The function that works on it, such as `tunnel`.
    #[serde(default = "tunnel")]
    pub function: String,
    /// Its state.
    pub state: ReportedState,
    /// Why it was given up, if it was.
    pub reason: Option<String>,
}

/// The only function that versions had which do not name any.
fn tunnel() -> String {
    "tunnel".to_owned()
}

/// The state of an interface, without details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReportedState {
    /// The interface does not exist yet; the service waits for it.
    Waiting,
    /// It carries datagrams.
    Carrying,
    /// An error ended it; the service gave it up.
    GivenUp,
}

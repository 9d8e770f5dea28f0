//! How one xdptun asks another that runs: a socket, a line each way, and for some
//! commands what comes after.

use std::fs::{self, Permissions};
use std::io;
use std::num::NonZeroU32;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;
use tracing::debug;

use crate::netns;

const DIRECTORY: &str = "/run/xdptun";

/// How long the other end may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long an answer may take: new programs are loaded, names looked up.
const ANSWER: Duration = Duration::from_secs(60);
/// The longest line, in bytes.
const MAX_LEN: u64 = 4096;

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    /// Read the configuration again and apply it.
    Reload,
    /// Copy the packets of an interface to whoever asks, as long as he listens
    /// ([`crate::capture`]).
    Capture {
        /// The interface's name.
        interface: String,
        /// How many bytes of each packet.
        snap_len: NonZeroU32,
        /// The version that asks: what follows is not the same in all.
        version: String,
    },
}

/// The answer: what was done, a line each, or why it was not.
pub type Answer = Result<Vec<String>, String>;

/// Who listens.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// The service of this network namespace, `xdptun run`.
    Service,
    /// Who keeps the interface of that name, `xdptun attach`.
    Interface(&'a str),
}

impl Place<'_> {
    /// Sockets in the file system are the same in all network namespaces, hence the
    /// number.
    fn path(self) -> Result<PathBuf> {
        let netns = netns::cookie()?;
        Ok(Path::new(DIRECTORY).join(match self {
            Self::Service => format!("{netns}.sock"),
            Self::Interface(name) => format!("{netns}-{name}.sock"),
        }))
    }
}

/// The process that runs the service of this network namespace, if there is one.
///
/// # Errors
///
/// If it cannot be known.
pub fn service() -> Result<Option<Pid>> {
    let Ok(stream) = StdUnixStream::connect(Place::Service.path()?) else {
        return Ok(None);
    };
    let peer = getsockopt(&stream, PeerCredentials).context("cannot tell who runs")?;
    Ok(Some(Pid::from_raw(peer.pid())))
}

/// The listening end. Goes away when it is dropped.
#[derive(Debug)]
pub struct Control {
    listener: UnixListener,
    path: PathBuf,
    /// Which file it is; its name may be another's by now.
    inode: u64,
}

impl Control {
    /// Listens, from now on in the place of whoever did. Within a runtime.
    ///
    /// # Errors
    ///
    /// If the socket cannot be made.
    pub fn listen(place: Place<'_>) -> Result<Self> {
        let path = place.path()?;
        let name = || format!("cannot listen at {}", path.display());
        fs::create_dir_all(DIRECTORY).with_context(name)?;
        // Under another name first, so that nobody meets one that does not listen.
        let new = path.with_extension(format!("{}", std::process::id()));
        remove(&new).with_context(name)?;
        let listener = UnixListener::bind(&new).with_context(name)?;
        let inode = fs::set_permissions(&new, Permissions::from_mode(0o600))
            .and_then(|()| fs::metadata(&new))
            .and_then(|metadata| fs::rename(&new, &path).map(|()| metadata.ino()));
        let inode = inode
            .inspect_err(|_| drop(remove(&new)))
            .with_context(name)?;
        Ok(Self {
            listener,
            path,
            inode,
        })
    }

    /// Waits for the next command.
    pub async fn next(&self) -> (Command, Asker) {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => match timeout(PATIENCE, read(stream)).await {
                    Ok(Ok(asked)) => return asked,
                    Ok(Err(error)) => debug!("a command was not understood: {error:#}"),
                    Err(_) => debug!("somebody connected and asked nothing"),
                },
                Err(error) => {
                    debug!("cannot accept: {error}");
                    tokio::time::sleep(PATIENCE).await;
                }
            }
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if fs::metadata(&self.path).is_ok_and(|metadata| metadata.ino() == self.inode) {
            let _gone = remove(&self.path);
        }
        // Others may listen there.
        let _in_use = fs::remove_dir(DIRECTORY);
    }
}

/// Removes what a process left that was killed while it kept an interface.
pub fn forget(interface: &str) {
    if let Ok(path) = Place::Interface(interface).path() {
        let _kept = remove(&path);
        // Others may listen there.
        let _in_use = fs::remove_dir(DIRECTORY);
    }
}

/// Removes a file, if it is there.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

async fn read(stream: UnixStream) -> Result<(Command, Asker)> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    (&mut stream).take(MAX_LEN).read_line(&mut line).await?;
    Ok((serde_json::from_str(&line)?, Asker(stream)))
}

/// Who waits for an answer.
#[derive(Debug)]
pub struct Asker(BufReader<UnixStream>);

impl Asker {
    /// Answers, and hands over the connection. Whoever went away meanwhile needs no
    /// answer, and there is none.
    pub async fn answer(mut self, answer: &Answer) -> Option<UnixStream> {
        let mut line = serde_json::to_vec(answer).ok()?;
        line.push(b'\n');
        match timeout(PATIENCE, self.0.write_all(&line)).await {
            Ok(Ok(())) => Some(self.0.into_inner()),
            _ => {
                debug!("whoever asked did not wait for the answer");
                None
            }
        }
    }
}

/// Asks whoever listens at a place. What comes after the answer can be read from the
/// connection.
///
/// # Errors
///
/// If there is nobody, or he does not answer.
pub async fn ask(place: Place<'_>, command: &Command) -> Result<(Answer, BufReader<UnixStream>)> {
    let path = place.path()?;
    let stream = match (UnixStream::connect(&path).await, place) {
        (Ok(stream), _) => stream,
        (Err(error), _) if error.kind() == io::ErrorKind::PermissionDenied => {
            bail!(
                "{} is not yours; run it as root, for example with sudo",
                path.display()
            )
        }
        (Err(_), Place::Service) => bail!(
            "`xdptun run` does not run in this network namespace; \
             what `xdptun attach` began is changed by `xdptun attach --take-over ...`"
        ),
        (Err(error), Place::Interface(name)) => {
            let why = format!(
                "{name}: the xdptun that is attached does not listen at {}; \
                 `xdptun attach --take-over ...` puts this version in its place",
                path.display()
            );
            return Err(anyhow::Error::new(error).context(why));
        }
    };
    let mut stream = BufReader::new(stream);
    let mut line = serde_json::to_vec(command)?;
    line.push(b'\n');
    let mut answer = String::new();
    let asked = timeout(ANSWER, async {
        stream.write_all(&line).await?;
        stream.read_line(&mut answer).await
    });
    let no_answer = || "the running xdptun does not answer; its log tells more".to_owned();
    asked
        .await
        .with_context(no_answer)?
        .with_context(no_answer)?;
    let answer = serde_json::from_str(&answer).with_context(no_answer)?;
    Ok((answer, stream))
}

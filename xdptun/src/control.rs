//! How one xdptun asks another that runs: a socket, a line each way, and for some
//! commands what comes after.

use std::fs;
use std::io;
use std::num::NonZeroU32;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::stat::{Mode, umask};
use nix::unistd::Pid;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{JoinSet, spawn_local};
use tokio::time::timeout;
use tracing::debug;

use crate::netns;
use crate::running::Running;
use crate::service::Report;

const DIRECTORY: &str = "/run/xdptun";

/// How long the other end may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long an answer may take: new programs are loaded, names looked up.
const ANSWER: Duration = Duration::from_secs(60);
/// The longest line, in bytes.
const MAX_LEN: u64 = 4096;
/// The longest answer, in bytes.
const MAX_ANSWER: u64 = 1 << 20;

/// What can be asked.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Question {
    /// What has become of each interface?
    Status,
    /// To do something.
    #[serde(untagged)]
    Command(Command),
}

/// What can be asked to be done.
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
    asked: UnboundedReceiver<(Command, Asker)>,
    path: PathBuf,
    /// Which file it is; its name may be another's by now.
    inode: u64,
    _server: Running,
}

impl Control {
    /// Listens, from now on in the place of whoever did. Within a `LocalSet`. What
    /// has become of the interfaces it asks `status`, at any time.
    ///
    /// # Errors
    ///
    /// If the socket cannot be made.
    pub fn listen(place: Place<'_>, status: impl Fn() -> Vec<Report> + 'static) -> Result<Self> {
        let path = place.path()?;
        let name = || format!("cannot listen at {}", path.display());
        fs::create_dir_all(DIRECTORY).with_context(name)?;
        // Under another name first, so that nobody meets one that does not listen.
        let new = path.with_extension(format!("{}", std::process::id()));
        remove(&new).with_context(name)?;
        // Private from the start: permissions that are set later are those of whatever
        // has the name by then.
        let before = umask(Mode::from_bits_truncate(0o177));
        let listener = UnixListener::bind(&new);
        umask(before);
        let listener = listener.with_context(name)?;
        let inode = fs::symlink_metadata(&new)
            .and_then(|metadata| fs::rename(&new, &path).map(|()| metadata.ino()));
        let inode = inode
            .inspect_err(|_| drop(remove(&new)))
            .with_context(name)?;
        let (asks, asked) = unbounded_channel();
        Ok(Self {
            asked,
            path,
            inode,
            _server: spawn_local(serve(listener, status, asks)).into(),
        })
    }

    /// Waits for the next command that changes something.
    pub async fn next(&mut self) -> (Command, Asker) {
        match self.asked.recv().await {
            Some(asked) => asked,
            // Nobody can ask any more.
            None => std::future::pending().await,
        }
    }
}

/// Tells what there is to tell, and hands on whoever asks for more. Who is slow
/// keeps nobody waiting.
async fn serve(
    listener: UnixListener,
    status: impl Fn() -> Vec<Report>,
    asks: UnboundedSender<(Command, Asker)>,
) {
    let mut reading = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    reading.spawn(timeout(PATIENCE, read(stream)));
                }
                Err(error) => {
                    debug!("cannot accept: {error}");
                    tokio::time::sleep(PATIENCE).await;
                }
            },
            Some(asked) = reading.join_next() => match asked {
                Ok(Ok(Ok((Question::Status, asker)))) => {
                    let status = status();
                    spawn_local(async move { asker.send(&status).await });
                }
                Ok(Ok(Ok((Question::Command(command), asker)))) => {
                    let _ended = asks.send((command, asker));
                }
                Ok(Ok(Err(error))) => debug!("a command was not understood: {error:#}"),
                Ok(Err(_)) => debug!("somebody connected and asked nothing"),
                Err(error) => debug!("{error}"),
            },
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

async fn read(stream: UnixStream) -> Result<(Question, Asker)> {
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
    pub async fn answer(self, answer: &Answer) -> Option<UnixStream> {
        self.send(answer).await
    }

    async fn send(mut self, answer: &impl Serialize) -> Option<UnixStream> {
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
    match (UnixStream::connect(&path).await, place) {
        (Ok(stream), _) => question(stream, command, ANSWER).await,
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
            Err(anyhow::Error::new(error).context(why))
        }
    }
}

/// Asks the service of this network namespace what has become of its interfaces;
/// none if no service runs.
///
/// # Errors
///
/// If it does not answer.
pub async fn status() -> Result<Option<Vec<Report>>> {
    let Ok(stream) = UnixStream::connect(Place::Service.path()?).await else {
        return Ok(None);
    };
    let (status, _) = question(stream, &Question::Status, PATIENCE).await?;
    Ok(Some(status))
}

async fn question<T: DeserializeOwned>(
    stream: UnixStream,
    question: &impl Serialize,
    patience: Duration,
) -> Result<(T, BufReader<UnixStream>)> {
    let mut stream = BufReader::new(stream);
    let mut line = serde_json::to_vec(question)?;
    line.push(b'\n');
    let mut answer = String::new();
    let asked = timeout(patience, async {
        stream.write_all(&line).await?;
        (&mut stream).take(MAX_ANSWER).read_line(&mut answer).await
    });
    let no_answer = || "the running xdptun does not answer; its log tells more".to_owned();
    asked
        .await
        .with_context(no_answer)?
        .with_context(no_answer)?;
    let answer = serde_json::from_str(&answer).with_context(no_answer)?;
    Ok((answer, stream))
}

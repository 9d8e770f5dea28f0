//! How one xdptun asks another that runs as a service: a socket, a line each way.

use std::fs::{self, Permissions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufStream};
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    /// Read the configuration again and apply it.
    Reload,
}

/// The answer: what was done, a line each, or why it was not.
pub type Answer = Result<Vec<String>, String>;

/// Where the service of this network namespace listens. Sockets in the file
/// system are the same in all of them, hence the number.
fn path() -> Result<PathBuf> {
    Ok(Path::new(DIRECTORY).join(format!("{}.sock", netns::cookie()?)))
}

/// The process that runs the service of this network namespace, if there is one.
///
/// # Errors
///
/// If it cannot be known.
pub fn service() -> Result<Option<Pid>> {
    let Ok(stream) = StdUnixStream::connect(path()?) else {
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
    pub fn listen() -> Result<Self> {
        let path = path()?;
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

/// Removes a file, if it is there.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

async fn read(stream: UnixStream) -> Result<(Command, Asker)> {
    let mut stream = BufStream::new(stream);
    let mut line = String::new();
    (&mut stream).take(MAX_LEN).read_line(&mut line).await?;
    Ok((serde_json::from_str(&line)?, Asker(stream)))
}

/// Who waits for an answer.
#[derive(Debug)]
pub struct Asker(BufStream<UnixStream>);

impl Asker {
    /// Answers. Whoever went away meanwhile needs none.
    pub async fn answer(mut self, answer: &Answer) {
        let Ok(mut line) = serde_json::to_vec(answer) else {
            return;
        };
        line.push(b'\n');
        let sent = async {
            self.0.write_all(&line).await?;
            self.0.flush().await
        };
        if !matches!(timeout(PATIENCE, sent).await, Ok(Ok(()))) {
            debug!("whoever asked did not wait for the answer");
        }
    }
}

/// Asks the service of this network namespace.
///
/// # Errors
///
/// If there is none, or it does not answer.
pub fn ask(command: Command) -> Result<Answer> {
    let path = path()?;
    let mut stream = match StdUnixStream::connect(&path) {
        Ok(stream) => stream,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            bail!(
                "{} is not yours; run it as root, for example with sudo",
                path.display()
            )
        }
        Err(_) => bail!(
            "`xdptun run` does not run in this network namespace; \
             what `xdptun attach` began is changed by `xdptun attach --take-over ...`"
        ),
    };
    let no_answer = || "the running xdptun does not answer; its log tells more".to_owned();
    stream.set_read_timeout(Some(ANSWER))?;
    let mut line = serde_json::to_vec(&command)?;
    line.push(b'\n');
    stream.write_all(&line).with_context(no_answer)?;
    let mut answer = String::new();
    BufReader::new(stream)
        .read_line(&mut answer)
        .with_context(no_answer)?;
    serde_json::from_str(&answer).with_context(no_answer)
}

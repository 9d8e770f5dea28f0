//! The listening end.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use nix::sys::stat::{Mode, umask};
use serde::Serialize;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{JoinSet, spawn_local};
use tokio::time::timeout;
use tracing::debug;

use super::protocol::{Answer, Command, DIRECTORY, MAX_LEN, PATIENCE, Place, Question, Report};
use crate::error::{Context as _, Result};
use crate::process::task::Task;

/// The listening end. Dropping it removes the socket.
#[derive(Debug)]
pub struct Control {
    asked: UnboundedReceiver<(Command, Asker)>,
    path: PathBuf,
    /// Inode of the socket: another process may have put its own in its place.
    inode: u64,
    _server: Task,
}

impl Control {
    /// Listens, in the place of the process that listened before, if any. Calls `status`
    /// for each client that asks for it. Needs a `LocalSet`.
    ///
    /// # Errors
    ///
    /// If the socket cannot be made.
    pub fn listen(place: Place<'_>, status: impl Fn() -> Vec<Report> + 'static) -> Result<Self> {
        let path = place.path()?;
        let name = || format!("cannot listen at {}", path.display());
        // Under another name first: clients must not find a socket before it listens.
        let new = path.with_extension(format!("{}", std::process::id()));
        remove(&new).with_context(name)?;
        // Private from the start: a later chmod could hit a file that another process has
        // put in its place.
        let before = umask(Mode::from_bits_truncate(0o177));
        let listener = bind(&new);
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

    /// Waits for the next command.
    pub async fn next(&mut self) -> (Command, Asker) {
        match self.asked.recv().await {
            Some(asked) => asked,
            // The server task has ended.
            None => std::future::pending().await,
        }
    }
}

/// Answers `status` itself and passes commands on. A slow client delays no other.
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
                Ok(Ok(Err(error))) => debug!("a client sent no command: {error:#}"),
                Ok(Err(_)) => debug!("a client connected and asked nothing"),
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

/// Removes the socket that a killed process left for an interface that it had for a function.
pub fn forget(function: &'static str, interface: &str) {
    let place = Place::Interface {
        function,
        name: interface,
    };
    if let Ok(path) = place.path() {
        let _kept = remove(&path);
        // Others may listen there.
        let _in_use = fs::remove_dir(DIRECTORY);
    }
}

/// Binds a socket in [`DIRECTORY`], which a process of another network namespace may remove
/// between the two steps when it ends.
fn bind(path: &Path) -> io::Result<UnixListener> {
    loop {
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(DIRECTORY)?;
        match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            bound => return bound,
        }
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

/// A client that waits for an answer.
#[derive(Debug)]
pub struct Asker(BufReader<UnixStream>);

impl Asker {
    /// Sends the answer and returns the connection; none if the client has gone.
    pub async fn answer(self, answer: &Answer) -> Option<UnixStream> {
        self.send(answer).await
    }

    async fn send(mut self, answer: &impl Serialize) -> Option<UnixStream> {
        let mut line = serde_json::to_vec(answer).ok()?;
        line.push(b'\n');
        match timeout(PATIENCE, self.0.write_all(&line)).await {
            Ok(Ok(())) => Some(self.0.into_inner()),
            _ => {
                debug!("the client did not wait for the answer");
                None
            }
        }
    }
}

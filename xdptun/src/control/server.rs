//! The listening end.

use std::cell::Cell;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::net;
use std::path::{Path, PathBuf};
use std::rc::Rc;

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
    socket: Rc<Socket>,
    _server: Task,
}

/// The socket of a listening end. Clients find it from [`Socket::appear`] on.
#[derive(Debug)]
pub struct Socket {
    /// Where it listens until then: clients must not find a socket before it listens, nor in the
    /// place of a process that still keeps everything.
    hidden: PathBuf,
    path: PathBuf,
    /// Another process may have put its own in its place.
    inode: u64,
    appeared: Cell<bool>,
}

impl Socket {
    /// Lets clients find it, if no other socket is in its place: a process that is taken over removes
    /// its own before it leaves.
    ///
    /// # Errors
    ///
    /// If the file cannot be moved.
    pub fn appear_if_free(&self) -> Result<()> {
        match self.path.exists() {
            true => Ok(()),
            false => self.appear(),
        }
    }

    /// Lets clients find it, in the place of the process that listened before, if any. Does
    /// nothing the second time.
    ///
    /// # Errors
    ///
    /// If the file cannot be moved.
    pub fn appear(&self) -> Result<()> {
        if !self.appeared.get() {
            fs::rename(&self.hidden, &self.path).with_context(|| cannot_listen(&self.path))?;
            self.appeared.set(true);
        }
        Ok(())
    }

    /// Removes it for good: a task that still runs must not make it appear again.
    fn vanish(&self) {
        if !self.appeared.replace(true) {
            let _gone = remove(&self.hidden);
        } else if fs::metadata(&self.path).is_ok_and(|metadata| metadata.ino() == self.inode) {
            let _gone = remove(&self.path);
        }
        // Others may listen there.
        let _in_use = fs::remove_dir(DIRECTORY);
    }
}

fn cannot_listen(path: &Path) -> String {
    format!("cannot listen at {}", path.display())
}

impl Control {
    /// Listens at a socket that clients do not find yet. Calls `status` for each client that asks
    /// for it. Needs a `LocalSet`.
    ///
    /// # Errors
    ///
    /// If the socket cannot be made.
    pub fn listen(place: Place<'_>, status: impl Fn() -> Vec<Report> + 'static) -> Result<Self> {
        let path = place.path()?;
        let name = || cannot_listen(&path);
        let hidden = path.with_extension(format!("{}", std::process::id()));
        remove(&hidden).with_context(name)?;
        tidy(&path);
        // Private from the start: a later chmod could hit a file that another process has
        // put in its place.
        let before = umask(Mode::from_bits_truncate(0o177));
        let listener = bind(&hidden);
        umask(before);
        let listener = listener.with_context(name)?;
        let inode = fs::symlink_metadata(&hidden).map(|metadata| metadata.ino());
        let inode = inode
            .inspect_err(|_| drop(remove(&hidden)))
            .with_context(name)?;
        let (asks, asked) = unbounded_channel();
        Ok(Self {
            asked,
            socket: Rc::new(Socket {
                hidden,
                path,
                inode,
                appeared: Cell::new(false),
            }),
            _server: spawn_local(serve(listener, status, asks)).into(),
        })
    }

    /// The socket that it listens at.
    #[must_use]
    pub fn socket(&self) -> Rc<Socket> {
        Rc::clone(&self.socket)
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

impl Drop for Control {
    fn drop(&mut self) {
        self.socket.vanish();
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

/// Removes the hidden sockets in the place of this one whose processes were killed before the sockets
/// appeared.
fn tidy(path: &Path) {
    let directory = path.parent().map(fs::read_dir);
    let files = directory.into_iter().flatten().flatten().flatten();
    for file in files.map(|entry| entry.path()) {
        let is_beside = file.file_stem() == path.file_stem();
        let process = file
            .extension()
            .and_then(|pid| pid.to_str()?.parse::<u32>().ok());
        let has_ended =
            process.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists());
        // A process of another PID namespace is not in this /proc, but answers.
        if is_beside && has_ended && net::UnixStream::connect(&file).is_err_and(is_refused) {
            let _kept = remove(&file);
        }
    }
}

fn is_refused(error: io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_killed_processes_left_in_its_place_goes() {
        // No process has a number beyond the kernel's limit (PID_MAX_LIMIT).
        let ended = "4194305";
        let own = std::process::id().to_string();
        let directory = std::env::temp_dir().join(format!("xdptun-tidy-{own}"));
        fs::create_dir(&directory).expect("it is new");
        let names = ["1-a.sock", "1-b.sock", "1-a.extension"].map(str::to_owned);
        let hidden = [("1-a", ended), ("1-a", &own), ("1-b", ended)]
            .map(|(stem, pid)| format!("{stem}.{pid}"));
        for name in names.iter().chain(&hidden) {
            fs::write(directory.join(name), "").expect("it can be written");
        }
        tidy(&directory.join("1-a.sock"));
        let is_there = |name: &String| directory.join(name).exists();
        assert!(names.iter().all(is_there));
        assert_eq!(hidden.each_ref().map(is_there), [false, true, true]);
        fs::remove_dir_all(&directory).expect("it is there");
    }
}

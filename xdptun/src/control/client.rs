//! The end that asks.

use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::time::Duration;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::Pid;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::protocol::{ANSWER, Answer, Command, MAX_ANSWER, PATIENCE, Place, Question, Report};
use crate::error::{Context as _, Error, Kind, Result, bail};

/// The process that runs the service of this network namespace, if there is one.
///
/// # Errors
///
/// If the kernel does not name the process.
pub fn service() -> Result<Option<Pid>> {
    let Ok(stream) = StdUnixStream::connect(Place::Service.path()?) else {
        return Ok(None);
    };
    let peer = getsockopt(&stream, PeerCredentials).context("cannot tell which process runs")?;
    Ok(Some(Pid::from_raw(peer.pid())))
}

/// Whether a process listens at a place, as far as a file tells: a killed one may have left it.
#[must_use]
pub fn listens(place: Place<'_>) -> bool {
    place.path().is_ok_and(|path| path.exists())
}

/// Sends a command to the process that listens at a place. Data that follows the answer
/// can be read from the connection.
///
/// # Errors
///
/// [`Kind::NotRunning`] if no process listens there, [`Kind::Busy`] if it does not answer,
/// [`Kind::Permission`] if this process may not ask.
pub async fn ask(place: Place<'_>, command: &Command) -> Result<(Answer, BufReader<UnixStream>)> {
    let path = place.path()?;
    match (UnixStream::connect(&path).await, place) {
        (Ok(stream), _) => question(stream, command, ANSWER).await,
        (Err(error), _) if error.kind() == io::ErrorKind::PermissionDenied => {
            bail!(
                Permission,
                "{} is not yours; run it as root, for example with sudo",
                path.display()
            )
        }
        (Err(_), Place::Service) => bail!(
            NotRunning,
            "`xdptun run` does not run in this network namespace; \
             to change what `xdptun attach` carries, use `xdptun attach --take-over ...`"
        ),
        (Err(error), Place::Interface { name, .. }) => {
            let why = format!(
                "{name}: the xdptun that is attached does not listen at {}; \
                 `--take-over` puts this version in its place",
                path.display()
            );
            Err(Error::caused_by(Kind::NotRunning, error).context(why))
        }
    }
}

/// Asks the service of this network namespace for the state of its interfaces; `None` if
/// no service runs.
///
/// # Errors
///
/// [`Kind::Busy`] if it does not answer in time, [`Kind::NotRunning`] if it ends meanwhile,
/// [`Kind::OtherVersion`] if this version does not understand the answer.
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
    let asked = async {
        stream.write_all(&line).await?;
        (&mut stream)
            .take(MAX_ANSWER)
            .read_line(&mut answer)
            .await?;
        serde_json::from_str(&answer).map_err(|error| {
            let kind = match answer.is_empty() {
                true => Kind::NotRunning,
                false => Kind::OtherVersion,
            };
            Error::caused_by(kind, error)
        })
    };
    let asked = timeout(patience, asked).await;
    match asked.unwrap_or_else(|late| Err(Error::caused_by(Kind::Busy, late))) {
        Ok(answer) => Ok((answer, stream)),
        Err(error) => Err(error.context("the running xdptun does not answer; see its log")),
    }
}

//! The metrics over HTTP/1.1.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue, VARY};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use nix::errno::Errno;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use super::{plain, render};
use crate::error::{Context as _, Result};
use crate::group::Incumbent;
use crate::observe::status::Status;

/// The path of the metrics.
pub const PATH: &str = "/metrics";

/// How long a connection may last, also of a slow client.
const CONNECTION: Duration = Duration::from_secs(10);
/// How many connections there may be; a further one ends the oldest.
const CONNECTIONS: usize = 32;
/// The queue of connections that are not accepted yet.
const BACKLOG: u32 = 128;
/// How long to wait if this process or the kernel has no room for another connection.
const PAUSE: Duration = Duration::from_secs(1);

/// Listens on an address for [`serve`], within a runtime: beside the process that leaves,
/// if that is taken over from.
///
/// # Errors
///
/// If it is another's, or not one of this host.
pub fn bind(address: SocketAddr, incumbent: Incumbent) -> Result<TcpListener> {
    listen(address, incumbent).with_context(|| {
        format!(
            "cannot serve metrics on {address}; \
             `--metrics` takes another address and port, `ss -ltnp` lists those in use"
        )
    })
}

fn listen(address: SocketAddr, incumbent: Incumbent) -> io::Result<TcpListener> {
    if incumbent == Incumbent::Respect {
        // A process that takes over from this one needs SO_REUSEPORT, with which two
        // processes could share an address unnoticed.
        drop(std::net::TcpListener::bind(address)?);
    }
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Answers `GET /metrics`, one request per connection. Another thread reads the
/// attachments, one scrape at a time.
///
/// # Errors
///
/// If connections cannot be accepted any more.
pub async fn serve(listener: TcpListener) -> Result<()> {
    let reading = Arc::new(Semaphore::new(1));
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) if is_of_one_connection(&error) => continue,
            Err(error) if is_lack(&error) => {
                warn!("cannot accept a connection for metrics: {error}");
                sleep(PAUSE).await;
                continue;
            }
            Err(error) => return Err(error).context("cannot accept connections for metrics"),
        };
        open.retain(|connection| !connection.is_finished());
        if open.len() == CONNECTIONS
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        let connection = tokio::spawn(converse(stream, Arc::clone(&reading)));
        open.push_back(connection.abort_handle());
    }
}

/// Whether the error concerns one connection only.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

/// Whether the error will pass.
fn is_lack(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(
        errno,
        Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM)
    )
}

async fn converse(stream: TcpStream, reading: Arc<Semaphore>) {
    let service = service_fn(|request| answer(request, Arc::clone(&reading)));
    let connection = http1::Builder::new()
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    match timeout(CONNECTION, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!("a client of the metrics: {error}"),
        Err(_) => debug!("a client of the metrics is too slow"),
    }
}

type Answer = Response<Full<Bytes>>;

async fn answer(request: Request<Incoming>, reading: Arc<Semaphore>) -> Result<Answer, Infallible> {
    if request.uri().path() != PATH {
        let text = format!("the metrics are at {PATH}\n");
        return Ok(simple(StatusCode::NOT_FOUND, text));
    }
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let text = "metrics can only be read\n".to_owned();
        let mut refusal = simple(StatusCode::METHOD_NOT_ALLOWED, text);
        let methods = HeaderValue::from_static("GET, HEAD");
        refusal.headers_mut().insert(ALLOW, methods);
        return Ok(refusal);
    }
    Ok(match scrape(reading).await {
        Ok(text) => {
            let (content_type, text) = match is_asked_for(&request) {
                true => (plain::CONTENT_TYPE, plain::from_openmetrics(&text)),
                false => (super::CONTENT_TYPE, text),
            };
            let mut answer = typed(StatusCode::OK, content_type, text);
            let depends_on = HeaderValue::from_static("Accept");
            answer.headers_mut().insert(VARY, depends_on);
            answer
        }
        Err(error) => {
            warn!("cannot read the metrics: {error:#}");
            simple(StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}\n"))
        }
    })
}

/// Whether the client asks for the format of Prometheus alone.
fn is_asked_for(request: &Request<Incoming>) -> bool {
    let accept = request.headers().get_all(ACCEPT).iter();
    let accept: Vec<_> = accept.filter_map(|value| value.to_str().ok()).collect();
    plain::is_asked_for(&accept.join(","))
}

async fn scrape(reading: Arc<Semaphore>) -> Result<String> {
    let turn = reading.acquire_owned().await?;
    tokio::task::spawn_blocking(move || {
        // Held to the end, also if the client does not wait for that.
        let _turn = turn;
        Ok(render(Status::read()?)?)
    })
    .await?
}

fn simple(status: StatusCode, text: String) -> Answer {
    typed(status, "text/plain; charset=utf-8", text)
}

fn typed(status: StatusCode, content_type: &'static str, text: String) -> Answer {
    let mut answer = Response::new(Full::from(text));
    *answer.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    answer.headers_mut().insert(CONTENT_TYPE, content_type);
    answer
}

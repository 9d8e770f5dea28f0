//! A web server with one page, and a client that asks for it.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Result as IoResult, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{Backlog, Shutdown, listen, shutdown};

use crate::methods::tcp::Ends;

/// Bytes of the page: those of the reference measurement. A new connection has room for all.
const PAGE: usize = 4393;

/// Events at a time.
const EVENTS: usize = 256;

/// How long the server may be silent.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running server; it ends when dropped.
///
/// One thread answers whichever connection has sent its request: after a loss, connections whose
/// requests are sent again delay no other.
pub struct Web {
    listener: Arc<TcpListener>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Web {
    /// Listens with as deep a backlog as the host allows.
    pub fn start(ends: Ends<'_>) -> Result<Self> {
        let listener = Arc::new(ends.listen()?);
        listen(&listener, Backlog::MAXALLOWABLE).context("cannot deepen the backlog")?;
        listener.set_nonblocking(true)?;
        let thread = {
            let listener = Arc::clone(&listener);
            thread::spawn(move || serve(&listener))
        };
        Ok(Self {
            listener,
            thread: Some(thread),
        })
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        // Wakes the thread, to which the listener then gives an error.
        if let Err(error) = shutdown(self.listener.as_raw_fd(), Shutdown::Both) {
            eprintln!("cannot end the web server: {error}");
            return;
        }
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(Ok(()))) | None => {}
            Some(Ok(Err(error))) => eprintln!("the web server: {error:#}"),
            Some(Err(_)) => eprintln!("the web server panicked"),
        }
    }
}

/// A connection that has not sent all of its request.
struct Asking {
    stream: TcpStream,
    request: Vec<u8>,
}

fn serve(listener: &TcpListener) -> Result<()> {
    let page = [head().into_bytes(), vec![b'x'; PAGE]].concat();
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    let wait_for = |number| EpollEvent::new(EpollFlags::EPOLLIN, number);
    // No connection has this number.
    let of_listener = u64::MAX;
    epoll.add(listener, wait_for(of_listener))?;
    let (mut asking, mut next) = (HashMap::new(), 0);
    let mut events = vec![EpollEvent::empty(); EVENTS];
    loop {
        let count = match epoll.wait(&mut events, EpollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            count => count.context("cannot wait for connections")?,
        };
        for event in &events[..count] {
            let number = event.data();
            if number != of_listener {
                let done = asking.get_mut(&number).map(|one| answer(one, &page));
                // The client counts what fails.
                if let Some(Ok(true) | Err(_)) = done {
                    asking.remove(&number);
                }
                continue;
            }
            loop {
                let stream = match would_block(listener.accept()) {
                    Ok(Some((stream, _))) => stream,
                    Ok(None) => break,
                    // Shut down.
                    Err(error) if error.kind() == ErrorKind::InvalidInput => return Ok(()),
                    Err(error) => return Err(error).context("cannot accept"),
                };
                stream.set_nonblocking(true)?;
                epoll.add(&stream, wait_for(next))?;
                let request = Vec::new();
                asking.insert(next, Asking { stream, request });
                next += 1;
            }
        }
    }
}

fn head() -> String {
    format!("HTTP/1.0 200 OK\r\nContent-Type: text/html\r\nContent-Length: {PAGE}\r\n\r\n")
}

/// Reads what there is of a request, and sends the page after its end; whether the connection is
/// done.
fn answer(asking: &mut Asking, page: &[u8]) -> IoResult<bool> {
    let Asking { stream, request } = asking;
    let mut buffer = [0; 1024];
    while let Some(length) = would_block(stream.read(&mut buffer))? {
        request.extend_from_slice(&buffer[..length]);
        if request.ends_with(b"\r\n\r\n") {
            stream.write_all(page)?;
            return Ok(true);
        }
        if length == 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The result of a step, if it could be done at once.
fn would_block<T>(result: IoResult<T>) -> IoResult<Option<T>> {
    match result {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        result => result.map(Some),
    }
}

/// How long a connection, a request and its answer take, each time.
pub fn fetch(ends: Ends<'_>, count: usize) -> Result<Vec<Duration>> {
    let _web = Web::start(ends)?;
    let one = |_| {
        let began = Instant::now();
        let length = page(ends.entry).context("cannot fetch the page")?;
        let took = began.elapsed();
        let expected = head().len() + PAGE;
        ensure!(length == expected, "{length} bytes came, not {expected}");
        Ok(took)
    };
    ends.client.enter(|| (0..count).map(one).collect())?
}

/// Fetches the page; its length with that of its head.
fn page(from: SocketAddr) -> IoResult<usize> {
    let mut stream = TcpStream::connect(from)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    stream.read_to_end(&mut Vec::new())
}

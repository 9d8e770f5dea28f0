//! HTTP/1.1 by hand: requests that no client library would send.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result};
use xdptun_lab::{Netns, wait};

use crate::LIMIT;

/// An answer, whole.
#[derive(Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The lines between the first one and the body, in lower case.
    pub headers: Vec<String>,
    /// The body.
    pub body: String,
}

/// Connects to a server in a namespace.
pub fn connect(netns: &Netns, address: SocketAddr) -> Result<TcpStream> {
    let limit = wait::stretched(LIMIT)?;
    let stream = netns.enter(|| TcpStream::connect_timeout(&address, limit))?;
    let stream = stream.with_context(|| format!("{address}: cannot connect"))?;
    stream.set_read_timeout(Some(limit))?;
    Ok(stream)
}

/// Sends one request without a body, and reads until the server closes.
pub fn request(netns: &Netns, address: SocketAddr, method: &str, path: &str) -> Result<Answer> {
    request_with(netns, address, method, path, "")
}

/// The same with further headers, each with its end.
pub fn request_with(
    netns: &Netns,
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
) -> Result<Answer> {
    let mut stream = connect(netns, address)?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\n{headers}\r\n"
    )?;
    let mut text = String::new();
    stream.read_to_string(&mut text).context("no answer")?;
    let (head, body) = text.split_once("\r\n\r\n").context("no end of headers")?;
    let mut lines = head.split("\r\n").map(str::to_lowercase);
    let first = lines.next().unwrap_or_default();
    let status = first.strip_prefix("http/1.1 ");
    let status = status.and_then(|rest| rest.get(..3));
    let status = status.with_context(|| format!("not HTTP: {first}"))?;
    Ok(Answer {
        status: status.parse()?,
        headers: lines.collect(),
        body: body.to_owned(),
    })
}

//! Answers to senders whose packets the programs refused, on their way through this host's routing.

use std::io;
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, Protocol as SocketProtocol, Socket, Type};

use crate::group::refusal::Answer;

/// Sockets that send whole packets. The kernel routes them, and netfilter sees them.
pub struct Answers {
    v4: Socket,
    v6: Option<Socket>,
}

impl Answers {
    /// Opens the sockets. A host may have no IPv6.
    ///
    /// # Errors
    ///
    /// If the kernel refuses (CAP_NET_RAW).
    pub fn new() -> io::Result<Self> {
        // They never receive. The protocol says that packets have their IP header (raw(7), ipv6(7)).
        let raw = Some(SocketProtocol::from(libc::IPPROTO_RAW));
        // The process must not wait: answers to inside addresses that nobody has fill the buffer of
        // the socket as long as the kernel looks for their neighbours.
        let open = |domain| Socket::new(domain, Type::RAW.nonblocking(), raw);
        Ok(Self {
            v4: open(Domain::IPV4)?,
            v6: open(Domain::IPV6).ok(),
        })
    }

    /// Sends an answer.
    ///
    /// # Errors
    ///
    /// If the kernel does not take it: no route leads to the sender, or too many answers wait.
    pub fn send(&self, answer: &Answer) -> io::Result<()> {
        let socket = match (answer.to, &self.v6) {
            (IpAddr::V4(_), _) => &self.v4,
            (IpAddr::V6(_), Some(socket)) => socket,
            (IpAddr::V6(_), None) => return Ok(()),
        };
        let to = SocketAddr::new(answer.to, 0);
        socket.send_to(&answer.packet, &to.into()).map(|_| ())
    }
}

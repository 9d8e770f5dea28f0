//! Fragments that wait for the first one of their datagram.

use std::io;
use std::time::Duration;

use tracing::debug;
use xdptun_common::gateway::fragment::Held;
use xdptun_common::parse::FragmentKey;

use crate::gateway::Attached;
use crate::group::queue::{Frame, Limits, Queue};
use crate::host::frame_socket::FrameSocket;

/// Networks that deliver packets out of order do so by milliseconds. A datagram has at most 64 KiB,
/// in fragments that may overlap.
const LIMITS: Limits = Limits {
    for_one: 128 << 10,
    in_all: 4 << 20,
    patience: Duration::from_secs(2),
};

/// The fragments that wait, and the socket by which they go on.
pub struct Fragments {
    queue: Queue<FragmentKey>,
    socket: FrameSocket,
}

impl Fragments {
    /// None.
    ///
    /// # Errors
    ///
    /// If there is no packet socket.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            queue: Queue::new(LIMITS),
            // The process serves all interfaces: it does not wait for one.
            socket: FrameSocket::with_buffer(LIMITS.in_all)?,
        })
    }

    /// Keeps a fragment until its first has come. That may be now: both were on different CPUs.
    pub fn hold(
        &mut self,
        attached: &mut Attached,
        datagram: &FragmentKey,
        interface: u32,
        frame: &[u8],
    ) {
        if self.queue.push(*datagram, interface, frame) {
            self.release_if_come(attached, datagram);
        } else {
            if let Err(error) = attached.maps.requests.note_full() {
                debug!("the programs do not know that there is no room: {error}");
            }
            let bytes = frame.to_owned();
            self.give_up(attached, datagram, &[Frame { interface, bytes }]);
        }
    }

    /// Lets go on what waited for the first fragment of a datagram.
    pub fn release(&mut self, attached: &mut Attached, datagram: &FragmentKey) {
        for Frame { interface, bytes } in self.queue.take(datagram) {
            let is_there = attached.at(interface).is_some();
            let sent = is_there.then(|| self.send(datagram, interface, &bytes));
            if let Some(Err(error)) = &sent {
                debug!("cannot send a fragment that waited: {error}");
            }
            if !matches!(sent, Some(Ok(()))) {
                attached.count_lost(interface, 1);
            }
        }
    }

    /// Looks for firsts whose requests were lost, and gives up what has waited too long.
    pub fn check(&mut self, attached: &mut Attached) {
        for datagram in self.queue.waiting() {
            self.release_if_come(attached, &datagram);
        }
        for (datagram, frames) in self.queue.give_up() {
            self.give_up(attached, &datagram, &frames);
        }
    }

    /// Gives everything up.
    pub fn abandon(&mut self, attached: &mut Attached) {
        for datagram in self.queue.waiting() {
            let frames = self.queue.take(&datagram);
            self.give_up(attached, &datagram, &frames);
        }
    }

    /// Ends the wait for a first fragment. What had come in goes on as it is: it may be for this
    /// host itself, which waits for firsts longer than the daemon and has more room.
    fn give_up(&self, attached: &mut Attached, datagram: &FragmentKey, frames: &[Frame]) {
        attached.count_all_lost(frames);
        if datagram.is_outbound() {
            return;
        }
        for Frame { interface, bytes } in frames {
            if attached.at(*interface).is_some()
                && let Err(error) = self.send(datagram, *interface, bytes)
            {
                debug!("cannot send a fragment that waited in vain: {error}");
            }
        }
    }

    fn release_if_come(&mut self, attached: &mut Attached, datagram: &FragmentKey) {
        match attached.maps.requests.has_come(datagram) {
            Ok(true) => self.release(attached, datagram),
            Ok(false) => {}
            Err(error) => debug!("cannot look for a first fragment: {error}"),
        }
    }

    /// Puts a fragment on its interface, through the egress program, which sends it to ingress if
    /// it had come in.
    fn send(&self, datagram: &FragmentKey, interface: u32, frame: &[u8]) -> io::Result<()> {
        let mark = match datagram.is_outbound() {
            true => Held::Out,
            false => Held::In,
        };
        self.socket
            .send(interface, datagram.is_ipv4(), mark as u32, frame)
    }
}

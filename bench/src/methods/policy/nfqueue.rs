//! A program behind NFQUEUE that searches each packet for a word and lets it pass, without a library:
//! netlink messages of `linux/netfilter/nfnetlink_queue.h`.

use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Socket, Type};
use xdptun_lab::Netns;

use super::path::WORD;

const NETLINK_NETFILTER: i32 = 12;
/// `NFNL_SUBSYS_QUEUE << 8`, and the messages of that.
const SUBSYSTEM: u16 = 3 << 8;
const VERDICT: u16 = SUBSYSTEM | 1;
const CONFIG: u16 = SUBSYSTEM | 2;
/// Attributes.
const PACKET_HEADER: u16 = 1;
const PAYLOAD: u16 = 10;
const VERDICT_HEADER: u16 = 2;
/// Receive buffer in bytes: the larger one of the reference.
const BUFFER: usize = 1_638_400;

/// A queue, and the thread that serves it.
pub struct Queue {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Queue {
    /// Serves queue 0 of a namespace; gets super-packets if they stay `whole`, else segments.
    pub fn start(netns: &Netns, whole: bool) -> Result<Self> {
        let socket = netns.enter(|| {
            Socket::new(
                Domain::from(libc::AF_NETLINK),
                Type::RAW,
                Some(Protocol::from(NETLINK_NETFILTER)),
            )
        })?;
        let socket = socket.context("no netlink socket")?;
        socket.bind(&kernel())?;
        socket.set_recv_buffer_size(BUFFER)?;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        // Bind to the queue; all of each packet, up to 64 KiB.
        send(&socket, CONFIG, &[(1, &[1, 0, 0, 0])])?;
        send(&socket, CONFIG, &[(2, &[0, 0, 0xff, 0xff, 2])])?;
        if whole {
            // NFQA_CFG_F_GSO, as flag and as mask.
            send(&socket, CONFIG, &[(5, &[0, 0, 0, 4]), (4, &[0, 0, 0, 4])])?;
        }
        let ends = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&ends);
        let thread = thread::spawn(move || serve(&socket, &ended));
        Ok(Self {
            ends,
            thread: Some(thread),
        })
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

/// Searches each packet, and lets those pass that have not the word.
fn serve(socket: &Socket, ended: &AtomicBool) {
    let mut buffer = vec![0; 128 << 10];
    while !ended.load(Ordering::Relaxed) {
        // SAFETY: the buffer is as long as it says.
        let len = unsafe {
            libc::recv(
                socket.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                0,
            )
        };
        let Ok(len) = usize::try_from(len) else {
            continue;
        };
        let Some((id, payload)) = packet(&buffer[..len]) else {
            continue;
        };
        let verdict = u32::from(!has_word(payload));
        let header = [verdict.to_be_bytes(), id].concat();
        let _gone = send(socket, VERDICT, &[(VERDICT_HEADER, &header)]);
    }
}

fn has_word(payload: &[u8]) -> bool {
    // SAFETY: both slices are as long as they say.
    let found = unsafe {
        libc::memmem(
            payload.as_ptr().cast(),
            payload.len(),
            WORD.as_ptr().cast(),
            WORD.len(),
        )
    };
    !found.is_null()
}

/// The number and the bytes of the packet of a message.
fn packet(message: &[u8]) -> Option<([u8; 4], &[u8])> {
    let (mut id, mut payload) = (None, None);
    // Behind the headers of netlink and of netfilter.
    let mut rest = message.get(20..)?;
    while let Some(([l0, l1, k0, k1], _)) = rest.split_first_chunk::<4>() {
        let len = usize::from(u16::from_ne_bytes([*l0, *l1]));
        let value = rest.get(4..len)?;
        match u16::from_ne_bytes([*k0, *k1]) {
            PACKET_HEADER => id = value.first_chunk::<4>().copied(),
            PAYLOAD => payload = Some(value),
            _ => {}
        }
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Some((id?, payload?))
}

/// Sends a message about queue 0.
fn send(socket: &Socket, kind: u16, attributes: &[(u16, &[u8])]) -> Result<()> {
    let mut body = vec![0_u8; 4];
    for (name, value) in attributes {
        body.extend((value.len() as u16 + 4).to_ne_bytes());
        body.extend(name.to_ne_bytes());
        body.extend(*value);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    let mut message = (body.len() as u32 + 16).to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    socket.send_to(&message, &kernel())?;
    Ok(())
}

fn kernel() -> SockAddr {
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: `sockaddr_nl` is one of the address types the storage is for.
    let link = unsafe { storage.view_as::<libc::sockaddr_nl>() };
    link.nl_family = libc::AF_NETLINK as u16;
    // SAFETY: filled in above, and no longer than the storage.
    unsafe { SockAddr::new(storage, size_of::<libc::sockaddr_nl>() as libc::socklen_t) }
}

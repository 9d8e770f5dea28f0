//! Events that the programs of a function tell its daemon through a ring buffer.

use std::io;
use std::os::fd::AsRawFd;

use aya::maps::{MapData, RingBuf};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tracing::debug;
use xdptun_common::Plain;

use crate::error::Result;

/// How many events are handled at once, so that a flood cannot keep timers and signals waiting.
const AT_ONCE: usize = 1024;

/// Watches a ring buffer for new entries.
///
/// # Errors
///
/// If the kernel does not watch it.
pub fn watch<T: AsRawFd>(ring: T) -> Result<AsyncFd<T>> {
    // SAFETY: aya's ring buffers own their descriptor, keep it open as long as
    // they live, and always name the same one.
    let watched = unsafe { AsyncFd::register_with_interest(ring, Interest::READABLE) };
    watched.map_err(|error| io::Error::from(error).into())
}

/// Handles events, each with the bytes behind it; returns whether there are no more.
pub fn drain<E: Plain>(events: &mut RingBuf<MapData>, mut handle: impl FnMut(&E, &[u8])) -> bool {
    for _ in 0..AT_ONCE {
        let Some(item) = events.next() else {
            return true;
        };
        let Some(event) = xdptun_common::read_plain::<E>(&item) else {
            debug!("an event of {} bytes is too short", item.len());
            continue;
        };
        handle(&event, item.get(size_of::<E>()..).unwrap_or_default());
    }
    false
}

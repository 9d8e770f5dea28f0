//! A while in which nothing may be lost.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use xdptun_lab::wait;

use crate::journal::{Flaw, Journal};
use crate::traffic::{Client, Stream};
use crate::world::World;

/// How long the last answers may take.
pub const LAST: Duration = Duration::from_secs(1);

/// Waits for a while. Every datagram sent meanwhile must be answered.
pub fn rest(world: &World, pause: Duration, journal: &Journal) {
    let now = || -> Vec<(Arc<Stream>, u32)> {
        let streams = world.clients.iter().flat_map(Client::streams);
        streams
            .map(|stream| (Arc::clone(&stream), stream.account.next()))
            .collect()
    };
    let before = now();
    thread::sleep(pause);
    let after = now();
    let pairs = || before.iter().zip(&after);
    let sent: u32 = pairs().map(|((_, from), (_, to))| to - from).sum();
    let lost = || -> usize {
        let lost = pairs().map(|((stream, from), (_, to))| stream.account.unanswered(*from..*to));
        lost.sum()
    };
    if wait::until(LAST, "all answers", || lost() == 0).is_err() {
        let text = format!("{} of {sent} within {pause:?}", lost());
        journal.find(Flaw::Lost, &text);
    }
}

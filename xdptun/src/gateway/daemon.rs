//! The daemon of a group of interfaces: it removes sessions that are over, and follows the
//! addresses of this host. Packets of sessions never visit it.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tracing::warn;
use xdptun_common::flow::tick::Tick;
use xdptun_common::gateway::session::Entry;
use xdptun_common::gateway::timer::Timers;
use xdptun_common::gateway::tuple::Tuple;

use super::Attached;
use super::maps::Maps;
use super::plan::Plan;
use crate::error::Result;
use crate::group::orders::next;
use crate::group::{End, Order, Orders, Reason};
use crate::host::addresses::AddressWatch;
use crate::host::clock::monotonic_ns;
use crate::host::netlink::LinkChanges;

/// How often the daemon looks for sessions that are over, if that takes no time. The programs
/// do not wait for it: to them such a session is absent.
const PAUSE: Duration = Duration::from_secs(1);

/// How much longer the pause is than the look before it, so that a large table takes a
/// twentieth of a CPU at most.
const REST: u32 = 20;

/// Runs until an order ends it, or an interface comes or goes.
pub async fn run(
    attached: &mut Attached,
    missing: &[String],
    orders: &mut Orders<Reason<Plan>>,
    ready: impl FnOnce(&mut Attached) -> Result<()>,
) -> Result<End<Reason<Plan>>> {
    let mut links = LinkChanges::subscribe()?;
    let mut addresses = AddressWatch::begin(attached.indices())?;
    attached.set_local(&addresses.list().await?)?;
    ready(attached)?;
    let mut sweep_at = Instant::now();
    loop {
        tokio::select! {
            order = next(orders) => return Ok(match order {
                Order::Stop => End::Stopped,
                Order::Pause(reason) => End::Paused(reason),
            }),
            () = links.next() => if attached.interfaces_changed(missing) {
                return Ok(End::InterfacesChanged);
            },
            () = addresses.changed() => match addresses.list().await {
                Ok(addresses) => attached.set_local(&addresses)?,
                Err(error) => warn!("cannot follow the addresses of this host: {error:#}"),
            },
            () = sleep_until(sweep_at) => {
                let began = Instant::now();
                if let Err(error) = sweep(&mut attached.maps) {
                    warn!("cannot remove sessions that are over: {error:#}");
                }
                if attached.interfaces_changed(missing) {
                    return Ok(End::InterfacesChanged);
                }
                sweep_at = Instant::now() + PAUSE.max(began.elapsed() * REST);
            }
        }
    }
}

/// Removes sessions that are over, and tells the programs how many are left.
fn sweep(maps: &mut Maps) -> Result<()> {
    // Before the table: a session that begins to last meanwhile is counted twice until the next
    // sweep, rather than never.
    let moved = maps.moved()?;
    let entries: HashMap<Tuple, Entry> = maps.lasting_entries()?.into_iter().collect();
    let Judged { over, mut left } = judge(&entries, Tick::at(monotonic_ns()));
    for [tuple, opposite] in over {
        // Packets may have passed since the table was read.
        let present = [tuple, opposite].map(|one| maps.entry(&one));
        let [present, answer] = present;
        let now = Tick::at(monotonic_ns());
        match (present?, answer?) {
            (Some(entry), answer) if !is_over(&tuple, &entry, answer.as_ref(), now) => {
                left += counted(&entry, answer.as_ref(), now);
            }
            (_, answer) => {
                maps.remove(&tuple)?;
                // It may be a newer session's by now.
                if answer.is_some_and(|answer| opposite.answer(answer.to) == tuple) {
                    maps.remove(&opposite)?;
                }
            }
        }
    }
    Ok(maps.set_gone(moved.saturating_sub(left))?)
}

/// What a look at the table has found.
struct Judged {
    /// The keys of both directions of sessions that are over.
    over: Vec<[Tuple; 2]>,
    /// How many of the others count.
    left: u64,
}

fn judge(entries: &HashMap<Tuple, Entry>, now: Tick) -> Judged {
    let mut judged = Judged {
        over: Vec::new(),
        left: 0,
    };
    for (tuple, entry) in entries {
        let opposite = tuple.answer(entry.to);
        let answer = entries.get(&opposite);
        if entry.marks().is_answer() && answer.is_some() {
            // It is looked at with the call.
            continue;
        }
        match is_over(tuple, entry, answer, now) {
            true => judged.over.push([*tuple, opposite]),
            false => judged.left += counted(entry, answer, now),
        }
    }
    judged
}

/// 1 if a session takes room from others by this entry: each does once, until it has ended.
fn counted(entry: &Entry, opposite: Option<&Entry>, now: Tick) -> u64 {
    let (marks, _) = entry.with(opposite, now);
    u64::from(entry.marks().is_counted() && !marks.has_ended())
}

/// Whether a session is over.
fn is_over(tuple: &Tuple, entry: &Entry, opposite: Option<&Entry>, now: Tick) -> bool {
    let (marks, seen) = entry.with(opposite, now);
    Timers::DEFAULT.is_over(tuple.protocol(), marks, seen, now)
}

#[cfg(test)]
mod tests {
    use xdptun_common::gateway::session::Marks;
    use xdptun_common::gateway::tuple::Side;
    use xdptun_common::wire::{Flags, Protocol};

    use super::*;

    const NOW: Tick = Tick(100_000_000);
    /// Ticks of a second.
    const SECOND: u32 = 954;

    /// Both entries of a session of this client, each silent for so many seconds.
    fn session(client: u16, marks: Marks, silence: [u32; 2]) -> [(Tuple, Entry); 2] {
        let [listen, back_end] =
            ["203.0.113.7:7000", "10.0.0.5:80"].map(|end| end.parse().unwrap());
        let client = format!("192.0.2.1:{client}").parse().unwrap();
        let call = Tuple::new(client, listen, Protocol::TCP, Side::In);
        let seen = silence.map(|seconds| NOW.0 - seconds * SECOND);
        let to = back_end.into();
        [
            (call, Entry::new(to, marks, seen[0])),
            (
                call.answer(to),
                Entry::new(call.translated(), marks.in_answer(), seen[1]),
            ),
        ]
    }

    fn judged(sessions: &[[(Tuple, Entry); 2]]) -> (usize, u64) {
        let entries = sessions.iter().flatten().copied().collect();
        let Judged { over, left } = judge(&entries, NOW);
        (over.len(), left)
    }

    #[test]
    fn a_session_is_over_when_both_ends_are_silent() {
        let open = Marks::default().proven();
        assert_eq!(judged(&[session(1, open, [7000, 7000])]), (0, 1));
        assert_eq!(judged(&[session(1, open, [8000, 7000])]), (0, 1));
        assert_eq!(judged(&[session(1, open, [7000, 8000])]), (0, 1));
        assert_eq!(judged(&[session(1, open, [8000, 8000])]), (1, 0));
    }

    #[test]
    fn ends_of_either_direction_count_together() {
        let open = Marks::default().proven();
        let half = open.after(Flags::FIN);
        let [call, mut answer] = session(1, half, [300, 300]);
        answer.1.marks = open.in_answer().0;
        assert_eq!(judged(&[[call, answer]]), (0, 1));
        answer.1.marks = open.in_answer().after(Flags::FIN).0;
        assert_eq!(judged(&[[call, answer]]), (1, 0));
        // It takes no room from others once it has ended.
        let [mut call, mut answer] = session(1, half, [100, 100]);
        answer.1.marks = open.in_answer().after(Flags::FIN).0;
        call.1.marks = half.0;
        assert_eq!(judged(&[[call, answer]]), (0, 0));
    }

    #[test]
    fn what_translates_a_source_is_no_session_of_its_own() {
        let open = Marks::default().proven();
        let sessions = [
            session(1, open, [1, 1]),
            session(2, open.masquerading(), [1, 1]),
        ];
        assert_eq!(judged(&sessions), (0, 1));
    }

    #[test]
    fn an_entry_without_its_other_direction_goes_alone() {
        let open = Marks::default().proven();
        for (index, silence, expected) in [
            (0, 8000, (1, 0)),
            (1, 8000, (1, 0)),
            (1, 1, (0, 0)),
            (0, 1, (0, 1)),
        ] {
            let entry = session(1, open, [silence; 2])[index];
            let entries = HashMap::from([entry]);
            let Judged { over, left } = judge(&entries, NOW);
            assert_eq!((over.len(), left), expected, "{index} {silence}");
        }
    }
}

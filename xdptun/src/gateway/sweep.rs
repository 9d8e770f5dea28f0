//! Removes sessions that are over, and counts the others.
//!
//! The programs ignore sessions that are over; a sweep only frees their memory and room. It reads
//! the table in parts and keeps none, so a million sessions take no more memory than one. Most
//! entries were seen lately and need no look at their other direction.

use tokio::task::yield_now;
use xdptun_common::flow::tick::Tick;
use xdptun_common::gateway::session::Entry;
use xdptun_common::gateway::timer::Timers;
use xdptun_common::gateway::tuple::Tuple;

use super::maps::Maps;
use crate::error::Result;
use crate::host::clock::monotonic_ns;

/// Sweeps, and remembers how full the table was.
#[derive(Default)]
pub struct Sweeper {
    /// How many entries the last sweep has seen.
    entries: usize,
}

/// The share of the table beyond which ended connections make room sooner.
const FULL: (usize, usize) = (3, 4);

/// How many seconds an ended connection stays then. Its client may still repeat its last segments
/// for so long.
const ENDED_WHEN_FULL: u32 = 10;

impl Sweeper {
    /// Removes sessions that are over, and tells the programs how many are left. Lets other tasks
    /// go on between parts of the table.
    ///
    /// # Errors
    ///
    /// If a map cannot be read or written.
    pub async fn sweep(&mut self, maps: &mut Maps) -> Result<()> {
        // Before the table: a session that begins to last meanwhile is counted twice until the
        // next sweep, rather than never.
        let moved = maps.moved()?;
        let is_full = self.entries * FULL.1 > maps.capacity() * FULL.0;
        let timers = maps.timers()?;
        let mut sweep = Sweep {
            timers: if is_full {
                timers.with_ended(ENDED_WHEN_FULL)
            } else {
                timers
            },
            now: || Tick::at(monotonic_ns()),
            counted: 0,
        };
        let mut entries = 0;
        for part in maps.lasting_parts()? {
            let part = part?;
            entries += part.len();
            for (tuple, entry) in part {
                sweep.visit(maps, &tuple, &entry)?;
            }
            yield_now().await;
        }
        self.entries = entries;
        let left = u64::try_from(sweep.counted).unwrap_or_default();
        Ok(maps.set_gone(moved.saturating_sub(left))?)
    }
}

/// The table of sessions, entry by entry.
pub(super) trait Table {
    /// An entry as it is now, if it is there.
    fn entry(&self, tuple: &Tuple) -> Result<Option<Entry>>;
    /// Removes an entry.
    fn remove(&mut self, tuple: &Tuple) -> Result<()>;
}

impl Table for Maps {
    fn entry(&self, tuple: &Tuple) -> Result<Option<Entry>> {
        Ok(self.entry(tuple)?)
    }

    fn remove(&mut self, tuple: &Tuple) -> Result<()> {
        Ok(self.remove(tuple)?)
    }
}

/// A walk through the table.
struct Sweep<N> {
    timers: Timers,
    now: N,
    /// How many sessions take room from others.
    counted: i64,
}

impl<N: Fn() -> Tick> Sweep<N> {
    /// Looks at an entry, as it was read a moment ago.
    fn visit(&mut self, table: &mut impl Table, tuple: &Tuple, read: &Entry) -> Result<()> {
        let is_recent = self.is_recent(tuple, read);
        if read.marks().is_answer() {
            if read.marks().has_fin_or_rst() {
                self.uncount_ended(table, tuple, read)?;
            }
            if !is_recent {
                self.remove_orphan(table, tuple)?;
            }
        } else if is_recent {
            self.counted += i64::from(takes_room(read));
        } else {
            self.remove_or_count(table, tuple)?;
        }
        Ok(())
    }

    /// Whether this direction alone shows that the session lives: its last packet is younger than
    /// every timeout.
    fn is_recent(&self, tuple: &Tuple, entry: &Entry) -> bool {
        (self.now)().since(entry.seen) <= self.timers.shortest(tuple.protocol())
    }

    /// Removes a session by the direction that began it, or counts it.
    fn remove_or_count(&mut self, table: &mut impl Table, tuple: &Tuple) -> Result<()> {
        let Some(call) = table.entry(tuple)? else {
            return Ok(());
        };
        let opposite = tuple.answer(call.to);
        let answer = table.entry(&opposite)?;
        // It may be another session's by now.
        let answer = answer.filter(|answer| opposite.answer(answer.to) == *tuple);
        if self.is_over(tuple, &call, answer.as_ref()) {
            table.remove(tuple)?;
            if answer.is_some() {
                table.remove(&opposite)?;
            }
        } else {
            let is_over = answer.is_some_and(|answer| has_ended(&call, &answer));
            self.counted += i64::from(takes_room(&call) && !is_over);
        }
        Ok(())
    }

    /// Removes the direction of answers if it is over and the other one is gone.
    fn remove_orphan(&self, table: &mut impl Table, tuple: &Tuple) -> Result<()> {
        let Some(answer) = table.entry(tuple)? else {
            return Ok(());
        };
        if call_of(table, tuple, &answer)?.is_none() && self.is_over(tuple, &answer, None) {
            table.remove(tuple)?;
        }
        Ok(())
    }

    /// Uncounts a session that the direction of answers has ended: [`Sweep::visit`] counts it by
    /// its other direction.
    fn uncount_ended(&mut self, table: &impl Table, tuple: &Tuple, answer: &Entry) -> Result<()> {
        let Some((call_tuple, call)) = call_of(table, tuple, answer)? else {
            return Ok(());
        };
        // `remove_or_count` handles a call that is not recent, with its answer.
        let is_counted = self.is_recent(&call_tuple, &call) && takes_room(&call);
        self.counted -= i64::from(is_counted && has_ended(&call, answer));
        Ok(())
    }

    fn is_over(&self, tuple: &Tuple, entry: &Entry, opposite: Option<&Entry>) -> bool {
        let now = (self.now)();
        let (marks, seen) = entry.with(opposite, now);
        self.timers.is_over(tuple.protocol(), marks, seen, now)
    }
}

/// The direction that began the session with this answer, if it is there.
fn call_of(table: &impl Table, tuple: &Tuple, answer: &Entry) -> Result<Option<(Tuple, Entry)>> {
    let call_tuple = tuple.answer(answer.to);
    let call = table.entry(&call_tuple)?;
    let call = call.filter(|call| call_tuple.answer(call.to) == *tuple);
    Ok(call.map(|call| (call_tuple, call)))
}

/// Whether a session takes room from others by this entry, as far as that tells.
const fn takes_room(entry: &Entry) -> bool {
    entry.marks().is_counted() && !entry.marks().has_ended()
}

/// Whether a connection has ended.
const fn has_ended(call: &Entry, answer: &Entry) -> bool {
    call.marks().with(answer.marks()).has_ended()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::SocketAddr;

    use xdptun_common::gateway::session::Marks;
    use xdptun_common::gateway::tuple::Side;
    use xdptun_common::wire::{Flags, Protocol};

    use super::*;

    const NOW: Tick = Tick(100_000_000);
    /// Ticks of a second.
    const SECOND: u32 = 954;

    impl Table for BTreeMap<Tuple, Entry> {
        fn entry(&self, tuple: &Tuple) -> Result<Option<Entry>> {
            Ok(self.get(tuple).copied())
        }

        fn remove(&mut self, tuple: &Tuple) -> Result<()> {
            self.remove(tuple);
            Ok(())
        }
    }

    /// Both entries of a session of this client, each silent for so many seconds.
    fn session(client: u16, marks: [Marks; 2], silence: [u32; 2]) -> [(Tuple, Entry); 2] {
        let [listen, back_end] =
            ["203.0.113.7:7000", "10.0.0.5:80"].map(|end| end.parse().unwrap());
        let client = format!("192.0.2.1:{client}").parse().unwrap();
        let call = Tuple::new(client, listen, Protocol::TCP, Side::In);
        let seen = silence.map(|seconds| NOW.0 - seconds * SECOND);
        let to = back_end.into();
        [
            (call, Entry::new(to, marks[0], seen[0])),
            (
                call.answer(to),
                Entry::new(call.translated(), marks[1], seen[1]),
            ),
        ]
    }

    /// How many entries a sweep leaves, and how many sessions it counts.
    fn swept(entries: &[(Tuple, Entry)]) -> (usize, i64) {
        let mut table: BTreeMap<Tuple, Entry> = entries.iter().copied().collect();
        let mut sweep = Sweep {
            timers: Timers::DEFAULT,
            now: || NOW,
            counted: 0,
        };
        for (tuple, entry) in table.clone() {
            sweep.visit(&mut table, &tuple, &entry).unwrap();
        }
        (table.len(), sweep.counted)
    }

    fn open() -> [Marks; 2] {
        let call = Marks::default().proven();
        [call, call.in_answer()]
    }

    #[test]
    fn a_session_is_over_when_both_ends_are_silent() {
        for (silence, expected) in [
            ([1, 1], (2, 1)),
            ([300, 1], (2, 1)),
            ([1, 300], (2, 1)),
            ([7000, 7000], (2, 1)),
            ([8000, 7000], (2, 1)),
            ([7000, 8000], (2, 1)),
            ([8000, 8000], (0, 0)),
        ] {
            assert_eq!(swept(&session(1, open(), silence)), expected, "{silence:?}");
        }
    }

    /// One that has ended takes no room from others, and is kept for a while.
    #[test]
    fn ends_of_either_direction_count_together() {
        let [call, answer] = open();
        let [fin, rst] = [Flags::FIN, Flags::RST];
        for (marks, silence, expected) in [
            ([call.after(fin), answer], 1, (2, 1)),
            ([call, answer.after(fin)], 1, (2, 1)),
            ([call.after(fin), answer], 300, (2, 1)),
            ([call.after(fin), answer.after(fin)], 1, (2, 0)),
            ([call.after(fin), answer.after(fin)], 230, (2, 0)),
            ([call.after(fin), answer.after(fin)], 300, (0, 0)),
            ([call.after(rst), answer], 1, (2, 0)),
            ([call, answer.after(rst)], 1, (2, 0)),
            ([call, answer.after(rst)], 300, (0, 0)),
        ] {
            let found = swept(&session(1, marks, [silence; 2]));
            assert_eq!(found, expected, "{marks:?} {silence}");
            // The directions may have been seen at different times.
            if silence == 1 {
                for silence in [[1, 300], [300, 1]] {
                    assert_eq!(swept(&session(1, marks, silence)), expected, "{marks:?}");
                }
            }
        }
    }

    #[test]
    fn what_translates_a_source_is_no_session_of_its_own() {
        let translating = open().map(Marks::masquerading);
        for silence in [1, 300] {
            let sessions = [
                session(1, open(), [silence; 2]),
                session(2, translating, [silence; 2]),
            ];
            assert_eq!(swept(sessions.as_flattened()), (4, 1));
        }
    }

    #[test]
    fn an_entry_without_its_other_direction_goes_alone() {
        for (index, silence, expected) in [
            (0, 8000, (0, 0)),
            (1, 8000, (0, 0)),
            (1, 1, (1, 0)),
            (0, 1, (1, 1)),
        ] {
            let entry = session(1, open(), [silence; 2])[index];
            assert_eq!(swept(&[entry]), expected, "{index} {silence}");
        }
    }

    /// The back end answers the same client for another listen address by now.
    #[test]
    fn the_answer_of_another_session_stays() {
        let [old, mut answer] = session(1, open(), [8000; 2]);
        answer.1.seen = NOW.0;
        answer.1.to = "203.0.113.8:7000".parse().map(SocketAddr::into).unwrap();
        assert_eq!(swept(&[old, answer]), (1, 0));
    }
}

//! Removes sessions that are over, and counts the others.
//!
//! The programs ignore sessions that are over; a sweep only frees their memory and room. It reads
//! the table in parts and keeps none, so a million sessions take no more memory than one. Most
//! entries were seen lately and need no look at their other direction.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use tokio::task::yield_now;
use xdptun_common::flow::tick::Tick;
use xdptun_common::gateway::nat::{BINDING_REST, HostKey, OutsideKey};
use xdptun_common::gateway::session::Entry;
use xdptun_common::gateway::timer::Timers;
use xdptun_common::gateway::tuple::{End, Side, Tuple};

use super::bindings::Bindings;
use super::maps::Maps;
use crate::error::Result;
use crate::host::clock::monotonic_ns;

/// Sweeps, and remembers how full the table was.
#[derive(Default)]
pub struct Sweeper {
    /// How many entries the last sweep has seen.
    entries: usize,
    /// When this host last had each outside address.
    outside: BTreeMap<[u8; 16], Instant>,
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
        self.note_outside(maps);
        let mut sweep = Sweep {
            gone: self.gone(timers),
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
        maps.set_gone(moved.saturating_sub(left))?;
        maps.cut.sweep()?;
        sweep_bindings(&mut maps.bindings, &self.gone(timers)).await
    }

    /// Notes which outside addresses this host has now.
    fn note_outside(&mut self, maps: &Maps) {
        let nats = maps.bindings.by_name.values();
        let now = Instant::now();
        self.outside.extend(nats.map(|nat| (nat.outside, now)));
    }

    /// The outside addresses that this host has had no more for as long as an ended connection
    /// stays: sessions and bindings of these are over, as no packet reaches them. One that comes
    /// back sooner finds them.
    fn gone(&self, timers: Timers) -> BTreeSet<[u8; 16]> {
        let stays = Duration::from_nanos(u64::from(timers.tcp_ended) << 20);
        let all = self.outside.iter();
        let gone = all.filter(|(_, seen)| seen.elapsed() > stays);
        gone.map(|(address, _)| *address).collect()
    }
}

/// Removes bindings whose time has passed, and tells the programs how many are left of each inside
/// host.
async fn sweep_bindings(bindings: &mut Bindings, gone: &BTreeSet<[u8; 16]>) -> Result<()> {
    // Before the table, for the same reason.
    let hosts = bindings.hosts()?;
    let mut left: BTreeMap<HostKey, u32> = BTreeMap::new();
    for part in bindings.parts()? {
        for (key, _) in part? {
            let now = Tick::at(monotonic_ns());
            let Some(binding) = bindings.binding(&key)? else {
                continue;
            };
            if binding.lasts(now) && !gone.contains(&key.end().address()) {
                *left
                    .entry(HostKey::made(binding.inside.address()))
                    .or_default() += 1;
            } else {
                bindings.remove(&key, &binding)?;
            }
        }
        yield_now().await;
    }
    for (made, number) in hosts.iter().filter(|(key, _)| key.is_made()) {
        let left = left.get(made).copied().unwrap_or_default();
        let gone = number.wrapping_sub(left);
        let was = hosts.get(&made.gone()).copied().unwrap_or_default();
        if left == 0 {
            bindings.forget_host(*made)?;
        } else if was != gone {
            bindings.set_host(made.gone(), gone)?;
        }
    }
    Ok(())
}

/// The table of sessions, entry by entry.
pub(super) trait Table {
    /// An entry as it is now, if it is there.
    fn entry(&self, tuple: &Tuple) -> Result<Option<Entry>>;
    /// Removes an entry.
    fn remove(&mut self, tuple: &Tuple) -> Result<()>;
    /// Lets the binding of an outside end last until then at least.
    fn keep(&mut self, outside: &OutsideKey, inside: End, until: u32) -> Result<()>;
}

impl Table for Maps {
    fn entry(&self, tuple: &Tuple) -> Result<Option<Entry>> {
        Ok(self.entry(tuple)?)
    }

    fn remove(&mut self, tuple: &Tuple) -> Result<()> {
        Ok(self.remove(tuple)?)
    }

    fn keep(&mut self, outside: &OutsideKey, inside: End, until: u32) -> Result<()> {
        Ok(self.bindings.keep(outside, inside, until)?)
    }
}

/// A walk through the table.
struct Sweep<N> {
    timers: Timers,
    /// Outside addresses whose sessions are over.
    gone: BTreeSet<[u8; 16]>,
    now: N,
    /// How many sessions take room from others.
    counted: i64,
}

impl<N: Fn() -> Tick> Sweep<N> {
    /// Looks at an entry, as it was read a moment ago.
    fn visit(&mut self, table: &mut impl Table, tuple: &Tuple, read: &Entry) -> Result<()> {
        let is_recent = self.is_recent(tuple, read) && !self.is_gone(tuple, read);
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
            self.keep_binding(table, tuple, &call, answer.as_ref())?;
            let is_over = answer.is_some_and(|answer| has_ended(&call, &answer));
            self.counted += i64::from(takes_room(&call) && !is_over);
        }
        Ok(())
    }

    /// Lets the binding of a silent session last as long as the session. Another session of the same
    /// inside end may have told it to end sooner, when it ended itself.
    fn keep_binding(
        &self,
        table: &mut impl Table,
        tuple: &Tuple,
        call: &Entry,
        answer: Option<&Entry>,
    ) -> Result<()> {
        if !call.marks().is_bound() {
            return Ok(());
        }
        let (inside, outside) = match tuple.side() {
            Side::In => (call.to, tuple.destination()),
            Side::Out => (tuple.source(), call.to),
        };
        let (marks, seen) = call.with(answer, (self.now)());
        let life = self.timers.of(tuple.protocol(), marks);
        let until = seen.wrapping_add(life).wrapping_add(BINDING_REST);
        table.keep(&OutsideKey::new(outside, tuple.protocol()), inside, until)
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

    /// Whether the session translates to an outside address that this host has no more.
    fn is_gone(&self, tuple: &Tuple, entry: &Entry) -> bool {
        let outside = match tuple.side() {
            Side::In => tuple.destination(),
            Side::Out => entry.to,
        };
        entry.marks().is_bound() && self.gone.contains(&outside.address())
    }

    fn is_over(&self, tuple: &Tuple, entry: &Entry, opposite: Option<&Entry>) -> bool {
        let now = (self.now)();
        let (marks, seen) = entry.with(opposite, now);
        self.is_gone(tuple, entry) || self.timers.is_over(tuple.protocol(), marks, seen, now)
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
    use std::net::SocketAddr;

    use xdptun_common::address::address_bytes;
    use xdptun_common::gateway::session::Marks;
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

        fn keep(&mut self, _: &OutsideKey, _: End, _: u32) -> Result<()> {
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
            gone: BTreeSet::from([gone_address()]),
            now: || NOW,
            counted: 0,
        };
        for (tuple, entry) in table.clone() {
            sweep.visit(&mut table, &tuple, &entry).unwrap();
        }
        (table.len(), sweep.counted)
    }

    fn gone_address() -> [u8; 16] {
        address_bytes([203, 0, 113, 9].into())
    }

    /// Open sessions of an inside host, whose last packets were a second ago.
    #[test]
    fn sessions_of_an_address_that_is_gone_are_over() {
        for (outside, expected) in [("203.0.113.8:5000", (2, 1)), ("203.0.113.9:5000", (0, 0))] {
            let [inside, remote, outside] =
                ["10.0.0.5:5000", "192.0.2.1:80", outside].map(|end| end.parse().unwrap());
            let call = Tuple::new(inside, remote, Protocol::TCP, Side::Out);
            let seen = NOW.0 - SECOND;
            let to: End = SocketAddr::into(outside);
            let marks = open().map(Marks::bound);
            let entries = [
                (call, Entry::new(to, marks[0], seen)),
                (call.answer(to), Entry::new(inside.into(), marks[1], seen)),
            ];
            assert_eq!(swept(&entries), expected, "{outside}");
        }
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

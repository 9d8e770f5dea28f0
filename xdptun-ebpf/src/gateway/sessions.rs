//! The table of sessions: two entries for each, one for each direction
//! ([`xdptun_common::gateway::session`]).
//!
//! A session begins among those that wait for proof, in a table from which the kernel evicts
//! the one that was used least lately. It moves to those that last when its caller goes on after
//! an answer, with the answer's number if it is TCP. So an attacker who forges source addresses
//! evicts only sessions that wait for proof.

use aya_ebpf::Global;
use aya_ebpf::bindings::{BPF_ANY, BPF_F_NO_PREALLOC, BPF_NOEXIST};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, LruHashMap};
use xdptun_common::flow::tick::Tick;
use xdptun_common::gateway::session::{Entry, Marks, acknowledges};
use xdptun_common::gateway::timer::Timers;
use xdptun_common::gateway::tuple::{End, Tuple};
use xdptun_common::wire::{Flags, Protocol};

use crate::flow::word::Word;
use crate::gateway::at_hand::{AtHand, at_hand};

/// The sessions that last. Not LRU, so that no flood pushes one out, and not preallocated, so
/// that ended ones give their memory back. User space sets the capacity.
#[map]
pub static SESSIONS: HashMap<Tuple, Entry> = HashMap::with_max_entries(65536, BPF_F_NO_PREALLOC);

/// The sessions that wait for proof.
#[map]
pub static EMBRYONIC: LruHashMap<Tuple, Entry> = LruHashMap::with_max_entries(65536, 0);

/// How many sessions began to last: at 0 those that the programs moved, at 1 how many of these
/// the daemon has removed.
#[map]
pub static LASTING: Array<u64> = Array::with_max_entries(2, 0);

#[unsafe(no_mangle)]
static MAX_SESSIONS: Global<u32> = Global::new(65536);

#[unsafe(no_mangle)]
static TIMERS: Global<Timers> = Global::new(Timers::DEFAULT);

/// An entry of either table. Stays readable for the whole program run. One that waits for proof
/// may become another session's in the middle of it: what is written then is a time, a count or
/// a mark of the wrong session, which costs that session no packet.
#[derive(Clone, Copy)]
pub struct Found(*mut Entry);

/// A word of the entry by its field name.
macro_rules! word {
    ($found:expr, $field:ident) => {
        // SAFETY: a field of a map value that the look-up returned; `Entry` is `repr(C)` and
        // its words are aligned.
        unsafe { Word::new(&raw mut (*$found.0).$field) }
    };
}

/// The entry for a packet, unless its session is over.
#[inline(always)]
pub fn find(tuple: &Tuple, now: Tick) -> Option<Found> {
    let found = either(tuple)?;
    let protocol = tuple.protocol();
    let own_seen = word!(found, seen).load();
    // Most packets follow another one closely.
    if now.since(own_seen) <= TIMERS.load().shortest(protocol) {
        return Some(found);
    }
    is_alive(tuple, found, now).then_some(found)
}

/// Whether a session of which one direction was silent for long is not over.
#[inline(never)]
fn is_alive(tuple: &Tuple, found: Found, now: Tick) -> bool {
    !is_over(tuple.protocol(), found, opposite(tuple, found), now)
}

/// The other direction of a session, if it is in a table. Its key is in [`AtHand::opposite`]
/// then.
#[inline(always)]
fn opposite(tuple: &Tuple, found: Found) -> Option<Found> {
    let at_hand = at_hand()?;
    at_hand.opposite = tuple.answer(found.to());
    either(&at_hand.opposite)
}

/// The entry of either table.
#[inline(always)]
fn either(tuple: &Tuple) -> Option<Found> {
    let entry = SESSIONS.get_ptr_mut(tuple);
    entry.or_else(|| EMBRYONIC.get_ptr_mut(tuple)).map(Found)
}

#[inline(always)]
fn is_over(protocol: Protocol, found: Found, opposite: Option<Found>, now: Tick) -> bool {
    let (mut seen, mut marks) = (word!(found, seen).load(), found.marks());
    if let Some(opposite) = opposite {
        let later = word!(opposite, seen).load();
        if now.since(later) < now.since(seen) {
            seen = later;
        }
        marks = marks.with(opposite.marks());
    }
    TIMERS.load().is_over(protocol, marks, seen, now)
}

/// Whether an answer with this tuple belongs to a session that is open, and so cannot be
/// another's. A session that is over, or whose connection has ended, makes room.
#[inline(never)]
pub fn is_taken(answer: &Tuple, now: Tick) -> bool {
    let Some(found) = either(answer) else {
        return false;
    };
    let opposite = opposite(answer, found);
    let marks = match opposite {
        Some(opposite) => found.marks().with(opposite.marks()),
        None => found.marks(),
    };
    if !marks.has_ended() && !is_over(answer.protocol(), found, opposite, now) {
        return true;
    }
    if let Some(at_hand) = at_hand() {
        remove(&at_hand.opposite);
    }
    remove(answer);
    false
}

/// Removes an entry from whichever table it is in.
#[inline(always)]
fn remove(tuple: &Tuple) {
    // It may be gone already.
    let _ = SESSIONS.remove(tuple);
    let _ = EMBRYONIC.remove(tuple);
}

/// Whether one more session may begin.
#[inline(always)]
pub fn has_room() -> bool {
    let count = |index| {
        // SAFETY: map values; both only grow.
        LASTING
            .get_ptr(index)
            .map_or(0, |count| unsafe { count.read_volatile() })
    };
    count(0).wrapping_sub(count(1)) < u64::from(MAX_SESSIONS.load())
}

/// Enters one direction of a session that waits for proof.
#[inline(never)]
pub fn enter(tuple: &Tuple, to: &End, marks: Marks, now: Tick) -> bool {
    let Some(at_hand) = at_hand() else {
        return false;
    };
    at_hand.entry = Entry::new(*to, marks, now.0);
    // By reference: a copy would be on the stack.
    let entry: &Entry = &at_hand.entry;
    EMBRYONIC.insert(tuple, entry, u64::from(BPF_ANY)).is_ok()
}

/// What came of a packet for its session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Noted {
    /// It goes on.
    GoesOn,
    /// It moved to those that last.
    Proven,
    /// It should last, and there is no room.
    Full,
    /// A connection between the same ends begins anew.
    Reopened,
}

impl Found {
    /// What the end that the hook translates becomes.
    #[inline(always)]
    pub fn to(self) -> End {
        // SAFETY: a field of a map value, which does not change.
        unsafe { (&raw const (*self.0).to).read() }
    }

    /// The marks of this direction.
    #[inline(always)]
    pub fn marks(self) -> Marks {
        Marks(word!(self, marks).load())
    }

    /// Copies it, word by word: `memcpy` is a call that needs stack.
    #[inline(always)]
    fn copy_to(self, copy: &mut Entry) {
        let (from, to) = (
            self.0.cast::<u64>(),
            core::ptr::from_mut(copy).cast::<u64>(),
        );
        for word in 0..size_of::<Entry>() / size_of::<u64>() {
            // SAFETY: both are entries, whose words are aligned; other CPUs change whole words.
            unsafe { to.add(word).write_volatile(from.add(word).read_volatile()) };
        }
    }

    /// Notes the packet at hand, which is of this direction.
    #[inline(always)]
    pub fn note(self, at_hand: &AtHand) -> Noted {
        word!(self, packets).fetch_add(1);
        word!(self, bytes).fetch_add(u64::from(at_hand.len));
        let seen = word!(self, seen);
        if seen.load() != at_hand.now.0 {
            seen.store(at_hand.now.0);
        }
        let before = self.marks();
        let after = before.after(at_hand.flags);
        if after != before {
            // If another CPU was faster, what it noted stays.
            word!(self, marks).replace(before.0, after.0);
        }
        if after.is_proven() && !at_hand.flags.contains(Flags::SYN) {
            return Noted::GoesOn;
        }
        note_rare(self)
    }
}

/// Notes a packet of a session that waits for proof, or one with SYN.
#[inline(never)]
fn note_rare(found: Found) -> Noted {
    let Some(at_hand) = at_hand() else {
        return Noted::GoesOn;
    };
    let marks = found.marks();
    if at_hand.flags.contains(Flags::SYN) {
        // SAFETY: a field of a map value.
        unsafe { (&raw mut (*found.0).number).write(at_hand.sequence.to_be_bytes()) };
    }
    let Some(opposite) = opposite(&at_hand.packet, found) else {
        return Noted::GoesOn;
    };
    if marks.is_proven() {
        let begins = !marks.is_answer() && !at_hand.flags.contains(Flags::ACK);
        if !begins || !marks.with(opposite.marks()).has_ended() {
            return Noted::GoesOn;
        }
        for one in [found, opposite] {
            word!(one, marks).store(one.marks().reopened().0);
        }
        return Noted::Reopened;
    }
    let is_answered = !marks.is_answer() && opposite.marks().is_used();
    if !is_answered || !proves(at_hand, opposite) {
        return Noted::GoesOn;
    }
    if !promote(&at_hand.packet, found) || !promote(&at_hand.opposite, opposite) {
        return Noted::Full;
    }
    if marks.is_counted()
        && let Some(count) = LASTING.get_ptr_mut(0)
    {
        // SAFETY: a map value, aligned.
        unsafe { Word::new(count) }.fetch_add(1);
    }
    Noted::Proven
}

/// Whether the packet at hand shows that its sender got the answer.
#[inline(always)]
fn proves(at_hand: &AtHand, answer: Found) -> bool {
    if at_hand.packet.protocol() != Protocol::TCP {
        return true;
    }
    // SAFETY: a field of a map value.
    let syn = u32::from_be_bytes(unsafe { (&raw const (*answer.0).number).read() });
    at_hand.flags.contains(Flags::ACK)
        && !at_hand.flags.intersects(Flags::SYN.with(Flags::RST))
        && acknowledges(at_hand.acknowledgement, syn)
}

/// Moves an entry to those that last. Whether it is there; another CPU may have moved it.
#[inline(never)]
fn promote(tuple: &Tuple, found: Found) -> bool {
    let Some(at_hand) = at_hand() else {
        return false;
    };
    found.copy_to(&mut at_hand.entry);
    at_hand.entry.marks = at_hand.entry.marks().proven().0;
    let entry: &Entry = &at_hand.entry;
    let inserted = SESSIONS.insert(tuple, entry, u64::from(BPF_NOEXIST));
    if inserted.is_err() && SESSIONS.get_ptr(tuple).is_none() {
        return false;
    }
    let _ = EMBRYONIC.remove(tuple);
    true
}

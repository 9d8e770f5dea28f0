//! The table of sessions: two entries for each, one for each direction
//! ([`xdptun_common::gateway::session`]).
//!
//! A session begins among those that wait for proof, in a table from which the kernel evicts
//! the one that was used least lately. It moves to those that last when its caller goes on after
//! an answer, with the answer's number if it is TCP. So an attacker who forges source addresses
//! evicts only sessions that wait for proof.

use aya_ebpf::Global;
use aya_ebpf::bindings::{BPF_ANY, BPF_NOEXIST};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, LruHashMap};
use xdptun_common::flow::tick::Tick;
use xdptun_common::gateway::nat::is_to_tell;
use xdptun_common::gateway::session::{Entry, Marks, Noted, acknowledges, believed};
use xdptun_common::gateway::timer::Timers;
use xdptun_common::gateway::tuple::{End, Side, Tuple};
use xdptun_common::wire::{Flags, Protocol};

use crate::flow::word::Word;
use crate::gateway::at_hand::{AtHand, at_hand};
use crate::gateway::bindings::{self, Told};
use crate::gateway::open::can_begin;
use crate::host::growth::FLAGS_WITH_ATOMICS;

/// The sessions that last. Not LRU, so that no flood pushes one out, and not preallocated on 64-bit
/// kernels, so that ended ones give their memory back. User space sets the capacity.
#[map]
pub static SESSIONS: HashMap<Tuple, Entry> = HashMap::with_max_entries(65536, FLAGS_WITH_ATOMICS);

/// The sessions that wait for proof.
#[map]
pub static EMBRYONIC: LruHashMap<Tuple, Entry> = LruHashMap::with_max_entries(65536, 0);

/// How many sessions began to last: at 0 those that the programs moved, at 1 how many of these
/// the daemon has removed.
#[map]
pub static LASTING: Array<u64> = Array::with_max_entries(2, 0);

#[unsafe(no_mangle)]
static MAX_SESSIONS: Global<u32> = Global::new(65536);

/// How long sessions live without a packet. User space writes it before anything is attached.
#[map]
pub static TIMERS: Array<Timers> = Array::with_max_entries(1, 0);

/// The entry of `TIMERS`: always there, but the verifier does not know that.
#[inline(always)]
fn timers() -> Option<&'static Timers> {
    // SAFETY: a map value, whose words user space replaces one by one.
    TIMERS.get_ptr(0).map(|timers| unsafe { &*timers })
}

/// An entry of either table. Stays readable for the whole program run. One that waits for proof
/// may become another session's in the middle of it: what is written then is a time, a count or
/// a mark of the wrong session, which costs that session no packet.
#[derive(Clone, Copy)]
pub struct Found(*mut Entry);

impl Found {
    /// The entry that a global function was given; `None` if that is null.
    #[inline(always)]
    fn given(entry: *mut Entry) -> Option<Self> {
        (!entry.is_null()).then_some(Self(entry))
    }
}

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
    // Most packets belong to a session that lasts, and follow another one closely.
    if found.marks().is_proven() && now.since(own_seen) <= timers()?.shortest(protocol) {
        return Some(found);
    }
    (gateway_is_alive(tuple, found.0, now.0) != 0).then_some(found)
}

/// Whether the packet at hand, of a session that was found, gets the source that it should have
/// when it leaves. What translates the source is a session of its own, which may be over sooner;
/// without it the packet would leave with the client's source. It begins anew then.
#[inline(always)]
pub fn can_leave(found: Found) -> bool {
    !found.marks().is_leaving() || gateway_leaves(found.0) != 0
}

// Global functions (the verifier's word), which the verifier walks once and not once for each way
// that leads to them. For all it knows the pointers may be null.

/// See [`can_leave`].
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn gateway_leaves(entry: *mut Entry) -> u32 {
    let (Some(at_hand), Some(found)) = (at_hand(), Found::given(entry)) else {
        return 0;
    };
    at_hand.leaving = at_hand.packet.with_translated(found.to()).at(Side::Out);
    find(&at_hand.leaving, at_hand.now).is_some().into()
}

/// See [`is_alive`].
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn gateway_is_alive(tuple: *const Tuple, entry: *mut Entry, now: u32) -> u32 {
    // SAFETY: null, or what `find` was given.
    let (Some(tuple), Some(found)) = (unsafe { tuple.as_ref() }, Found::given(entry)) else {
        return 0;
    };
    is_alive(tuple, found, Tick(now)).into()
}

/// Whether a session is not over of which one direction was silent for long, or which waits for
/// proof: of those the kernel may have evicted one entry, and then the other is worth nothing.
#[inline(always)]
fn is_alive(tuple: &Tuple, found: Found, now: Tick) -> bool {
    let opposite = opposite(tuple, found);
    (found.marks().is_proven() || opposite.is_some())
        && !is_over(tuple.protocol(), found, opposite, now)
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
    timers().is_some_and(|timers| timers.is_over(protocol, marks, seen, now))
}

/// Whether an answer with this tuple belongs to another session than the one whose answers become
/// `own`, so that they could not be told apart. A session that is over makes room. One that has
/// ended does not yet: the back end may still hold its connection, and a new client that got the
/// same addresses and ports could read and write it.
#[inline(never)]
pub fn is_taken(answer: &Tuple, own: &End, now: Tick) -> bool {
    let Some(found) = either(answer) else {
        return false;
    };
    if is_alive(answer, found, now) {
        return found.to() != *own;
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

/// Removes both entries of a session, whether it is over or not.
#[inline(never)]
pub fn forget(tuple: &Tuple) {
    let Some(found) = either(tuple) else {
        return;
    };
    if opposite(tuple, found).is_some()
        && let Some(at_hand) = at_hand()
    {
        remove(&at_hand.opposite);
    }
    remove(tuple);
}

/// How long a session lives that has begun just now, in ticks.
#[inline(always)]
pub fn life_of_new(protocol: Protocol) -> u32 {
    timers().map_or(0, |timers| timers.of(protocol, Marks::default()))
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

/// Enters one direction of a session that waits for proof, in the place of another with the same
/// key.
#[inline(always)]
pub fn enter(tuple: &Tuple, to: &End, marks: Marks, now: Tick) -> bool {
    insert(tuple, to, marks, now, BPF_ANY)
}

/// The same unless there is another with this key.
#[inline(always)]
pub fn enter_new(tuple: &Tuple, to: &End, marks: Marks, now: Tick) -> bool {
    insert(tuple, to, marks, now, BPF_NOEXIST)
}

#[inline(never)]
fn insert(tuple: &Tuple, to: &End, marks: Marks, now: Tick, mode: u32) -> bool {
    let Some(at_hand) = at_hand() else {
        return false;
    };
    at_hand.entry = Entry::new(*to, marks, now.0);
    // By reference: a copy would be on the stack.
    let entry: &Entry = &at_hand.entry;
    EMBRYONIC.insert(tuple, entry, u64::from(mode)).is_ok()
}

/// Flags that begin or end a connection.
const RARE: Flags = Flags::SYN.with(Flags::FIN).with(Flags::RST);

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

    /// Whether the packet at hand has to tell the binding of its session how long that lives.
    #[inline(always)]
    pub fn tells_binding(self, at_hand: &AtHand) -> bool {
        self.marks().is_bound()
            && (is_to_tell(word!(self, seen).load(), at_hand.now) || at_hand.flags.intersects(RARE))
    }

    /// Notes the packet at hand, which is of this direction.
    #[inline(always)]
    pub fn note(self, at_hand: &AtHand) -> Noted {
        let before = self.marks();
        let flags = at_hand.flags;
        if !before.is_proven() || flags.intersects(RARE) {
            return Noted::from_raw(gateway_note_rare(self.0));
        }
        self.count(at_hand, flags);
        Noted::GoesOn
    }

    /// Counts the packet at hand, with the flags that are believed.
    #[inline(always)]
    fn count(self, at_hand: &AtHand, believed: Flags) {
        word!(self, packets).fetch_add(1);
        word!(self, bytes).fetch_add(u64::from(at_hand.len));
        let seen = word!(self, seen);
        if seen.load() != at_hand.now.0 {
            seen.store(at_hand.now.0);
        }
        if at_hand.flags.contains(Flags::ACK) {
            // SAFETY: a field of a map value.
            let expected = unsafe { Word::new((&raw mut (*self.0).expected).cast::<u32>()) };
            let number = at_hand.acknowledgement.to_be();
            if expected.load() != number {
                expected.store(number);
            }
        }
        let before = self.marks();
        let after = before.after(believed);
        if after != before {
            // If another CPU was faster, what it noted stays.
            word!(self, marks).replace(before.0, after.0);
        }
    }

    /// The number that the sender of this direction expects next.
    #[inline(always)]
    fn expected(self) -> u32 {
        // SAFETY: a field of a map value.
        u32::from_be_bytes(unsafe { (&raw const (*self.0).expected).read() })
    }

    /// The number of the last SYN of this direction.
    #[inline(always)]
    fn number(self) -> u32 {
        // SAFETY: a field of a map value.
        u32::from_be_bytes(unsafe { (&raw const (*self.0).number).read() })
    }
}

/// See [`note_rare`].
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn gateway_note_rare(entry: *mut Entry) -> u32 {
    match (at_hand(), Found::given(entry)) {
        (Some(at_hand), Some(found)) => note_rare(at_hand, found) as u32,
        _ => Noted::GoesOn as u32,
    }
}

/// Notes a packet of a session that waits for proof, or one that begins or ends a connection.
#[inline(always)]
fn note_rare(at_hand: &AtHand, found: Found) -> Noted {
    let (marks, flags) = (found.marks(), at_hand.flags);
    let Some(opposite) = opposite(&at_hand.packet, found) else {
        found.count(at_hand, flags);
        return Noted::GoesOn;
    };
    let is_tcp = at_hand.packet.protocol() == Protocol::TCP;
    if is_tcp && marks.is_answer() && !marks.is_proven() && !answers(at_hand, found, opposite) {
        return Noted::NotOurs;
    }
    let begins = !marks.is_answer() && flags.contains(Flags::SYN) && !flags.contains(Flags::ACK);
    let reopens = begins && marks.is_proven() && marks.with(opposite.marks()).has_ended();
    if reopens {
        for one in [found, opposite] {
            word!(one, marks).store(one.marks().reopened().0);
        }
    }
    if flags.contains(Flags::SYN) {
        // SAFETY: a field of a map value.
        unsafe { (&raw mut (*found.0).number).write(at_hand.sequence.to_be_bytes()) };
    }
    found.count(
        at_hand,
        believed(flags, at_hand.sequence, opposite.expected()),
    );
    if reopens {
        return Noted::Reopened;
    }
    let waits = !marks.is_proven() && !marks.is_answer();
    if !waits || !opposite.marks().is_used() || is_tcp && !proves(at_hand, opposite) {
        return Noted::GoesOn;
    }
    match promote_both(at_hand, found, opposite) {
        true => Noted::Proven,
        false => Noted::Full,
    }
}

/// Tells the binding of the session of the packet at hand how long the session lives. What comes
/// from outside does not keep a binding unless the inside host has called or answered its sender.
#[inline(always)]
pub fn tell_binding(is_proof: bool) {
    gateway_tell_binding(is_proof.into());
}

/// See [`tell_binding`]. A global function (the verifier's word).
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn gateway_tell_binding(is_proof: u32) -> u32 {
    if let (Some(at_hand), Some(timers)) = (at_hand(), timers()) {
        tell(at_hand, timers, is_proof != 0);
    }
    0
}

#[inline(always)]
fn tell(at_hand: &AtHand, timers: &Timers, is_proof: bool) {
    let packet = &at_hand.packet;
    let Some(found) = either(packet) else {
        return;
    };
    let mut marks = found.marks();
    if let Some(opposite) = opposite(packet, found) {
        marks = marks.with(opposite.marks());
    }
    if marks.has_ended() && !marks.is_proven() {
        // Anybody can have a call refused: that keeps no binding.
        return;
    }
    let ends = match packet.side() {
        Side::Out => [packet.source(), found.to()],
        Side::In if marks.is_proven() || found.marks().is_answer() => {
            [found.to(), packet.destination()]
        }
        Side::In => return,
    };
    let told = match (is_proof, marks.has_ended() && !marks.is_told()) {
        (true, _) => Told::IsProven,
        (false, true) => Told::HasEnded,
        (false, false) => Told::GoesOn,
    };
    if told == Told::HasEnded {
        let own = found.marks();
        word!(found, marks).replace(own.0, own.told().0);
    }
    let protocol = packet.protocol();
    let life = timers.of(protocol, marks);
    bindings::keep(ends, protocol, at_hand.now, life, told);
}

/// Moves both entries of a session to those that last, and counts it if it was not there.
#[inline(always)]
fn promote_both(at_hand: &AtHand, found: Found, opposite: Found) -> bool {
    // By reference: a copy would be on the stack.
    let packet: &Tuple = &at_hand.packet;
    let is_new = SESSIONS.get_ptr(packet).is_none();
    if !promote(packet, found) || !promote(&at_hand.opposite, opposite) {
        return false;
    }
    if is_new
        && found.marks().is_counted()
        && let Some(count) = LASTING.get_ptr_mut(0)
    {
        // SAFETY: a map value, aligned.
        unsafe { Word::new(count) }.fetch_add(1);
    }
    true
}

/// Whether the segment at hand answers the SYN of a connection that waits for proof: by a SYN, by a
/// reset, or by what comes after its SYN.
#[inline(always)]
fn answers(at_hand: &AtHand, answer: Found, call: Found) -> bool {
    let flags = at_hand.flags;
    let has_syn = answer.marks().has_syn();
    // An outside host may call the inside host at the same moment (RFC 5382 REQ-2). A forged call
    // must not take the place of an answer that is known.
    if call.marks().is_bound() && can_begin(at_hand) {
        return !has_syn || answer.number() == at_hand.sequence;
    }
    if !flags.contains(Flags::ACK) {
        return false;
    }
    match flags.intersects(Flags::SYN.with(Flags::RST)) {
        true => at_hand.acknowledgement == call.number().wrapping_add(1),
        false => has_syn && acknowledges(at_hand.acknowledgement, call.number()),
    }
}

/// Whether the segment at hand shows that its sender got the SYN of the answer.
#[inline(always)]
fn proves(at_hand: &AtHand, answer: Found) -> bool {
    answer.marks().has_syn()
        && at_hand.flags.contains(Flags::ACK)
        && !at_hand.flags.intersects(Flags::SYN.with(Flags::RST))
        && acknowledges(at_hand.acknowledgement, answer.number())
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
    if SESSIONS
        .insert(tuple, entry, u64::from(BPF_NOEXIST))
        .is_ok()
    {
        // It may be gone already.
        let _ = EMBRYONIC.remove(tuple);
        return true;
    }
    // One that was opened anew is there already, and has proved itself again.
    let Some(there) = SESSIONS.get_ptr_mut(tuple).map(Found) else {
        return false;
    };
    let marks = there.marks();
    word!(there, marks).replace(marks.0, marks.proven().0);
    true
}

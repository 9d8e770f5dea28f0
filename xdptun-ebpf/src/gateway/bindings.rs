//! The bindings of inside ends to outside ends ([`xdptun_common::gateway::nat`]).

use aya_ebpf::bindings::{BPF_F_NO_PREALLOC, BPF_NOEXIST};
use aya_ebpf::helpers::generated::bpf_get_prandom_u32;
use aya_ebpf::macros::map;
use aya_ebpf::maps::HashMap;
use aya_ebpf::programs::TcContext;
use xdptun_common::flow::tick::Tick;
use xdptun_common::gateway::nat::{
    BINDING_REST, Binding, HostKey, InsideKey, MAX_HOSTS, Nat, OutsideKey, is_later,
};
use xdptun_common::gateway::outcome::Count;
use xdptun_common::gateway::port::{ATTEMPTS, candidate};
use xdptun_common::gateway::tuple::End;
use xdptun_common::wire::Protocol;

use crate::flow::word::Word;
use crate::gateway::at_hand::{AtHand, at_hand};
use crate::gateway::cut::was_cut;
use crate::gateway::nat::nat_of;
use crate::gateway::source::is_for_host;
use crate::gateway::{rules, sessions};
use crate::host::counters::count;
use crate::host::interface::interface;

/// Which inside end is bound to an outside end. Not LRU: a binding lasts. User space sets the
/// capacity.
#[map]
pub static BINDINGS: HashMap<OutsideKey, Binding> =
    HashMap::with_max_entries(65536, BPF_F_NO_PREALLOC);

/// The outside port of an inside end, by a binding that may be over.
#[map]
pub static OUTSIDE_PORTS: HashMap<InsideKey, u32> =
    HashMap::with_max_entries(65536, BPF_F_NO_PREALLOC);

/// How many ends of each inside host are bound.
#[map]
pub static HOSTS: HashMap<HostKey, u32> =
    HashMap::with_max_entries(2 * MAX_HOSTS, BPF_F_NO_PREALLOC);

/// The binding of an outside end, unless it is over.
#[inline(always)]
pub fn binding(end: End, protocol: Protocol, now: Tick) -> Option<Binding> {
    let key = OutsideKey::new(end, protocol);
    // SAFETY: a map value; `until` is the one word that changes in place.
    let binding = unsafe { BINDINGS.get_ptr(key)?.read() };
    binding.lasts(now).then_some(binding)
}

/// What came of a search for an outside end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Bind {
    /// The inside end has one: [`AtHand::outside`].
    Done,
    /// No port was free.
    NoPort,
    /// There is no room for one more binding.
    Full,
    /// As many ends of the host are bound as it may have.
    HostFull,
}

/// Binds the source of the packet that leaves ([`AtHand::leaving`]) if it is not bound yet.
///
/// Each attempt is a call of global functions (the verifier's word), which the verifier walks
/// once. Only the look-up of sockets between them needs the packet.
#[inline(always)]
pub fn bind(ctx: &TcContext) -> Bind {
    match look() {
        Look::Bound => return Bind::Done,
        Look::HostFull => return Bind::HostFull,
        Look::Unbound => {}
    }
    // SAFETY: no pointers are involved.
    let random = unsafe { bpf_get_prandom_u32() };
    for attempt in 0..ATTEMPTS {
        if gateway_find_end(random, attempt) == 0 || is_for_host(ctx) {
            continue;
        }
        match gateway_bind() {
            YES => {
                count(interface(ctx), Count::Bound);
                return Bind::Done;
            }
            FULL => return Bind::Full,
            AGAIN if matches!(look(), Look::Bound) => return Bind::Done,
            _ => {}
        }
    }
    Bind::NoPort
}

/// What there is of a binding.
enum Look {
    Bound,
    Unbound,
    HostFull,
}

/// Looks whether the inside end is bound, or may be.
#[inline(never)]
fn look() -> Look {
    let Some(at_hand) = at_hand() else {
        return Look::HostFull;
    };
    let Some(nat) = nat_of(at_hand.interface) else {
        return Look::HostFull;
    };
    if has_binding(nat) {
        Look::Bound
    } else if is_full(at_hand.leaving.source(), nat) {
        Look::HostFull
    } else {
        Look::Unbound
    }
}

/// Whether the inside end is bound; its outside end is at hand then.
#[inline(never)]
fn has_binding(nat: &Nat) -> bool {
    let Some(at_hand) = at_hand() else {
        return false;
    };
    let (inside, protocol) = (at_hand.leaving.source(), at_hand.leaving.protocol());
    at_hand.inside_key = InsideKey::new(inside, nat.outside, protocol);
    // By reference: a copy would be on the stack.
    let inside_key: &InsideKey = &at_hand.inside_key;
    let Some(port) = OUTSIDE_PORTS.get_ptr(inside_key) else {
        return false;
    };
    // SAFETY: a map value of one word.
    let port = unsafe { port.read() } as u16;
    at_hand.outside = End::new(nat.outside, port);
    let binding = binding(at_hand.outside, protocol, at_hand.now);
    if nat.lends(port) && binding.is_some_and(|binding| binding.inside == inside) {
        move_to(at_hand);
        return true;
    }
    // It may be gone already.
    let _ = OUTSIDE_PORTS.remove(inside_key);
    false
}

/// Notes the interface of the binding at hand, which may have been made anew with another index.
#[inline(always)]
fn move_to(at_hand: &AtHand) {
    let key = OutsideKey::new(at_hand.outside, at_hand.leaving.protocol());
    if let Some(binding) = BINDINGS.get_ptr_mut(key) {
        // SAFETY: a word of a map value, aligned.
        let interface = unsafe { Word::new(&raw mut (*binding).interface) };
        if interface.load() != at_hand.interface {
            interface.store(at_hand.interface);
        }
    }
}

/// Whether as many ends of the host are bound as it may have.
#[inline(always)]
fn is_full(inside: End, nat: &Nat) -> bool {
    let number = |key| {
        let number = HOSTS.get_ptr(key);
        // SAFETY: a map value of one word.
        number.map_or(0, |number| unsafe { number.read_volatile() })
    };
    let made = HostKey::made(inside.address());
    number(made).wrapping_sub(number(made.gone())) >= nat.max_per_host
}

/// Looks for an outside end for the inside end at hand: 1 if it may be free, else 0. It is at hand
/// then ([`AtHand::outside`]).
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn gateway_find_end(random: u32, attempt: u32) -> u32 {
    let Some(at_hand) = at_hand() else {
        return 0;
    };
    let Some(nat) = nat_of(at_hand.interface) else {
        return 0;
    };
    let inside = at_hand.leaving.source();
    let Some(port) = candidate(inside.port(), nat.ports, random, attempt) else {
        return 0;
    };
    if !nat.lends(port) {
        return 0;
    }
    at_hand.outside = End::new(nat.outside, port);
    at_hand.outside_key = OutsideKey::new(at_hand.outside, at_hand.leaving.protocol());
    at_hand.returning = at_hand.leaving.answer(at_hand.outside);
    let now = at_hand.now;
    let is_taken = is_used(at_hand)
        || was_cut(&at_hand.returning, now)
        || sessions::is_taken(&at_hand.returning, &inside, now);
    (!is_taken).into()
}

/// Whether the outside end at hand is another's: it is bound, or a rule forwards it.
#[inline(never)]
fn is_used(at_hand: &AtHand) -> bool {
    let outside_key: &OutsideKey = &at_hand.outside_key;
    let binding = BINDINGS.get_ptr(outside_key);
    // SAFETY: a map value, as in `binding`.
    if let Some(binding) = binding.map(|binding| unsafe { binding.read() }) {
        if binding.lasts(at_hand.now) {
            return true;
        }
        remove(outside_key, binding.inside);
    }
    rules::rule(at_hand.interface, &at_hand.returning).is_some()
}

/// Removes a binding that is over.
#[inline(never)]
fn remove(outside_key: &OutsideKey, inside: End) {
    let end = outside_key.end();
    // It may be gone already.
    let _ = BINDINGS.remove(outside_key);
    let key = InsideKey::new(inside, end.address(), outside_key.protocol());
    // SAFETY: a map value of one word.
    let port = OUTSIDE_PORTS
        .get_ptr(key)
        .map(|port| unsafe { port.read() });
    // The inside end may have another by now.
    if port == Some(u32::from(end.port())) {
        let _ = OUTSIDE_PORTS.remove(key);
    }
}

/// What [`gateway_bind`] returns: the inside end is bound.
const YES: u32 = 0;
/// See [`YES`]: the port is another's.
const NO: u32 = 1;
/// See [`YES`]: there is no room.
const FULL: u32 = 2;
/// See [`YES`]: it is being bound on another CPU.
const AGAIN: u32 = 3;

/// Binds the inside end to the outside end at hand.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn gateway_bind() -> u32 {
    let Some(at_hand) = at_hand() else {
        return FULL;
    };
    let inside = at_hand.leaving.source();
    let life = sessions::life_of_new(at_hand.leaving.protocol());
    let until = at_hand.now.0.wrapping_add(life).wrapping_add(BINDING_REST);
    at_hand.binding = Binding::new(inside, at_hand.interface, until);
    // By reference: copies would be on the stack.
    let outside_key: &OutsideKey = &at_hand.outside_key;
    let binding: &Binding = &at_hand.binding;
    let inside_key: &InsideKey = &at_hand.inside_key;
    let once = u64::from(BPF_NOEXIST);
    if BINDINGS.insert(outside_key, binding, once).is_err() {
        // Another CPU was faster, or there is no room.
        return match BINDINGS.get_ptr(outside_key) {
            Some(_) => NO,
            None => FULL,
        };
    }
    let port = u32::from(at_hand.outside.port());
    if OUTSIDE_PORTS.insert(inside_key, port, once).is_err() {
        let _ = BINDINGS.remove(outside_key);
        // Another CPU has bound the same inside end; the next attempt finds that.
        return match OUTSIDE_PORTS.get_ptr(inside_key) {
            Some(_) => AGAIN,
            None => FULL,
        };
    }
    count_of_host(inside);
    YES
}

/// Counts one more binding of a host.
#[inline(always)]
fn count_of_host(inside: End) {
    let key = HostKey::made(inside.address());
    if HOSTS.get_ptr(key).is_none() {
        // Another CPU may have been faster. Without room for the host it is not limited.
        let _ = HOSTS.insert(key, 0, u64::from(BPF_NOEXIST));
    }
    if let Some(made) = HOSTS.get_ptr_mut(key) {
        // SAFETY: a map value of one word.
        unsafe { Word::new(made) }.fetch_add(1);
    }
}

/// What a session tells its binding.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// It goes on.
    GoesOn,
    /// Both ends have used it.
    IsProven,
    /// It was proven, and has ended just now.
    HasEnded,
}

/// Tells the binding of an inside end to an outside end that one of its sessions lives so many
/// ticks from now on. With its last proven session it ends as well; a session that nobody has
/// answered shortens no binding, as anybody may begin one.
#[inline(always)]
pub fn keep([inside, outside]: [End; 2], protocol: Protocol, now: Tick, life: u32, told: Told) {
    let Some(binding) = BINDINGS.get_ptr_mut(OutsideKey::new(outside, protocol)) else {
        return;
    };
    // SAFETY: fields of a map value, aligned; the first does not change.
    let (bound, until, proven) = unsafe {
        (
            (&raw const (*binding).inside).read(),
            Word::new(&raw mut (*binding).until),
            Word::new(&raw mut (*binding).proven),
        )
    };
    if bound != inside {
        return;
    }
    if told == Told::IsProven {
        proven.fetch_add(1);
    }
    let ends = told == Told::HasEnded && proven.load() <= 1;
    if told == Told::HasEnded && proven.load() != 0 {
        proven.fetch_add(u32::MAX);
    }
    let new = now.0.wrapping_add(life).wrapping_add(BINDING_REST);
    if ends || is_later(new, until.load()) {
        until.store(new);
    }
}

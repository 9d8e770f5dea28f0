//! Rules, and how often each has matched. User space writes the first two maps.

use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, PerCpuArray};
use xdptun_common::member::ROWS;
use xdptun_common::policy::rule::{Direction, PLACES, Rule, Set, SetKey};

use crate::host::interface::Interface;

/// The rules of each interface and direction, in their order. A packet reads its set once; user
/// space replaces it as a whole.
#[map]
pub static RULE_SETS: HashMap<SetKey, Set> = HashMap::with_max_entries(4 * ROWS, 0);

/// Rules by place. User space changes a place only while no set names it, and no program that has
/// read such a set still runs.
#[map]
pub static RULES: Array<Rule> = Array::with_max_entries(PLACES as u32, 0);

/// How many packets each rule has matched: a row for each interface, in it by place.
#[map]
pub static HITS: PerCpuArray<u64> = PerCpuArray::with_max_entries(ROWS * PLACES as u32, 0);

/// The rules of an interface for packets of this direction, if there are any.
#[inline(always)]
pub fn set_of(interface: u32, direction: Direction) -> Option<&'static Set> {
    let key = SetKey {
        interface,
        direction: direction as u32,
    };
    // SAFETY: a map value of integers.
    RULE_SETS.get_ptr(key).map(|set| unsafe { &*set })
}

/// The rule at a place.
#[inline(always)]
pub fn rule(place: u32) -> Option<&'static Rule> {
    RULES.get(place)
}

/// Counts one more packet that a rule has matched.
#[inline(always)]
pub fn hit(at: Interface, place: u32) {
    if let Some(hits) = HITS.get_ptr_mut(at.row() * PLACES as u32 + place) {
        // SAFETY: a per-CPU value, which only this program run touches.
        unsafe { *hits += 1 }
    }
}

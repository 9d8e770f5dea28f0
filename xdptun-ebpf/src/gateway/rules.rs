//! What is forwarded, and to where. User space writes these maps.

use aya_ebpf::bindings::BPF_F_NO_PREALLOC;
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap};
use xdptun_common::address::Local;
use xdptun_common::gateway::rule::{BackEnd, Listen, ListenKey, MAX_BACK_ENDS, MAX_LISTEN, Set};
use xdptun_common::gateway::tuple::Tuple;
use xdptun_common::member::ROWS;

use crate::host::local::local;

/// The interfaces by which sessions may begin, by index, and the set of rules of each. The
/// programs are on others as well, where only packets of sessions are changed.
#[map]
pub static LISTENERS: HashMap<u32, Set> = HashMap::with_max_entries(2 * ROWS, 0);

/// What is listened to.
#[map]
pub static LISTEN: HashMap<ListenKey, Listen> =
    HashMap::with_max_entries(MAX_LISTEN, BPF_F_NO_PREALLOC);

/// Where packets are forwarded to: each back end as often as its weight.
#[map]
pub static BACK_ENDS: Array<BackEnd> = Array::with_max_entries(MAX_BACK_ENDS, 0);

/// The rule for the first packet of a session that comes in by an interface, if there is one.
#[inline(always)]
pub fn rule(interface: u32, call: &Tuple) -> Option<Listen> {
    // SAFETY: a map value of one byte.
    let set = unsafe { LISTENERS.get_ptr(interface)?.read() };
    let to = call.destination();
    let key = ListenKey::new(set, to.address(), to.port(), call.protocol());
    let rule = match LISTEN.get_ptr(key) {
        Some(rule) => rule,
        None => {
            let rule = LISTEN.get_ptr(key.of_any())?;
            // Never what this host only forwards, or takes by a rule as for TPROXY.
            local(to.address()).filter(|kind| *kind == Local::Host as u32)?;
            rule
        }
    };
    // SAFETY: a map value, which user space replaces as a whole.
    Some(unsafe { rule.read() })
}

/// The back end at a place.
#[inline(always)]
pub fn back_end(place: u32) -> Option<BackEnd> {
    // SAFETY: a map value. User space changes back ends only while no rule names them, or one
    // word of them.
    BACK_ENDS
        .get_ptr(place)
        .map(|back_end| unsafe { back_end.read() })
}

//! What the daemon is told, at a limited rate: matches to log, and packets whose ends it tells that
//! they were dropped.

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::macros::map;
use aya_ebpf::maps::{PerCpuArray, RingBuf};
use aya_ebpf::programs::TcContext;
use xdptun_common::policy::event::{Event, FRAME, Kind, RING_BYTES};

use crate::host::clock::now;
use crate::host::frame::hand_over;
use crate::host::interface::interface;
use crate::host::rate_limit::{Bucket, Rate};
use crate::policy::at_hand::at_hand;
use crate::policy::rules::rule;

/// Events for the daemon.
#[map]
pub static POLICY_EVENTS: RingBuf = RingBuf::with_byte_size(RING_BYTES, 0);

/// How many events of each kind may still be sent, per CPU.
#[map]
pub static EVENT_LIMITS: PerCpuArray<Bucket> = PerCpuArray::with_max_entries(2, 0);

/// Lines in a log are for people.
const LOG: Rate = Rate {
    per_second: 16,
    burst: 64,
};

/// As the gateway's messages to senders (RFC 1812 section 4.3.2.8).
const RESET: Rate = Rate {
    per_second: 1024,
    burst: 256,
};

/// Tells the daemon that the rule at a place has matched the packet at hand; whether it could.
#[inline(never)]
pub fn tell(skb: *mut __sk_buff, place: u32, kind: u32) -> bool {
    let ctx = TcContext::new(skb);
    let (Some(at_hand), Some(rule), Some(bucket)) =
        (at_hand(), rule(place), EVENT_LIMITS.get_ptr_mut(kind))
    else {
        return false;
    };
    let resets = kind == Kind::Reset as u32;
    let rate = if resets { RESET } else { LOG };
    // SAFETY: a per-CPU value, which only this program run touches.
    if !unsafe { &mut *bucket }.take(rate, now()) {
        return false;
    }
    let event = |len| Event {
        kind,
        len,
        at: now(),
        interface: interface(&ctx).index(),
        offset: rule.first.wrapping_add(at_hand.found),
        source: at_hand.source,
        destination: at_hand.destination,
        source_port: at_hand.ports.0.to_be_bytes(),
        destination_port: at_hand.ports.1.to_be_bytes(),
        protocol: at_hand.protocol,
        direction: rule.direction,
        reserved: [0; 2],
        rule: rule.name,
    };
    if resets {
        let len = ctx.len();
        let len = if len as usize > FRAME {
            FRAME as u32
        } else {
            len
        };
        return hand_over::<_, FRAME>(&POLICY_EVENTS, &ctx, len, event);
    }
    let Some(mut entry) = POLICY_EVENTS.reserve::<Event>(0) else {
        return false;
    };
    entry.write(event(0));
    entry.submit(0);
    true
}

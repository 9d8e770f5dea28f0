//! Events for the daemon ([`xdptun_common::gateway::event`]).

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::macros::map;
use aya_ebpf::maps::RingBuf;
use aya_ebpf::programs::TcContext;
use xdptun_common::gateway::event::{Event, Kind, RING_BYTES, SMALL_FRAME};
use xdptun_common::parse::FragmentKey;

use crate::gateway::limits::Limit;
use crate::host::clock::now;
use crate::host::frame::{hand_over, hand_over_whole};
use crate::host::interface::interface;

/// Events for the daemon.
#[map]
pub static REQUESTS: RingBuf = RingBuf::with_byte_size(RING_BYTES, 0);

/// Copies a fragment to the daemon. `false` if it does not keep up.
#[inline(always)]
pub fn hand_over_fragment(ctx: &TcContext, datagram: &FragmentKey) -> bool {
    let event = |len| event(ctx, Kind::Fragment, datagram, len);
    hand_over_whole::<_, SMALL_FRAME>(&REQUESTS, ctx, event)
}

/// Tells the daemon that the first fragment of a datagram has come. Lost if the ring is full: the
/// daemon also looks at the table by itself.
#[inline(always)]
pub fn report_first(ctx: &TcContext, datagram: &FragmentKey) {
    if let Some(mut entry) = REQUESTS.reserve::<Event>(0) {
        entry.write(event(ctx, Kind::First, datagram, 0));
        entry.submit(0);
    }
}

/// Asks the daemon to tell the sender of a packet what its `kind` says, or does not ask because
/// that was asked too often.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn gateway_tell(skb: *mut __sk_buff, kind: u32) -> u32 {
    let ctx = TcContext::new(skb);
    if !Limit::Answers.take() {
        return 0;
    }
    let len = match ctx.len() as usize > SMALL_FRAME {
        true => SMALL_FRAME as u32,
        false => ctx.len(),
    };
    let event = |len| Event {
        kind,
        ..event(&ctx, Kind::Refused, &FragmentKey::default(), len)
    };
    hand_over::<_, SMALL_FRAME>(&REQUESTS, &ctx, len, event).into()
}

#[inline(always)]
fn event(ctx: &TcContext, kind: Kind, datagram: &FragmentKey, len: u32) -> Event {
    Event {
        kind: kind as u32,
        len,
        at: now(),
        datagram: *datagram,
        interface: interface(ctx).index(),
        reserved: 0,
    }
}

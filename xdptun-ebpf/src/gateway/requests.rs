//! Requests for the daemon ([`xdptun_common::gateway::request`]).

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::macros::map;
use aya_ebpf::maps::RingBuf;
use aya_ebpf::programs::TcContext;
use xdptun_common::gateway::request::{Kind, RING_BYTES, Request, SMALL_FRAME};
use xdptun_common::parse::FragmentKey;
use xdptun_common::wire::Protocol;

use crate::gateway::at_hand::at_hand;
use crate::gateway::fragments::is_awake;
use crate::gateway::limits::Limit;
use crate::gateway::open::can_begin;
use crate::host::clock::now;
use crate::host::frame::{hand_over, hand_over_whole};
use crate::host::interface::interface;

/// Requests for the daemon.
#[map]
pub static REQUESTS: RingBuf = RingBuf::with_byte_size(RING_BYTES, 0);

/// Copies a fragment to the daemon. `false` if it does not keep up.
#[inline(always)]
pub fn hand_over_fragment(ctx: &TcContext, datagram: &FragmentKey) -> bool {
    let request = |len| request(ctx, Kind::Hold, datagram, len);
    hand_over_whole::<_, SMALL_FRAME>(&REQUESTS, ctx, request)
}

/// Asks the daemon to release the fragments of a datagram. Lost if the ring is full: the daemon also
/// looks at the table by itself.
#[inline(always)]
pub fn request_release(ctx: &TcContext, datagram: &FragmentKey) {
    if let Some(mut entry) = REQUESTS.reserve::<Request>(0) {
        entry.write(request(ctx, Kind::Release, datagram, 0));
        entry.submit(0);
    }
}

/// Asks the daemon to answer the packet at hand, as `kind` says, unless it was asked too often or
/// does not run.
#[inline(never)]
pub fn gateway_request_answer(skb: *mut __sk_buff, kind: u32) -> u32 {
    let ctx = TcContext::new(skb);
    let is_due = at_hand().is_some_and(|at_hand| match kind == Kind::Reset as u32 {
        true => at_hand.packet.protocol() == Protocol::TCP,
        // A connection that is open may outlive what refuses its segments now.
        false => can_begin(at_hand),
    });
    if !is_due || !is_awake() || !Limit::Answers.take() {
        return 0;
    }
    let len = match ctx.len() as usize > SMALL_FRAME {
        true => SMALL_FRAME as u32,
        false => ctx.len(),
    };
    let request = |len| Request {
        kind,
        ..request(&ctx, Kind::Prohibit, &FragmentKey::default(), len)
    };
    hand_over::<_, SMALL_FRAME>(&REQUESTS, &ctx, len, request).into()
}

#[inline(always)]
fn request(ctx: &TcContext, kind: Kind, datagram: &FragmentKey, len: u32) -> Request {
    Request {
        kind: kind as u32,
        len,
        at: now(),
        datagram: *datagram,
        interface: interface(ctx).index(),
        reserved: 0,
    }
}

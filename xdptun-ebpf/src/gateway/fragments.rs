//! Fragments. Only the first has ports. It is translated like a whole packet, and the others
//! get the address that it got. One that comes before the first waits with the daemon, if it may
//! be a session's.

use aya_ebpf::bindings::{__sk_buff, BPF_ANY, BPF_F_NO_PREALLOC};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, LruHashMap};
use aya_ebpf::programs::TcContext;
use xdptun_common::address::Local;
use xdptun_common::flow::tick::Tick;
use xdptun_common::gateway::fragment::{First, Held};
use xdptun_common::gateway::outcome::Outcome;
use xdptun_common::gateway::rule::MAX_NAMED;
use xdptun_common::gateway::tuple::{End, Side};
use xdptun_common::parse::FragmentKey;
use xdptun_common::wire::Ip;

use crate::gateway::at_hand::{AtHand, at_hand};
use crate::gateway::limits::Limit;
use crate::gateway::nat::nat_of;
use crate::gateway::requests::{hand_over_fragment, request_release};
use crate::gateway::rewrite::write_address;
use crate::host::clock::now;
use crate::host::interface::interface;
use crate::host::local::local;
use crate::machine::opaque;
use crate::packet::error::PacketError;
use crate::packet::link::link_len;
use crate::packet::resize::make_linear;
use crate::packet::skb::Skb as _;

/// What became of the first fragment of each datagram.
#[map]
pub static FIRSTS: LruHashMap<FragmentKey, First> = LruHashMap::with_max_entries(8192, 0);

/// Datagrams whose fragments wait for the first.
#[map]
pub static AWAITED: LruHashMap<FragmentKey, u8> = LruHashMap::with_max_entries(8192, 0);

/// Addresses that rules name: listen addresses, back ends, their sources.
#[map]
pub static NAMED: HashMap<[u8; 16], u8> = HashMap::with_max_entries(MAX_NAMED, BPF_F_NO_PREALLOC);

/// When the daemon was last awake, and when it last had no room for a fragment, [`Tick`]s.
#[map]
pub static AWAKE: Array<u32> = Array::with_max_entries(2, 0);

/// How long after the first it counts as awake: 17 seconds.
const AWAKE_TICKS: u32 = 1 << 14;

/// How long after the second it gets no fragment: half a second.
const FULL_TICKS: u32 = 1 << 9;

/// Notes that the first fragment at hand is translated.
#[inline(always)]
pub fn note(at_hand: &mut AtHand, to: End, outcome: Outcome) {
    let first = First::translated(now(), to, outcome);
    // If the kernel has no room, the others go on as they are and lead nowhere.
    let _ = FIRSTS.insert(at_hand.datagram, first, u64::from(BPF_ANY));
    at_hand.is_noted = 1;
}

/// What a later fragment does.
pub enum Follow {
    /// It goes on as it is, as its first did.
    AsItIs,
    /// It got the address of its first, and ends as that did.
    Translated(Result<Outcome, PacketError>),
    /// Its first has not come.
    Unknown,
}

/// Translates the later fragment at hand as its first.
#[inline(always)]
pub fn follow<I: Ip>(ctx: &TcContext, at_hand: &AtHand, side: Side) -> Follow {
    let Some(first) = FIRSTS.get_ptr(at_hand.datagram) else {
        return Follow::Unknown;
    };
    // SAFETY: a map value, which stays readable for the whole program run.
    let first = unsafe { first.read() };
    if !first.lasts(now()) {
        return Follow::Unknown;
    }
    let Some((to, outcome)) = first.translation() else {
        return Follow::AsItIs;
    };
    // One register, so that the verifier of 6.1 knows its bound when it is an offset.
    let Some(outcome) = Outcome::ALL.get(opaque(outcome.into()) as usize) else {
        return Follow::AsItIs;
    };
    let written = make_linear(ctx, link_len() + I::LEN);
    let written = written.and_then(|()| write_address::<I>(ctx, side, to));
    Follow::Translated(written.map(|()| *outcome))
}

/// Lets those go on that wait for the first fragment at hand, which has ended.
#[inline(never)]
pub fn gateway_first(skb: *mut __sk_buff) -> u32 {
    let ctx = TcContext::new(skb);
    let Some(at_hand) = at_hand() else {
        return 0;
    };
    if at_hand.is_noted == 0 && may_belong_to_a_session(&ctx, &at_hand.datagram) {
        let first = First::as_it_was(now());
        let _ = FIRSTS.insert(at_hand.datagram, first, u64::from(BPF_ANY));
    }
    if AWAITED.remove(at_hand.datagram).is_ok() {
        request_release(&ctx, &at_hand.datagram);
    }
    0
}

/// Hands the later fragment at hand to the daemon: 1 if it may be a session's and the daemon takes
/// it, else 0.
#[inline(never)]
pub fn gateway_hold(skb: *mut __sk_buff) -> u32 {
    let ctx = TcContext::new(skb);
    let Some(at_hand) = at_hand() else {
        return 0;
    };
    if !may_belong_to_a_session(&ctx, &at_hand.datagram)
        || !is_awake()
        || is_full()
        || !Limit::Fragments.take()
    {
        return 0;
    }
    // Before the copy: if the first comes between the two, the daemon finds it in the table.
    let _ = AWAITED.insert(at_hand.datagram, 1, u64::from(BPF_ANY));
    hand_over_fragment(&ctx, &at_hand.datagram).into()
}

/// Whether a fragment of a datagram may belong to a session. Others are not held up: what this
/// host only routes, and what its own sockets send.
#[inline(always)]
fn may_belong_to_a_session(ctx: &TcContext, datagram: &FragmentKey) -> bool {
    let address = match datagram.is_outbound() {
        true => datagram.source(),
        false => datagram.destination(),
    };
    // What leaves to a back end may get another source. It may have waited when it came in, and
    // have overtaken its first on the way through this host.
    let is_named = |address| NAMED.get_ptr(address).is_some();
    if is_named(address) || datagram.is_outbound() && is_named(datagram.destination()) {
        return true;
    }
    let nat = nat_of(interface(ctx).index());
    match datagram.is_outbound() {
        true => nat.is_some_and(|nat| nat.is_inside(address)),
        false => {
            nat.is_some_and(|nat| nat.outside == address)
                || local(address) == Some(Local::Host as u32)
        }
    }
}

/// Whether a daemon runs.
pub fn is_awake() -> bool {
    was_within(0, AWAKE_TICKS)
}

/// Whether the daemon has no room for fragments.
fn is_full() -> bool {
    was_within(1, FULL_TICKS)
}

#[inline(always)]
fn was_within(index: u32, ticks: u32) -> bool {
    // SAFETY: a map value of one word.
    let then = AWAKE.get_ptr(index).map(|at| unsafe { at.read_volatile() });
    // Zero: never.
    then.is_some_and(|then| then != 0 && Tick::at(now()).since(then) <= ticks)
}

/// Whether a packet is a fragment that the daemon held on this side. Its mark is gone then.
#[inline(always)]
pub fn was_held(ctx: &TcContext, held: Held) -> bool {
    let was_held = ctx.mark() == held as u32;
    if was_held {
        ctx.set_mark(0);
    }
    was_held
}

/// Whether a packet that leaves is a fragment that had come in.
#[inline(always)]
pub fn is_to_come_in(ctx: &TcContext) -> bool {
    ctx.mark() == Held::In as u32
}

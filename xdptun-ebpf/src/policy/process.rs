//! A packet at a hook: its payload goes through the rules of its interface, in their order. One that
//! drops ends it.

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::programs::TcContext;
use xdptun_common::parse::{Bytes as _, Located, Shape, is_extension, locate};
use xdptun_common::policy::event::Kind;
use xdptun_common::policy::outcome::{Count, Outcome};
use xdptun_common::policy::rule::{Action, Direction, MAX_RULES, PLACES, Set};
use xdptun_common::policy::search::{MAX_PAYLOAD, MAX_STEPS};
use xdptun_common::wire::{Ip, IpVersion, Ipv4Header, Ipv6Header, Protocol, TcpHeader, UdpHeader};

use crate::host::counters::count;
use crate::host::interface::interface;
use crate::machine::opaque;
use crate::packet::access::View;
use crate::packet::link::link_len;
use crate::packet::skb::Skb as _;
use crate::packet::verifier::{bounded, told};
use crate::packet::version::is_tagged_again;
use crate::policy::at_hand::at_hand;
use crate::policy::events::tell;
use crate::policy::rules::{hit, rule, set_of};
use crate::policy::scan::{CUT, NOTHING, search};

/// What a rule says of a packet, in the order in which the worst counts.
const UNCONCERNED: u32 = 0;
/// See [`UNCONCERNED`].
const SEARCHED: u32 = 1;
/// See [`UNCONCERNED`].
const MATCHED: u32 = 2;
/// See [`UNCONCERNED`].
const DRY_RUN: u32 = 3;
/// See [`UNCONCERNED`].
const DROP: u32 = 4;
/// See [`UNCONCERNED`].
const RESET: u32 = 5;
/// A bit of what [`policy_says`] returns: the rule tells the daemon. In what [`apply`] returns these
/// bits are the place.
const TELLS: u32 = 0x100;

/// Where a transport header begins at most: behind the longest chain of IPv6 extension headers.
const MAX_OFFSET: usize = 0x4fff;

/// What came of a packet, and the place of the rule that decided plus one, 0 if none matched; `None`
/// if no rule is about it.
#[inline(always)]
pub fn process(
    ctx: &TcContext,
    version: Option<IpVersion>,
    direction: Direction,
) -> Option<(Outcome, u32)> {
    let rules = match (version, direction) {
        (Some(IpVersion::V4), _) => look_v4(ctx.raw(), direction as u32),
        (Some(IpVersion::V6), _) => look_v6(ctx.raw(), direction as u32),
        (None, Direction::In) => look_tagged(ctx.raw()),
        (None, Direction::Out) => 0,
    };
    let (mut said, mut by) = (ctx.forget(UNCONCERNED), ctx.forget(0));
    for number in 0..MAX_RULES as u32 {
        // Of which the compiler knows nothing: it would count to the smaller of both, and keep
        // that where the verifier forgets its bound.
        if opaque(number.into()) >= u64::from(rules) {
            break;
        }
        let says = ctx.forget(apply(ctx, number));
        let (says, place) = (says & 0xff, says >> 8);
        if says > said {
            (said, by) = (says, place);
        }
        if says >= DROP {
            break;
        }
    }
    let outcome = match (said, direction) {
        (SEARCHED, Direction::In) => Outcome::InSearched,
        (SEARCHED, Direction::Out) => Outcome::OutSearched,
        (MATCHED, Direction::In) => Outcome::InMatched,
        (MATCHED, Direction::Out) => Outcome::OutMatched,
        (DRY_RUN, Direction::In) => Outcome::InDryRun,
        (DRY_RUN, Direction::Out) => Outcome::OutDryRun,
        (DROP, Direction::In) => Outcome::InDropMatched,
        (DROP, Direction::Out) => Outcome::OutDropMatched,
        (RESET, Direction::In) => Outcome::InDropReset,
        (RESET, Direction::Out) => Outcome::OutDropReset,
        _ => return None,
    };
    Some((outcome, by))
}

#[inline(never)]
fn look_v4(skb: *mut __sk_buff, direction: u32) -> u32 {
    look::<Ipv4Header>(&TcContext::new(skb), direction).unwrap_or(0)
}

#[inline(never)]
fn look_v6(skb: *mut __sk_buff, direction: u32) -> u32 {
    look::<Ipv6Header>(&TcContext::new(skb), direction).unwrap_or(0)
}

/// Notes what rules ask about; how many rules there are for the packet, none if it has no payload.
#[inline(always)]
fn look<I: Ip>(ctx: &TcContext, direction: u32) -> Option<u32> {
    let direction = Direction::from_raw(direction as u8);
    let set = set_of(interface(ctx).index(), direction)?;
    if ctx.is_in_vlan() {
        return None;
    }
    let located = locate::<I>(&View(ctx), link_len())?;
    if located.shape != Shape::LaterFragment && is_extension(located.protocol) {
        return hide(*set);
    }
    let header_len = header_len(ctx, &located)?;
    let len = told_len(ctx, &located)?.checked_sub(header_len)?;
    if len == 0 || len > MAX_PAYLOAD {
        return None;
    }
    let at_hand = at_hand()?;
    at_hand.set = *set;
    at_hand.payload = (located.offset + header_len) as u32;
    at_hand.len = len as u32;
    at_hand.source = located.ip.source();
    at_hand.destination = located.ip.destination();
    at_hand.is_hidden = 0;
    at_hand.protocol = match is_untold(&located) {
        true => 0,
        false => located.protocol.0,
    };
    let has_ports = located.shape != Shape::LaterFragment;
    at_hand.has_ports = u8::from(has_ports);
    at_hand.ports = match has_ports {
        true => located.ports(&View(ctx))?,
        false => (0, 0),
    };
    Some(set.count)
}

/// Notes that the packet at hand hides its payload; how many rules there are.
#[inline(always)]
fn hide(set: Set) -> Option<u32> {
    let at_hand = at_hand()?;
    at_hand.set = set;
    at_hand.is_hidden = 1;
    at_hand.has_ports = 0;
    Some(set.count)
}

/// Looks at a frame that came in and is not plain IP. The kernel takes off any number of tags that
/// name no VLAN (`check_vlan_id` in its `net/core/dev.c`), all but the first behind this program.
#[inline(never)]
fn look_tagged(skb: *mut __sk_buff) -> u32 {
    let ctx = &TcContext::new(skb);
    let look = || {
        let set = set_of(interface(ctx).index(), Direction::In)?;
        match is_tagged_again(ctx) {
            true => hide(*set),
            false => None,
        }
    };
    look().unwrap_or(0)
}

/// Whether a packet does not tell its protocol: receivers read that of an IPv6 fragment from the
/// first one (RFC 8200 section 4.5), so the others may say anything. IPv4 puts together only
/// fragments of one protocol (RFC 791 section 3.2).
#[inline(always)]
fn is_untold<I: Ip>(located: &Located<I>) -> bool {
    I::VERSION == IpVersion::V6 && located.shape == Shape::LaterFragment
}

/// How many bytes of transport header and payload there are: of UDP those that its length tells,
/// for receivers take no others. They take all if it tells none (`__udp6_lib_rcv` in the kernel's
/// `net/ipv6/udp.c`), or of a super-packet, whose pieces get lengths of their own
/// (`__udp_gso_segment` in `net/ipv4/udp_offload.c`).
#[inline(always)]
fn told_len<I: Ip>(ctx: &TcContext, located: &Located<I>) -> Option<usize> {
    if located.protocol != Protocol::UDP
        || located.shape == Shape::LaterFragment
        || ctx.is_super_packet()
    {
        return Some(located.len);
    }
    let at = bounded::<MAX_OFFSET>(located.offset as u32)? as usize;
    let udp: UdpHeader = View(ctx).read(at)?;
    Some(match told(udp.length()) {
        0 => located.len,
        len => len.min(located.len),
    })
}

/// How many bytes of the transport header stand before the payload: none in a later fragment.
#[inline(always)]
fn header_len<I: Ip>(ctx: &TcContext, located: &Located<I>) -> Option<usize> {
    match (located.protocol, located.shape) {
        _ if is_untold(located) => Some(0),
        (Protocol::TCP | Protocol::UDP, Shape::LaterFragment) => Some(0),
        (Protocol::UDP, _) => Some(UdpHeader::LEN),
        (Protocol::TCP, _) => {
            let at = bounded::<MAX_OFFSET>(located.offset as u32)? as usize;
            let [words]: [u8; 1] = View(ctx).read(at + TcpHeader::LENGTH_OFFSET)?;
            let len = usize::from(words >> 4) * 4;
            // No stack takes a segment with less.
            (len >= TcpHeader::LEN).then_some(len)
        }
        _ => None,
    }
}

/// Applies the rule with this number to the packet at hand: what it says, and in the next byte its
/// place plus one if it matched.
#[inline(always)]
fn apply(ctx: &TcContext, number: u32) -> u32 {
    let place = policy_rule(number);
    if place == NO_RULE {
        return UNCONCERNED;
    }
    let is_hidden = at_hand().is_some_and(|at_hand| at_hand.is_hidden != 0);
    let found = match is_hidden {
        false => search(ctx, place),
        true => CUT,
    };
    let at = interface(ctx);
    if found == CUT {
        count(at, Count::SearchesCut);
    }
    let says = policy_says(place, found);
    if says == SEARCHED {
        return SEARCHED;
    }
    hit(at, place);
    if says & TELLS != 0 {
        let (kind, missed) = match says & 0xff {
            RESET => (Kind::Reset, Count::Untold),
            _ => (Kind::Log, Count::Unlogged),
        };
        let has_ports = || at_hand().is_some_and(|at_hand| at_hand.has_ports != 0);
        let is_told = (kind == Kind::Log || has_ports()) && tell(ctx.raw(), place, kind as u32);
        if !is_told {
            count(at, missed);
        }
    }
    says & 0xff | (place + 1) << 8
}

/// What [`policy_rule`] returns if the rule is not about the packet at hand.
const NO_RULE: u32 = PLACES as u32;

/// Begins with the rule with this number: no match, all steps left. Its place, or [`NO_RULE`] if it is
/// not about the packet at hand.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn policy_rule(number: u32) -> u32 {
    let Some(at_hand) = at_hand() else {
        return NO_RULE;
    };
    at_hand.found = 0;
    at_hand.steps = MAX_STEPS;
    let place = u32::from(at_hand.set.places[number as usize % MAX_RULES]) % PLACES as u32;
    match rule(place) {
        Some(rule) if rule.concerns(&at_hand.packet()) => place,
        _ => NO_RULE,
    }
}

/// What the rule at a place says of what was found, and whether it tells the daemon.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn policy_says(place: u32, found: u32) -> u32 {
    let Some(rule) = rule(place) else {
        return SEARCHED;
    };
    let action = rule.action();
    if found == NOTHING || found == CUT && !action.ends() {
        return SEARCHED;
    }
    match (action, rule.dry_run) {
        (Action::Count, _) => MATCHED,
        (Action::Log, _) => MATCHED | TELLS,
        (Action::Drop, 0) => DROP,
        (Action::Reset, 0) => RESET | TELLS,
        (Action::Drop | Action::Reset, _) => DRY_RUN,
    }
}

//! The source address and port of a masqueraded session.

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::helpers::generated::bpf_get_prandom_u32;
use aya_ebpf::programs::TcContext;
use xdptun_common::flow::key::FlowKey;
use xdptun_common::gateway::port::{ATTEMPTS, candidate};
use xdptun_common::gateway::session::Marks;
use xdptun_common::gateway::tuple::{End, Tuple};
use xdptun_common::wire::Protocol;

use crate::gateway::at_hand::{AtHand, at_hand};
use crate::gateway::bindings::binding;
use crate::gateway::cut::was_cut;
use crate::gateway::sessions;
use crate::host::socket::{Socket, own_socket, udp_socket};
use crate::packet::skb::Skb as _;

/// Enters a session that translates the source of the packets to the back end at hand, as they
/// are met when they leave ([`AtHand::leaving`]). Whether a port was free.
///
/// Each attempt is a call of global functions (the verifier's word), which the verifier walks
/// once. Only the look-up of sockets between them needs the packet.
#[inline(always)]
pub fn choose(ctx: &TcContext, at_hand: &AtHand) -> bool {
    if sessions::find(&at_hand.leaving, at_hand.now).is_some() {
        return true;
    }
    // SAFETY: no pointers are involved.
    let random = unsafe { bpf_get_prandom_u32() };
    (0..ATTEMPTS).any(|attempt| {
        gateway_find_port(random, attempt) != 0 && !is_for_host(ctx) && gateway_take_port() != 0
    })
}

/// Looks for a port for the session at hand: 1 if it may be free, else 0. The packets that would
/// answer are at hand then ([`AtHand::returning`]).
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn gateway_find_port(random: u32, attempt: u32) -> u32 {
    let Some(at_hand) = at_hand() else {
        return 0;
    };
    let client = at_hand.leaving.source();
    let Some(port) = candidate(client.port(), at_hand.back_end.ports, random, attempt) else {
        return 0;
    };
    let source = End::new(at_hand.back_end.source, port);
    at_hand.returning = at_hand.leaving.answer(source);
    let now = at_hand.now;
    let is_taken = sessions::is_taken(&at_hand.returning, &client, now)
        || binding(source, at_hand.returning.protocol(), now).is_some()
        || was_cut(&at_hand.returning, now);
    (!is_taken).into()
}

/// Enters the session at hand with the port that was found: 1 if it has it now, else 0.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn gateway_take_port() -> u32 {
    let Some(at_hand) = at_hand() else {
        return 0;
    };
    let (client, source) = (at_hand.leaving.source(), at_hand.returning.destination());
    let now = at_hand.now;
    let marks = Marks::default().masquerading();
    let entered = sessions::enter_new(&at_hand.returning, &client, marks.in_answer(), now)
        && sessions::enter(&at_hand.leaving, &source, marks, now);
    entered.into()
}

/// Whether a socket of this host would get what answers the packet at hand.
#[inline(never)]
pub fn is_for_host(ctx: &TcContext) -> bool {
    at_hand().is_none_or(|at_hand| has_socket(ctx.raw(), &at_hand.returning))
}

/// Whether a socket of this host would get a packet that comes in.
#[inline(never)]
pub fn has_socket(skb: *mut __sk_buff, packet: &Tuple) -> bool {
    socket_for(skb, packet) != Socket::Absent
}

/// The socket of this host that would get a packet that comes in.
#[inline(always)]
pub fn socket_for(skb: *mut __sk_buff, packet: &Tuple) -> Socket {
    let (local, remote) = (packet.destination(), packet.source());
    let flow = FlowKey::from_parts(
        local.address(),
        local.port(),
        remote.address(),
        remote.port(),
    );
    match packet.protocol() {
        Protocol::TCP => own_socket(skb, &flow),
        Protocol::UDP => udp_socket(skb, &flow),
        _ => Socket::Absent,
    }
}

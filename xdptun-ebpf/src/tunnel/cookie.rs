//! Initial sequence numbers.

use aya_ebpf::Global;
use aya_ebpf::macros::map;
use aya_ebpf::maps::Array;
use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::handshake::{Endpoint, Reply, Segment};
use xdptun_common::tunnel::isn::{
    SYNS, Secret, answered, epoch, epoch_of_syn, hashed_words, label_of, same_cookie,
};
use xdptun_common::tunnel::outcome::Sent;

use crate::flow::word::Word;

/// The numbers that the latest SYNs got, each with what tells the SYN.
#[map]
pub static ANSWERED: Array<u64> = Array::with_max_entries(SYNS, 0);

/// What stands where the key is to be: no constant of the programs is the same, or the
/// compiler would make one of the two, and the key show up there.
const UNSET: u64 = 0x7864_7074_756e_0000;

#[unsafe(no_mangle)]
static SECRET: Global<Secret> = Global::new(Secret([UNSET, 1, 2]));

/// The key of initial sequence numbers.
#[inline(always)]
pub fn secret() -> Secret {
    SECRET.load()
}

/// The cookie of a flow in an epoch. A subprogram, so that its callers need no stack for the
/// words.
#[inline(never)]
fn cookie(flow: &FlowKey, epoch: u64) -> u32 {
    let [a, b, c, d, ports_and_epoch] = hashed_words(flow, epoch);
    xdptun_cookie(a, b, c, d, ports_and_epoch)
}

/// [`Secret::isn_of_words`]. A global function (the verifier's word): the hash is long, and
/// the verifier walks it once and not once for each way that leads to it. The five words
/// are all that a function can take.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn xdptun_cookie(a: u64, b: u64, c: u64, d: u64, ports_and_epoch: u64) -> u32 {
    secret().isn_of_words([a, b, c, d, ports_and_epoch])
}

/// The initial sequence number of the flow that follows `endpoint` now.
#[inline(always)]
pub fn next_iss(endpoint: &Endpoint, flow: &FlowKey, now: u64) -> u32 {
    endpoint.next_iss(cookie(flow, epoch(now)))
}

/// [`next_iss`] of a flow that the peer opens with a SYN of this sequence number: for a repeated SYN
/// the same as for the first.
#[inline(always)]
pub fn next_iss_for(endpoint: &Endpoint, flow: &FlowKey, sequence: u32, now: u64) -> u32 {
    let syn = syn(flow, sequence);
    let kept = answer_to(syn).map_or(0, Word::load);
    let answered_in = secret().answered_in(kept, syn, now);
    match answered_in {
        Some(epoch) if same_cookie(kept as u32, cookie(flow, epoch)) => kept as u32,
        _ => next_iss(endpoint, flow, now),
    }
}

/// Keeps the number of the answer to `segment`, if that is a SYN-ACK.
#[inline(always)]
pub fn keep_answer(flow: &FlowKey, segment: &Segment, reply: &Reply) {
    xdptun_keep_answer(flow, segment, reply);
}

/// See [`keep_answer`]. A global function (the verifier's word), which the verifier walks once and
/// not once for each way that leads to it, and so asks what the answer is by itself. For all it
/// knows the pointers may be null.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn xdptun_keep_answer(
    flow: *const FlowKey,
    segment: *const Segment,
    reply: *const Reply,
) -> u32 {
    // SAFETY: either null or what `keep_answer` was given.
    let given = unsafe { (flow.as_ref(), segment.as_ref(), reply.as_ref()) };
    let (Some(flow), Some(segment), Some(reply)) = given else {
        return 0;
    };
    if reply.kind == Sent::SynAck {
        let syn = syn(flow, segment.sequence);
        if let Some(word) = answer_to(syn) {
            word.refresh(answered(syn, reply.sequence));
        }
    }
    0
}

/// What tells the SYN from others.
#[inline(always)]
fn syn(flow: &FlowKey, sequence: u32) -> u32 {
    cookie(flow, epoch_of_syn(sequence))
}

/// The word for a SYN.
#[inline(always)]
fn answer_to(syn: u32) -> Option<Word<u64>> {
    // SAFETY: a map value.
    ANSWERED
        .get_ptr_mut(syn % SYNS)
        .map(|word| unsafe { Word::new(word) })
}

/// The flow label of segments that belong to no datagram of this host.
#[inline(always)]
pub fn label(flow: &FlowKey) -> u32 {
    label_of(cookie(flow, Secret::LABEL_EPOCH))
}

/// Where the identifications of a flow with this initial number begin.
#[inline(always)]
pub fn first_identification(flow: &FlowKey, iss: u32) -> u16 {
    // The number takes the place of the epoch in the hash, whose result looks random to
    // anyone without the key.
    cookie(flow, iss.into()) as u16
}

/// Whether we gave `number` to the flow a short while ago.
#[inline(always)]
pub fn gave(number: u32, flow: &FlowKey, now: u64) -> bool {
    match secret().epoch_of(number, now) {
        Some(epoch) => same_cookie(number, cookie(flow, epoch)),
        None => false,
    }
}

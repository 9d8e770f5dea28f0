//! Initial sequence numbers.

use aya_ebpf::Global;
use aya_ebpf::macros::map;
use aya_ebpf::maps::Array;
use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::handshake::Endpoint;
use xdptun_common::tunnel::isn::{
    SYNS, Secret, answered, epoch, first_answered, hashed_words, label_of, same_cookie,
};

use crate::flow::word::Word;

/// The epochs in which SYNs were first answered, by some bits of what stands for the SYN.
#[map]
pub static ANSWERED: Array<u64> = Array::with_max_entries(SYNS, 0);

/// What stands where the key is to be: no constant of the programs is the same, or the
/// compiler would make one of the two, and the key show up there.
const UNSET: u64 = 0x7864_7074_756e_0000;

#[unsafe(no_mangle)]
static SECRET: Global<Secret> = Global::new(Secret([UNSET, 1]));

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

/// The same of the flow that the peer opens with a SYN of this sequence number.
#[inline(always)]
pub fn next_iss_for(endpoint: &Endpoint, flow: &FlowKey, sequence: u32, now: u64) -> u32 {
    // As for [`first_identification`].
    let tag = cookie(flow, sequence.into());
    let epoch = match ANSWERED.get_ptr_mut(tag % SYNS) {
        Some(kept) => {
            // SAFETY: a map value.
            let kept = unsafe { Word::new(kept) };
            let epoch = first_answered(kept.load(), tag, now);
            kept.refresh(answered(tag, epoch));
            epoch
        }
        None => epoch(now),
    };
    endpoint.next_iss(cookie(flow, epoch))
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

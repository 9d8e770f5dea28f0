//! Initial sequence numbers, as subprograms: the hash is long and needed in
//! several places.

use xdptun_common::flow::FlowKey;
use xdptun_common::isn::{epoch, same_cookie};

use crate::maps::secret;

/// The initial sequence number of a flow in an epoch.
#[inline(never)]
pub fn isn(flow: &FlowKey, epoch: u64) -> u32 {
    secret().isn_of_epoch(flow, epoch)
}

/// Whether we gave `number` to the flow in this epoch or the last.
#[inline(always)]
pub fn gave(number: u32, flow: &FlowKey, now: u64) -> bool {
    let epoch = epoch(now);
    same_cookie(number, isn(flow, epoch)) || same_cookie(number, isn(flow, epoch.wrapping_sub(1)))
}

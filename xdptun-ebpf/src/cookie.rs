//! Initial sequence numbers, as subprograms: the hash is long and needed in
//! several places.

use xdptun_common::flow::FlowKey;
use xdptun_common::handshake::Endpoint;
use xdptun_common::isn::{Secret, epoch, label_of, same_cookie};

use crate::maps::secret;

/// The cookie of a flow in an epoch.
#[inline(never)]
fn cookie(flow: &FlowKey, epoch: u64) -> u32 {
    secret().isn_of_epoch(flow, epoch)
}

/// The initial sequence number of the flow that follows `endpoint` now.
#[inline(always)]
pub fn next_iss(endpoint: &Endpoint, flow: &FlowKey, now: u64) -> u32 {
    endpoint.next_iss(cookie(flow, epoch(now)))
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

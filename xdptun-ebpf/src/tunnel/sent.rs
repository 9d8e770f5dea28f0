//! The segments that left lately, so that an ICMP error can be asked for a proof.

use aya_ebpf::macros::map;
use aya_ebpf::maps::Array;
use xdptun_common::flow::tick::Tick;
use xdptun_common::tunnel::sent::{DISTRUST, SLOTS, SentSegment, slot, tag};
use xdptun_common::wire::{Ip, TcpHeader};

use crate::tunnel::cookie::secret;
use crate::tunnel::rules::PHANTUN_ISS;
use crate::tunnel::table::Entry;
use crate::tunnel::veil::veils;

/// Segments that left lately (`xdptun_common::tunnel::sent`).
#[map]
pub static SENT: Array<SentSegment> = Array::with_max_entries(SLOTS, 0);

/// Remembers a segment whose TCP header and payload are `len` bytes long.
#[inline(always)]
pub fn remember<I: Ip>(ip: &I, tcp: &TcpHeader, len: u16, now: u64) {
    if let Some(entry) = SENT.get_ptr_mut(slot(tcp.sequence())) {
        let segment = SentSegment {
            sequence: tcp.sequence(),
            tag: tag(secret(), ip, (tcp.source(), tcp.destination())),
            at: Tick::at(now).0,
            len,
            checksum: tcp.checksum(),
        };
        // SAFETY: a map value of this type. Two CPUs may write at once, and one may read
        // half of each: then an error proves nothing.
        unsafe { entry.write_volatile(segment) };
    }
}

/// What an ICMP error quotes of a segment.
#[derive(Clone, Copy)]
pub struct Quoted {
    /// Its ports.
    pub ports: (u16, u16),
    /// Its sequence number.
    pub sequence: u32,
    /// Length of TCP header and payload.
    pub len: usize,
    /// The checksum as it lies in memory, if the quote reaches that far.
    pub checksum: Option<[u8; 2]>,
}

/// Whether the flow sent such a segment lately.
#[inline(always)]
pub fn was_sent<I: Ip>(ip: &I, quoted: &Quoted, flow: Entry, now: u64) -> bool {
    // Routers may quote no more than eight bytes of the segment (RFC 792). They are guessed sooner than a
    // checksum, and known if the flow called a phantun.
    let trusted =
        Tick::at(now).since(flow.distrusted_at()) >= DISTRUST && flow.iss() != PHANTUN_ISS;
    if quoted.checksum.is_none() && !trusted {
        return false;
    }
    let Some(entry) = SENT.get_ptr(slot(quoted.sequence)) else {
        return false;
    };
    // SAFETY: a map value of this type.
    let sent = unsafe { entry.read_volatile() };
    // Without PSH a router may have merged it with those that follow, and quotes them as one. The checksum
    // of that is no proof: it is the sum of the pseudo-header (`tcp_gro_complete`).
    let is_merged = veils() && quoted.len > usize::from(sent.len);
    if is_merged && !trusted {
        return false;
    }
    let (len, checksum) = match is_merged {
        true => (sent.len.into(), None),
        false => (quoted.len, quoted.checksum),
    };
    sent.is_quoted(
        quoted.sequence,
        tag(secret(), ip, quoted.ports),
        len,
        checksum,
        Tick::at(now),
    )
}

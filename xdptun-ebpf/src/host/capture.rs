//! Copies of packets for `xdptun capture`, before they are changed and after.
//!
//! If no capture runs, the verifier removes the copies. They are in subprograms,
//! which the entry points call where nothing else is on the stack. Notes between the two
//! copies are in `skb->cb`: the acknowledgement's clone runs egress in between and would
//! overwrite a per-CPU map.

use core::ffi::c_void;
use core::marker::PhantomData;

use aya_ebpf::Global;
use aya_ebpf::bindings::{__sk_buff, BPF_F_CURRENT_CPU, xdp_md};
use aya_ebpf::helpers::generated::{bpf_ktime_get_ns, bpf_perf_event_output};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{PerCpuArray, PerfEventArray};
use aya_ebpf::programs::{TcContext, XdpContext};
use xdptun_common::report::copy::{ANSWERED, DETAIL, Hook, MET, Record};
use xdptun_common::report::outcome::{Ending, IN_ROW};

use crate::host::interface::{Interface, interface};
use crate::packet::direction::Direction;
use crate::packet::skb::Skb as _;
use crate::packet::version::{frame_ip_version, skb_ip_version};

/// Copies of packets, if they are recorded. A buffer for each CPU, as only these
/// take bytes straight from a packet, however many.
#[map]
pub static RECORDS: PerfEventArray<Record> = PerfEventArray::new(0);

/// Packets that should have been copied to `RECORDS` and were not.
#[map]
pub static UNRECORDED: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

#[unsafe(no_mangle)]
static RECORD: Global<u32> = Global::new(0);

/// How many bytes of each packet are recorded, if any are.
#[inline(always)]
fn record() -> Option<u32> {
    match RECORD.load() {
        0 => None,
        len => Some(len),
    }
}

/// Which packets of a function are copied: those that can end in an outcome.
pub trait Scope {
    /// How they end.
    type Ending: Ending;
    /// Whether a packet at a tc hook is one.
    fn has_skb(ctx: &TcContext, direction: Direction) -> bool;
    /// Whether a frame at XDP is one.
    fn has_frame(ctx: &XdpContext) -> bool;
}

/// Every IP packet.
pub struct EveryPacket<E>(PhantomData<E>);

impl<E: Ending> Scope for EveryPacket<E> {
    type Ending = E;

    #[inline(always)]
    fn has_skb(ctx: &TcContext, _direction: Direction) -> bool {
        skb_ip_version(ctx).is_some()
    }

    #[inline(always)]
    fn has_frame(ctx: &XdpContext) -> bool {
        frame_ip_version(ctx).is_some()
    }
}

/// Processes a packet at a tc hook, recorded if packets of the scope are.
#[inline(always)]
pub fn recorded<S: Scope>(ctx: &TcContext, hook: Hook, process: impl FnOnce() -> i32) -> i32 {
    if record().is_some() {
        met_by_tc::<S>(ctx.raw(), hook as u32);
    }
    let verdict = process();
    if record().is_some() {
        left_by_tc(ctx.raw(), hook as u32);
    }
    verdict
}

/// Notes how the packet at hand ended, always: the store costs no more than to ask whether a capture
/// runs.
#[inline(always)]
pub fn note<E: Ending>(ctx: &TcContext, ending: E) {
    Notes(ctx.raw()).set_end(end_of(ending));
}

/// Notes that the packet at hand was turned into an answer.
#[inline(always)]
pub fn note_answer<E: Ending>(ctx: &TcContext, ending: E) {
    Notes(ctx.raw()).set_end(end_of(ending) | ANSWERED);
}

/// Clears what was noted, perhaps by another program: nobody else clears the words of a packet.
#[inline(always)]
pub fn clear_note(ctx: &TcContext) {
    Notes(ctx.raw()).set_end(MET);
}

/// The index of the counter in which the packet at hand ended; `None` if it has not since [`clear_note`],
/// or was turned into an answer.
#[inline(always)]
pub fn noted_counter(ctx: &TcContext) -> Option<u32> {
    match Notes(ctx.raw()).end() {
        MET => None,
        end if end & ANSWERED != 0 => None,
        end => Some((end - 1) % IN_ROW),
    }
}

/// Notes what decided about the packet at hand, a number up to 255, after [`note`].
#[inline(always)]
pub fn note_detail(ctx: &TcContext, detail: u32) {
    if record().is_some() {
        let notes = Notes(ctx.raw());
        notes.set_end(notes.end() | detail << DETAIL);
    }
}

#[inline(always)]
fn end_of<E: Ending>(ending: E) -> u32 {
    ending.index() + 1
}

/// What is remembered of a packet, in the control words of its skb: they belong to
/// whichever program runs, and a clone has its own.
struct Notes(*mut __sk_buff);

impl Notes {
    #[inline(always)]
    fn end(&self) -> u32 {
        // SAFETY: the context is valid for the whole program run.
        unsafe { (*self.0).cb[0] }
    }

    #[inline(always)]
    fn set_end(&self, end: u32) {
        // SAFETY: as above.
        unsafe { (*self.0).cb[0] = end }
    }

    /// When the packet was met; zero if that is not recorded.
    #[inline(always)]
    fn at(&self) -> u64 {
        // SAFETY: as above; the third word is aligned for two.
        unsafe { (&raw const (*self.0).cb[2]).cast::<u64>().read() }
    }

    #[inline(always)]
    fn set_at(&self, at: u64) {
        // SAFETY: as in `at`.
        unsafe { (&raw mut (*self.0).cb[2]).cast::<u64>().write(at) }
    }
}

/// A packet comes to a tc hook.
#[inline(never)]
fn met_by_tc<S: Scope>(skb: *mut __sk_buff, hook: u32) {
    let ctx = &TcContext::new(skb);
    let direction = if hook == Hook::Egress as u32 {
        Direction::Outbound
    } else {
        Direction::Inbound
    };
    let notes = Notes(skb);
    notes.set_end(MET);
    notes.set_at(0);
    if S::has_skb(ctx, direction) {
        let at = now();
        if emit(skb.cast(), at, place(ctx, hook), MET, ctx.len()) {
            notes.set_at(at);
        }
    }
}

/// A packet leaves a tc hook.
#[inline(never)]
fn left_by_tc(skb: *mut __sk_buff, hook: u32) {
    let notes = Notes(skb);
    let end = notes.end();
    if end == MET {
        return;
    }
    let ctx = &TcContext::new(skb);
    let at = notes.at();
    if at == 0 || !emit(skb.cast(), at, place(ctx, hook), end, ctx.len()) {
        count_unrecorded();
    }
}

/// A packet of `len` bytes comes to XDP: when, or zero if it is not recorded.
#[inline(always)]
pub fn met_by_xdp<S: Scope>(ctx: &XdpContext, at: Interface, len: usize) -> u64 {
    if record().is_none() {
        return 0;
    }
    copy_met_by_xdp::<S>(ctx.ctx, at.index(), len as u32)
}

#[inline(never)]
fn copy_met_by_xdp<S: Scope>(context: *mut xdp_md, interface: u32, len: u32) -> u64 {
    let ctx = &XdpContext::new(context);
    let at = now();
    let place = Place {
        hook: Hook::Xdp as u32,
        interface,
    };
    if S::has_frame(ctx) && emit(context.cast(), at, place, MET, len) {
        at
    } else {
        0
    }
}

/// A packet that was met at that time ends at XDP, with `len` bytes.
#[inline(always)]
pub fn left_by_xdp(ctx: &XdpContext, at: Interface, met: u64, ending: impl Ending, len: usize) {
    if record().is_none() {
        return;
    }
    copy_left_by_xdp(ctx.ctx, at.index(), met, end_of(ending), len as u32);
}

#[inline(never)]
fn copy_left_by_xdp(context: *mut xdp_md, interface: u32, met: u64, end: u32, len: u32) {
    let place = Place {
        hook: Hook::Xdp as u32,
        interface,
    };
    if met == 0 || !emit(context.cast(), met, place, end, len) {
        count_unrecorded();
    }
}

/// Nanoseconds of `CLOCK_MONOTONIC`, exact: two packets have two times.
#[inline(always)]
fn now() -> u64 {
    // SAFETY: no pointers are involved.
    unsafe { bpf_ktime_get_ns() }
}

/// Where a packet is met.
struct Place {
    hook: u32,
    interface: u32,
}

/// Where a packet at a tc hook is met.
#[inline(always)]
fn place(ctx: &TcContext, hook: u32) -> Place {
    Place {
        hook,
        interface: interface(ctx).index(),
    }
}

/// Copies the packet into the buffer of this CPU; `false` if that has no room.
#[inline(always)]
fn emit(context: *mut c_void, at: u64, place: Place, end: u32, len: u32) -> bool {
    let Some(limit) = record() else {
        return false;
    };
    let copied = if len < limit { len } else { limit };
    let record = Record {
        at,
        hook: place.hook,
        end,
        len,
        copied,
        interface: place.interface,
        reserved: 0,
    };
    // The length of what follows from the packet is in the upper half.
    let flags = BPF_F_CURRENT_CPU | u64::from(copied) << 32;
    // SAFETY: the context is valid, the map is one of the right kind, and the record
    // outlives the call; the helper checks that the packet has so many bytes.
    let sent = unsafe {
        bpf_perf_event_output(
            context,
            (&raw const RECORDS).cast_mut().cast(),
            flags,
            core::ptr::from_ref(&record).cast_mut().cast(),
            size_of::<Record>() as u64,
        )
    };
    sent == 0
}

#[inline(always)]
fn count_unrecorded() {
    if let Some(count) = UNRECORDED.get_ptr_mut(0) {
        // SAFETY: a per-CPU value, which only this program run touches.
        unsafe { *count += 1 }
    }
}

//! The veil over payloads (`xdptun_common::tunnel::veil`): covering them is the last step of the
//! disguise, uncovering them the first of restoring.
//!
//! The checksum of a segment changes with its payload, so what a device added up over the whole
//! packet (`CHECKSUM_COMPLETE`) stays true.

pub mod pad;
pub mod stream;

use aya_ebpf::Global;
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, PerCpuArray};
use aya_ebpf::programs::TcContext;
use xdptun_common::checksum::Sum;
use xdptun_common::tunnel::proof::KeySet;
use xdptun_common::tunnel::veil::{self, LONG, SHORT, VeilKey, nonce, pushes};
use xdptun_common::tunnel::window::{is_padded, of_padded};
use xdptun_common::wire::{Ip, TcpHeader};

pub use self::stream::Veiled;
use self::stream::{Place, apply};
use crate::host::clock::now;
use crate::machine::opaque;
use crate::packet::access::Packet;
use crate::packet::link::link_len;
use crate::packet::resize::make_linear;
use crate::tunnel::proof::keys_at;
use crate::tunnel::restore::Cut;
use crate::tunnel::sent;

#[unsafe(no_mangle)]
static VEIL: Global<u32> = Global::new(0);

/// Whether payloads are veiled.
#[inline(always)]
pub fn veils() -> bool {
    VEIL.load() != 0
}

/// 1 from when the packet at hand was padded or uncovered until its end, else 0.
#[map]
pub static VEIL_DONE: PerCpuArray<u32> = PerCpuArray::with_max_entries(1, 0);

/// Notes that the packet at hand was padded or uncovered, and is to be processed again.
#[inline(always)]
fn note_done() {
    set_done(1);
}

/// Forgets it at the packet's end.
#[inline(always)]
pub fn forget_done() {
    if veils() {
        set_done(0);
    }
}

#[inline(always)]
fn set_done(value: u32) {
    if let Some(note) = VEIL_DONE.get_ptr_mut(0) {
        // SAFETY: a per-CPU value, which only this program run touches.
        unsafe { *note = value };
    }
}

/// Whether the packet at hand was padded or uncovered.
#[inline(always)]
pub fn is_done() -> bool {
    // SAFETY: as in `set_done`.
    VEIL_DONE
        .get_ptr(0)
        .is_some_and(|note| unsafe { *note != 0 })
}

/// The length in bytes up to which datagrams are padded.
#[inline(always)]
fn most_padded() -> usize {
    veil::most_padded(VEIL.load())
}

/// The key of all peers that have none of their own.
#[map]
pub static VEIL_KEY: Array<VeilKey> = Array::with_max_entries(1, 0);

/// The key that holds for a peer. `peer` makes its address, which is asked only if peers have keys of
/// their own.
#[inline(always)]
fn key_of(peer: impl FnOnce() -> [u8; 16]) -> Option<&'static VeilKey> {
    if veil::is_by_peer(VEIL.load()) {
        return keys_at(peer()).map(KeySet::veil);
    }
    VEIL_KEY.get(0)
}

/// Covers the payload of the segment in the packet, which has no options and is about to leave.
/// `false` if its memory cannot be reached.
#[inline(never)]
pub fn cover<I: Ip>(ctx: &TcContext) -> bool {
    try_cover::<I>(ctx).is_some()
}

#[inline(always)]
fn try_cover<I: Ip>(ctx: &TcContext) -> Option<()> {
    let header = link_len() + I::LEN;
    let ip: I = ctx.read(link_len())?;
    let tcp: TcpHeader = ctx.read(header)?;
    // Where packets leave, only padding sets the note.
    let tcp = match is_done() {
        true => tcp.with_window(of_padded(tcp.window())),
        false => tcp,
    };
    let tcp_len = ip.payload_len()?;
    let len = tcp_len.checked_sub(TcpHeader::LEN)?;
    let tcp = cover_and_sum(ctx, &ip, tcp, len, stream::apart)?;
    // As it leaves, and not as it was before.
    sent::remember(&ip, &tcp, tcp_len as u16, now());
    ctx.write(header, tcp)
}

/// Covers the payload, `len` bytes, of the segment in the packet that gets this header; the header
/// as it leaves. `first_block` is [`stream::here`] or [`stream::apart`].
#[inline(always)]
pub fn cover_and_sum<I: Ip>(
    ctx: &TcContext,
    ip: &I,
    tcp: TcpHeader,
    len: usize,
    first_block: impl FnOnce(&VeilKey, u64) -> [u64; 2],
) -> Option<TcpHeader> {
    let at = link_len() + I::LEN + TcpHeader::LEN;
    make_linear(ctx, at + reach(len)).ok()?;
    let tcp = match pushes(tcp.sequence(), len) {
        true => tcp,
        false => tcp.without_psh(),
    };
    applied(ctx, at, len, || ip.destination(), tcp, false, first_block)
}

/// Uncovers the payload of the segment in the packet, which may have options of TCP. `false` if its
/// memory cannot be reached.
#[inline(never)]
pub fn uncover_payload<I: Ip>(ctx: &TcContext) -> bool {
    try_uncover::<I>(ctx).is_some()
}

#[inline(always)]
fn try_uncover<I: Ip>(ctx: &TcContext) -> Option<()> {
    let header = link_len() + I::LEN;
    let ip: I = ctx.read(link_len())?;
    let tcp: TcpHeader = ctx.read(header)?;
    let len = ip.payload_len()?.checked_sub(tcp.header_len())?;
    let at = header + tcp.header_len();
    make_linear(ctx, at + reach(len)).ok()?;
    uncover(ctx, at, len, &ip, tcp, stream::apart)?;
    note_done();
    Some(())
}

/// How many bytes of a payload have to be readable. (Kernel 6.1 does not learn the bounds by itself.)
#[inline(always)]
fn reach(len: usize) -> usize {
    let reach = if len > SHORT { LONG } else { len };
    opaque(reach as u64) as usize & (2 * SHORT - 1)
}

/// Whether that much of a payload of `len` bytes at `at` can be read.
#[inline(always)]
pub fn is_within_reach(packet: &impl Packet, at: usize, len: usize) -> bool {
    packet.start() + at + reach(len) <= packet.end()
}

/// Uncovers the payload, `len` bytes from `at` and within reach, of the segment with these headers;
/// the TCP header with the checksum that is right then. `first_block` is [`stream::here`] or
/// [`stream::apart`].
#[inline(always)]
pub fn uncover<I: Ip>(
    packet: &(impl Cut + Veiled),
    at: usize,
    len: usize,
    ip: &I,
    tcp: TcpHeader,
    first_block: impl FnOnce(&VeilKey, u64) -> [u64; 2],
) -> Option<TcpHeader> {
    let tcp = applied(packet, at, len, || ip.source(), tcp, true, first_block)?;
    let field = at - tcp.header_len() + TcpHeader::CHECKSUM_OFFSET;
    packet.write_checksum(field, tcp.checksum())?;
    Some(tcp)
}

#[inline(always)]
fn applied(
    packet: &impl Veiled,
    at: usize,
    len: usize,
    peer: impl FnOnce() -> [u8; 16],
    tcp: TcpHeader,
    uncovers: bool,
    first_block: impl FnOnce(&VeilKey, u64) -> [u64; 2],
) -> Option<TcpHeader> {
    let place = Place {
        at,
        len,
        is_padded: is_padded(tcp.window()),
        uncovers,
    };
    let nonce = nonce(tcp.sequence(), tcp.acknowledgment());
    let added = apply(packet, place, nonce, key_of(peer)?, first_block)?;
    let sum = Sum::of_checksum(tcp.checksum()).combine(added);
    Some(tcp.with_checksum(sum.checksum()))
}

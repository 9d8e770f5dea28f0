//! Maps and read-only variables: all that user space and the programs share.

use aya_ebpf::Global;
use aya_ebpf::bindings::BPF_F_NO_PREALLOC;
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, LpmTrie, LruHashMap, PerCpuArray, PerfEventArray, RingBuf};
use xdptun_common::config::{
    Attachment, IngressMode, LINK_ETHERNET, MAX_LOCAL, MAX_PEERS, Owner, PORT_WORDS, TcpDefaults,
};
use xdptun_common::counter::COUNTERS as COUNTER_COUNT;
use xdptun_common::event::RING_BYTES;
use xdptun_common::flow::{Flow, FlowKey};
use xdptun_common::isn::Secret;
use xdptun_common::parse::FragmentKey;
use xdptun_common::proof::{KeySet, MAX_KEY_SETS};
use xdptun_common::record::Record;
use xdptun_common::replay::PAGE;
use xdptun_common::sent::{SLOTS, SentSegment};
use xdptun_common::share::{Settled, Tally};
use xdptun_common::wire::TimestampedSynOptions;

use crate::budget::{BUDGETS_LEN, Bucket, ResetKey};
use crate::control::Prepared;
use crate::options::Aside;

/// Every flow. Not preallocated, so that closed flows give their memory back;
/// not LRU, so that a flood cannot push a live flow out. User space sets the
/// capacity.
#[map]
pub static FLOWS: HashMap<FlowKey, Flow> = HashMap::with_max_entries(65536, BPF_F_NO_PREALLOC);

/// The flow entry that this program run is about to insert. Not on the stack, which is
/// full.
#[map]
pub static NEW_FLOW: PerCpuArray<Flow> = PerCpuArray::with_max_entries(1, 0);

/// A bit for each port: set if it is ours.
#[map]
pub static PORTS: Array<u64> = Array::with_max_entries(PORT_WORDS, 0);

/// Networks of peers, 16-byte addresses; used if `PEERS_ONLY` is set.
#[map]
pub static PEERS: LpmTrie<[u8; 16], u32> = LpmTrie::with_max_entries(MAX_PEERS, 0);

/// Networks of this host's own addresses, 16-byte addresses, and what they are
/// (`xdptun_common::config::Local`). User space fills it before programs run.
#[map]
pub static LOCAL: LpmTrie<[u8; 16], u32> = LpmTrie::with_max_entries(MAX_LOCAL, 0);

/// Outcomes and sent segments, by `Outcome::index` and `Sent::index`.
#[map]
pub static COUNTERS: PerCpuArray<u64> = PerCpuArray::with_max_entries(COUNTER_COUNT, 0);

/// What may still be answered, by `Budget`.
#[map]
pub static BUDGETS: PerCpuArray<Bucket> = PerCpuArray::with_max_entries(BUDGETS_LEN, 0);

/// What `options` has taken out of the packet at hand. Not on the stack, which
/// is full.
#[map]
pub static ASIDE: PerCpuArray<Aside> = PerCpuArray::with_max_entries(1, 0);

/// Datagrams whose first fragment was dropped, and when (nanoseconds). LRU, as
/// nothing tells when the last fragment has come.
#[map]
pub static FRAGMENTS: LruHashMap<FragmentKey, u64> = LruHashMap::with_max_entries(8192, 0);

/// TCP connections that were opened from an owned port by this host or a host behind it, and
/// when a segment of each left last (`Tick`). LRU: hosts behind this one make entries.
#[map]
pub static CALLS: LruHashMap<FlowKey, u32> = LruHashMap::with_max_entries(4096, 0);

/// Sets of keys of proofs. User space writes those that shall hold beside those that
/// do, and then makes `KEYS_OF` name them: two times as many as may hold at once.
#[map]
pub static KEYS: Array<KeySet> = Array::with_max_entries(2 * MAX_KEY_SETS, 0);

/// Which set holds for a peer, by its address. Everyone's is that of `::/0`. Room for
/// the old and the new networks of peers at once.
#[map]
pub static KEYS_OF: LpmTrie<[u8; 16], u32> = LpmTrie::with_max_entries(2 * (MAX_PEERS + 1), 0);

/// The last proofs of the secret, and the address that each came from first, so that a
/// SYN can be repeated on the way. What this map forgets, `SEEN` does not. User space
/// sets the capacity.
#[map]
pub static PROOFS: LruHashMap<u64, [u8; 16]> = LruHashMap::with_max_entries(1, 0);

/// Which proofs came or were sent (`xdptun_common::replay`). User space sets the
/// capacity.
#[map]
pub static SEEN: Array<[u8; PAGE as usize]> = Array::with_max_entries(1, 0);

/// The options of the SYN at hand, with its proof. Not on the stack, which is full.
#[map]
pub static PROVEN: PerCpuArray<TimestampedSynOptions> = PerCpuArray::with_max_entries(1, 0);

/// What the segment that is about to be made needs.
#[map]
pub static PREPARED: PerCpuArray<Prepared> = PerCpuArray::with_max_entries(1, 0);

/// Segments that left lately (`xdptun_common::sent`).
#[map]
pub static SENT: Array<SentSegment> = Array::with_max_entries(SLOTS, 0);

/// Addresses that flows were established with; the daemon removes those without flows.
/// Not preallocated; user space sets the capacity.
#[map]
pub static REMOTES: HashMap<[u8; 16], u32> = HashMap::with_max_entries(65536, BPF_F_NO_PREALLOC);

/// Flows that were made and answered.
#[map]
pub static OPENED: Array<Tally> = Array::with_max_entries(1, 0);

/// How many of these the daemon found to be no more.
#[map]
pub static SETTLED: Array<Settled> = Array::with_max_entries(1, 0);

/// When each network of peers will have earned its share of the table back (nanoseconds).
/// LRU: anyone who completes a handshake makes an entry.
#[map]
pub static NETWORKS: LruHashMap<[u8; 16], u64> = LruHashMap::with_max_entries(4096, 0);

/// Resets that were sent, and when last (nanoseconds). LRU: anyone can make entries.
#[map]
pub static RESETS: LruHashMap<ResetKey, u64> = LruHashMap::with_max_entries(4096, 0);

/// Records for the daemon (`xdptun_common::event`).
#[map]
pub static EVENTS: RingBuf = RingBuf::with_byte_size(RING_BYTES, 0);

/// Copies of packets, if they are recorded. A buffer for each CPU, as only these
/// take bytes straight from a packet, however many.
#[map]
pub static RECORDS: PerfEventArray<Record> = PerfEventArray::new(0);

/// Packets of ours that are not in `RECORDS` as they should be.
#[map]
pub static UNRECORDED: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// Who keeps this attachment; the programs do not read it.
#[map]
pub static OWNER: Array<Owner> = Array::with_max_entries(1, 0);

/// What this attachment is; the programs do not read it.
#[map]
pub static ATTACHMENT: Array<Attachment> = Array::with_max_entries(1, 0);

/// What stands where the key is to be: no constant of the programs is the same, or the
/// compiler would make one of the two, and the key show up there.
const UNSET: u64 = 0x7864_7074_756e_0000;

#[unsafe(no_mangle)]
static SECRET: Global<Secret> = Global::new(Secret([UNSET, 1]));
#[unsafe(no_mangle)]
static HIDDEN: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
static IFINDEX: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
static LINK_LEN: Global<u32> = Global::new(LINK_ETHERNET);
#[unsafe(no_mangle)]
static MTU: Global<u32> = Global::new(1500);
#[unsafe(no_mangle)]
static MAX_FLOWS: Global<u32> = Global::new(65536);
#[unsafe(no_mangle)]
static TCP_DEFAULTS: Global<TcpDefaults> = Global::new(TcpDefaults::LINUX);
#[unsafe(no_mangle)]
static PEERS_ONLY: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
static SPLITTER: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
static SHRINK_TWICE: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
static XDP: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
static RECORD: Global<u32> = Global::new(0);

/// The key of initial sequence numbers.
#[inline(always)]
pub fn secret() -> Secret {
    SECRET.load()
}

/// Whether a caller must prove that it knows a secret.
#[inline(always)]
pub fn hidden() -> bool {
    HIDDEN.load() != 0
}

/// The interface the programs are attached to.
#[inline(always)]
pub fn ifindex() -> u32 {
    IFINDEX.load()
}

/// Whether packets start with an Ethernet header.
#[inline(always)]
pub fn has_ethernet() -> bool {
    LINK_LEN.load() == LINK_ETHERNET
}

/// Where the IP header starts.
#[inline(always)]
pub fn link_len() -> usize {
    LINK_LEN.load() as usize
}

/// The interface's MTU at attach.
#[inline(always)]
pub fn mtu() -> u32 {
    MTU.load()
}

/// How many flows the table holds.
#[inline(always)]
pub fn max_flows() -> u32 {
    MAX_FLOWS.load()
}

/// What a TCP connection of this host begins with.
#[inline(always)]
pub fn tcp_defaults() -> TcpDefaults {
    TCP_DEFAULTS.load()
}

/// Whether only configured peers are ours.
#[inline(always)]
pub fn peers_only() -> bool {
    PEERS_ONLY.load() != 0
}

/// The near end of the splitter pair, if there is one.
#[inline(always)]
pub fn splitter() -> Option<u32> {
    match SPLITTER.load() {
        0 => None,
        ifindex => Some(ifindex),
    }
}

/// Whether a pending checksum ends only with the second shrinking.
#[inline(always)]
pub fn shrink_twice() -> bool {
    SHRINK_TWICE.load() != 0
}

/// How many bytes of each packet are recorded, if any are.
#[inline(always)]
pub fn record() -> Option<u32> {
    match RECORD.load() {
        0 => None,
        len => Some(len),
    }
}

/// Who restores inbound data. If XDP does, it has refused plain UDP as well.
#[inline(always)]
pub fn xdp() -> IngressMode {
    match XDP.load() {
        0 => IngressMode::Tc,
        1 => IngressMode::Xdp,
        _ => IngressMode::XdpGeneric,
    }
}

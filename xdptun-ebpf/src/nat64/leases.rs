//! Which client has which IPv4 address.
//!
//! The programs make leases, and the daemon removes those that are over. Two maps hold a lease: if
//! they disagree, because one of them was changed a moment ago, that by address is right.

use aya_ebpf::bindings::{BPF_ANY, BPF_F_NO_PREALLOC, BPF_NOEXIST};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, PerCpuArray};
use aya_ebpf::programs::TcContext;
use xdptun_common::flow::tick::Tick;
use xdptun_common::nat64::lease::{Lease, NetworkKey, Number, SEEN_EVERY, Standing};
use xdptun_common::nat64::outcome::{Count, Outcome};
use xdptun_common::nat64::pool::{ATTEMPTS, MAX_BITS};
use xdptun_common::nat64::translator::Translator;

use crate::flow::word::Word;
use crate::host::clock::now;
use crate::host::counters::count;
use crate::host::interface::interface;
use crate::nat64::step::outcome;
use crate::nat64::translator::{is_inside, translator};
use crate::packet::skb::Skb as _;

/// Which client has an address. Not LRU: an address is a client's as long as sessions can live.
#[map]
pub static LEASES: HashMap<[u8; 4], Lease> =
    HashMap::with_max_entries(1 << MAX_BITS, BPF_F_NO_PREALLOC);

/// The address of a client, by a lease that may be gone.
#[map]
pub static CLIENTS: HashMap<[u8; 16], [u8; 4]> =
    HashMap::with_max_entries(1 << MAX_BITS, BPF_F_NO_PREALLOC);

/// How many leases there are, by [`Number`].
#[map]
pub static LEASE_NUMBERS: Array<u32> = Array::with_max_entries(Number::ALL, 0);

/// How many leases the clients of each network of 64 bits have.
#[map]
pub static CLIENT_NETWORKS: HashMap<NetworkKey, u32> =
    HashMap::with_max_entries(2 << MAX_BITS, BPF_F_NO_PREALLOC);

/// The client that has an address, to which a packet is sent.
#[inline(always)]
pub fn client(ctx: &TcContext, translator: &Translator, address: [u8; 4]) -> Option<[u8; 16]> {
    let lease = LEASES.get_ptr_mut(address)?;
    // SAFETY: a map value; words of it change in place, each of which is judged by itself.
    let seen = unsafe { lease.read() };
    if seen.is_over(translator, Tick::at(now())) {
        return None;
    }
    if seen.standing == Standing::Unanswered as u32 {
        // SAFETY: a word of a map value, aligned.
        let standing = unsafe { Word::new(&raw mut (*lease).standing) };
        // One CPU alone counts it.
        if standing.replace(seen.standing, Standing::Answered as u32) {
            add(Number::Answered);
            count(interface(ctx), Count::LeasesAnswered);
        }
    }
    Some(seen.client)
}

/// The address of a client that has one, whether or not it sends.
#[inline(always)]
pub fn address(client: [u8; 16]) -> Option<[u8; 4]> {
    let address = CLIENTS.get_ptr(client)?;
    // SAFETY: a map value of one word.
    let address = unsafe { address.read() };
    let lease = LEASES.get_ptr(address)?;
    // SAFETY: a map value, of which this does not change.
    (unsafe { (*lease).client } == client).then_some(address)
}

/// The address of a client that sends, a new one if it has none. As this host only itself sends.
#[inline(always)]
pub fn address_of_sender(ctx: &TcContext, client: [u8; 16]) -> Result<[u8; 4], Outcome> {
    let is_own = client == translator().map_err(|_| Outcome::ToV4DropAccess)?.own_v6;
    if is_own && ctx.came_in() {
        return Err(Outcome::ToV4DropOutside);
    }
    match renewed(client) {
        Some(address) => Ok(address),
        None => begin(ctx, client),
    }
}

/// The address of a client that has one, which sends now.
#[inline(always)]
fn renewed(client: [u8; 16]) -> Option<[u8; 4]> {
    let address = address(client)?;
    renew(address, Tick::at(now()));
    Some(address)
}

/// Notes that the client of an address sends.
#[inline(always)]
fn renew(address: [u8; 4], now: Tick) {
    let Some(lease) = LEASES.get_ptr_mut(address) else {
        return;
    };
    // SAFETY: a word of a map value, aligned.
    let seen = unsafe { Word::new(&raw mut (*lease).seen) };
    if now.since(seen.load()) >= SEEN_EVERY {
        seen.store(now.0);
    }
}

/// The client that is about to get an address. Not on the stack: it is the key of maps.
#[map]
pub static SENDER: PerCpuArray<[u8; 16]> = PerCpuArray::with_max_entries(1, 0);

/// Gives a client an address.
#[inline(always)]
fn begin(ctx: &TcContext, client: [u8; 16]) -> Result<[u8; 4], Outcome> {
    if !is_inside(client) {
        return Err(Outcome::ToV4DropOutside);
    }
    if let Some(sender) = SENDER.get_ptr_mut(0) {
        // SAFETY: a per-CPU value, which only this program run touches.
        unsafe { sender.write(client) };
    }
    for attempt in 0..ATTEMPTS {
        match nat64_try_address(attempt) {
            NO => {}
            given @ (YES | BEGAN) => {
                if given == BEGAN {
                    count(interface(ctx), Count::LeasesBegan);
                }
                return address(client).ok_or(Outcome::ToV4DropFull);
            }
            refused => return Err(outcome(refused).unwrap_or(Outcome::ToV4DropFull)),
        }
    }
    Err(Outcome::ToV4DropFull)
}

/// What [`nat64_try_address`] returns: the client has an address.
const YES: u32 = 0x100;
/// See [`YES`]: the address is another's.
const NO: u32 = 0x101;
/// See [`YES`]: and the lease is new.
const BEGAN: u32 = 0x102;

/// Tries an address for the sender at hand: [`YES`], [`NO`], [`BEGAN`], or the index of an outcome.
/// Each attempt is a call of a global function (the verifier's word), which the verifier walks once.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn nat64_try_address(attempt: u32) -> u32 {
    let (Some(sender), Ok(translator)) = (SENDER.get(0), translator()) else {
        return Outcome::ToV4DropAccess.index();
    };
    let candidate = translator.pool.candidate(*sender, translator.key, attempt);
    let Some(address) = candidate else {
        return NO;
    };
    let now = Tick::at(now());
    if let Some(answer) = try_again(*sender, address, now) {
        return answer;
    }
    if let Some(outcome) = is_one_too_many(translator, *sender) {
        return outcome.index();
    }
    let lease = Lease::new(*sender, now);
    if LEASES
        .insert(address, lease, u64::from(BPF_NOEXIST))
        .is_err()
    {
        // Another CPU has given it away, perhaps to this client.
        return try_again(*sender, address, now).unwrap_or(NO);
    }
    // Another CPU may be giving the client an address as well. The one that comes last counts; the
    // other's lease ends unanswered.
    if CLIENTS.insert(sender, address, u64::from(BPF_ANY)).is_err() {
        let _ = LEASES.remove(address);
        return Outcome::ToV4DropFull.index();
    }
    add(Number::Began);
    add_in_network(*sender);
    BEGAN
}

/// Tries an address that somebody has: it may be the client's own, by a lease that may have been
/// over. `None` if nobody has it.
#[inline(always)]
fn try_again(client: [u8; 16], address: [u8; 4], now: Tick) -> Option<u32> {
    let lease = LEASES.get_ptr(address)?;
    // SAFETY: a map value, of which this does not change.
    if unsafe { (*lease).client } != client {
        return Some(NO);
    }
    renew(address, now);
    let _ = CLIENTS.insert(client, address, u64::from(BPF_ANY));
    Some(YES)
}

/// Why a client may have no address.
#[inline(always)]
fn is_one_too_many(translator: &Translator, client: [u8; 16]) -> Option<Outcome> {
    let unanswered = number(Number::Began)
        .wrapping_sub(number(Number::Answered))
        .wrapping_sub(number(Number::Unanswered));
    // Numbers that were not counted at the same moment may differ by less than nothing.
    if unanswered.cast_signed() >= translator.max_unanswered.cast_signed() {
        return Some(Outcome::ToV4DropShare);
    }
    let began = NetworkKey::began(client);
    let there = number_of(began).wrapping_sub(number_of(began.gone()));
    (there.cast_signed() >= translator.max_per_network.cast_signed())
        .then_some(Outcome::ToV4DropNetwork)
}

#[inline(always)]
fn number(number: Number) -> u32 {
    LEASE_NUMBERS.get(number as u32).copied().unwrap_or(0)
}

#[inline(always)]
fn number_of(key: NetworkKey) -> u32 {
    let number = CLIENT_NETWORKS.get_ptr(key);
    // SAFETY: a map value of one word.
    number.map_or(0, |number| unsafe { number.read_volatile() })
}

#[inline(always)]
fn add(number: Number) {
    if let Some(number) = LEASE_NUMBERS.get_ptr_mut(number as u32) {
        // SAFETY: a map value of one word.
        unsafe { Word::new(number) }.fetch_add(1);
    }
}

#[inline(always)]
fn add_in_network(client: [u8; 16]) {
    let key = NetworkKey::began(client);
    let insert = CLIENT_NETWORKS.insert(key, 0, u64::from(BPF_NOEXIST));
    // It is there already in most cases.
    let _ = insert;
    if let Some(number) = CLIENT_NETWORKS.get_ptr_mut(key) {
        // SAFETY: a map value of one word.
        unsafe { Word::new(number) }.fetch_add(1);
    }
}

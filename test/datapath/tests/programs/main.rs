//! Tables of packets for each program, by what happens to the packet.
//!
//! One binary, because loading a program takes the verifier a second.

mod calls;
mod carried;
mod configured;
mod device;
mod divided;
mod effects;
mod established;
mod fragments;
mod handshake;
mod header_damage;
mod hidden;
mod icmp;
mod jumbo;
mod leaving_icmp;
mod limit;
mod not_ours;
mod numbers;
mod odd;
mod open_flow;
mod opening;
mod options;
mod phantun;
mod refused;
mod requests;
mod restored;
mod runner;
mod share;
mod shrink_twice;
mod sockets;
mod split;
mod stack;
mod tagged;
mod there_and_back;
mod too_big;
mod veiled;
mod verified;
mod xdp;

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::state::Flow;
use xdptun_test_datapath::kernel::{MAX_FLOWS, MTU, require_root};
use xdptun_test_datapath::path::OWNED;
use xdptun_test_datapath::{Config, Datapath, Family, Moment, Path};

/// Programs that several tests share.
pub type Shared = LazyLock<Mutex<Datapath>>;

static DEFAULT: Shared = LazyLock::new(|| Mutex::new(Datapath::new(&Config::default())));

/// The programs with the default configuration.
pub fn datapath() -> MutexGuard<'static, Datapath> {
    lock(&DEFAULT)
}

/// Takes shared programs for the length of a test. A test that failed leaves
/// nothing behind: every row starts with empty maps.
pub fn lock(shared: &'static Shared) -> MutexGuard<'static, Datapath> {
    require_root();
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Either end owns the port, in either family.
pub fn paths() -> impl Iterator<Item = Path> {
    Family::ALL
        .into_iter()
        .flat_map(|family| [Path::client(family), Path::server(family)])
}

/// Payload lengths at every edge that the programs have: words, the bytes that
/// are taken out to settle a checksum (32 and 48), the blocks of the sum (64).
pub fn lengths() -> impl Iterator<Item = usize> {
    (0..=4)
        .chain(26..=34)
        .chain(46..=50)
        .chain(62..=66)
        .chain(126..=130)
        .chain([255, 999, 1000, 1400])
}

/// The longest payload whose segment fits an MTU of 1500.
pub const fn largest(family: Family) -> usize {
    MTU as usize - family.header_len() - 20
}

/// As many flows as the table holds, none of them any test's own.
pub fn full_table(at: Moment) -> BTreeMap<FlowKey, Flow> {
    (1..=MAX_FLOWS as u16)
        .map(|port| {
            let path = Path::new(Family::V4, OWNED, port);
            (path.key(), path.established(at))
        })
        .collect()
}

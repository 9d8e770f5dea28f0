//! Loading the programs, set up for a link layer and a group.

use std::num::NonZeroU32;
use std::path::Path;

use aya::maps::{MapData, RingBuf};
use aya::util::KernelVersion;
use aya::{Ebpf, EbpfLoader};
use xdptun_common::attachment::Group;
use xdptun_common::tunnel::config::global;
use xdptun_common::tunnel::replay::PAGES;

use super::FUNCTION;
use super::keys::KeyMaps;
use super::local::LocalMap;
use super::maps::{Maps, PINNED, PROOFS, take_events};
use super::options::{AttachOptions, Trace};
use super::sizes::forgetful;
use super::tcp_defaults;
use crate::config::{IngressChoice, TcChoice};
use crate::datapath::TUNNEL;
use crate::datapath::hook::load_all;
use crate::datapath::pod::AsPod;
use crate::datapath::recorder::Recorder;
use crate::datapath::records::RECORDS;
use crate::error::{Context as _, Result};
use crate::host::interface::Interface;
use crate::host::preflight::kernel_version;

/// The programs for one link layer, with the maps that are theirs alone.
pub struct Programs {
    /// The length of the link header in bytes.
    pub link_len: u32,
    /// The maps with the keys of proofs.
    pub(super) keys: KeyMaps,
    /// The map with the addresses of this host.
    pub(super) local: LocalMap,
    /// Their copies of packets, if they make any.
    pub(super) recorder: Option<Recorder>,
    /// The loaded object, for its log.
    pub ebpf: Ebpf,
}

/// The programs for the link layer of an interface, and the maps of its group. Maps that are
/// pinned already are used as they are.
pub fn prepare(
    interface: &Interface,
    options: &AttachOptions,
    group: Group,
    directory: &Path,
) -> Result<(Programs, Maps, RingBuf<MapData>)> {
    let mut programs = prepare_more(interface, options, group, directory)?;
    let mut maps = Maps::of(&mut programs.ebpf)?;
    let events = take_events(&mut programs.ebpf)?;
    // Before anything is attached: whatever ends this process, another one can remove it.
    maps.records.own()?;
    maps.records.set_group(group)?;
    maps.set_ports(&options.ports)?;
    maps.add_peers(&options.peers)?;
    Ok((programs, maps, events))
}

/// The programs for one more link layer of a group. The object stays open with its maps: the
/// kernel loads a program only when it is first attached.
pub fn prepare_more(
    interface: &Interface,
    options: &AttachOptions,
    group: Group,
    directory: &Path,
) -> Result<Programs> {
    let mut ebpf = load(interface, options, &group, Some(directory))?;
    let mut keys = KeyMaps::take(&mut ebpf)?;
    if let Some(wanted) = &options.keys {
        keys.set(wanted)?;
    }
    let local = LocalMap::take(&mut ebpf)?;
    // Before the first copy.
    let recorder = match options.record_at(interface.link_len) {
        Some(_) => Some(Recorder::open(&mut ebpf)?),
        None => None,
    };
    Ok(Programs {
        link_len: interface.link_len,
        keys,
        local,
        recorder,
        ebpf,
    })
}

/// The first kernel that moves the start of a packet before it looks at a pending
/// checksum (`bpf: pull before calling skb_postpull_rcsum`). Some older ones have
/// the change too; they take one step more than they need.
const PULLS_FIRST: KernelVersion = KernelVersion::new(6, 2, 0);

/// Loads every program as [`super::Attached::new`] would, attaches and pins nothing, and
/// lets go of all of it. Whether the kernel translates the programs for the
/// processor (JIT).
///
/// # Errors
///
/// If the kernel refuses one of them.
pub fn try_load(interface: &Interface) -> Result<bool> {
    let options = AttachOptions {
        ports: Vec::new(),
        peers: Vec::new(),
        only_peers: false,
        ingress: IngressChoice::Auto,
        tc: TcChoice::Auto,
        max_flows: 1,
        keys: None,
        trace: Trace::Off,
        record: None,
    };
    let group = Group {
        secret: [0; 2],
        hidden: 0,
    };
    let mut ebpf = load(interface, &options, &group, None)?;
    load_all(&mut ebpf, &FUNCTION)
}

/// Makes the maps, pinned in `directory` if there is one.
fn load(
    interface: &Interface,
    options: &AttachOptions,
    group: &Group,
    directory: Option<&Path>,
) -> Result<Ebpf> {
    let log_level: u8 = match options.trace {
        Trace::On => u8::MAX,
        Trace::Off => 0,
    };
    let peers_only = u32::from(options.only_peers);
    let shrink_twice = u32::from(kernel_version()? < PULLS_FIRST);
    let hidden = u32::from(options.keys.is_some());
    let record = options.record_at(interface.link_len);
    let record = record.map_or(0, NonZeroU32::get);
    let tcp_defaults = AsPod(tcp_defaults::read(&interface.name));
    let mut loader = EbpfLoader::new();
    loader
        .override_global(global::HIDDEN, &hidden, true)
        .override_global(global::SECRET, &group.secret, true)
        .override_global(global::LINK_LEN, &interface.link_len, true)
        .override_global(global::MAX_FLOWS, &options.max_flows, true)
        .override_global(global::TCP_DEFAULTS, &tcp_defaults, true)
        .override_global(global::PEERS_ONLY, &peers_only, true)
        .override_global(global::SHRINK_TWICE, &shrink_twice, true)
        .override_global(global::RECORD, &record, true)
        .override_global(aya_log::LEVEL, &log_level, true)
        .map_max_entries("FLOWS", options.max_flows)
        .map_max_entries("REMOTES", options.max_flows);
    // Without a secret they stay as small as the object has them.
    let proofs = if hidden != 0 { &PROOFS[..] } else { &[] };
    for (map, entries) in forgetful().filter(|(map, _)| *map != PROOFS[0] || hidden != 0) {
        loader.map_max_entries(map, entries);
    }
    if hidden != 0 {
        loader.map_max_entries(PROOFS[1], PAGES);
    }
    if let Some(directory) = directory {
        for map in RECORDS.iter().chain(&PINNED).chain(proofs) {
            loader.map_pin_path(map, directory.join(map));
        }
    }
    loader.load(TUNNEL).context("cannot load the kernel side")
}

//! Loading the programs, set up for an interface.

use std::num::NonZeroU32;
use std::path::Path;

use aya::maps::{MapData, RingBuf};
use aya::util::KernelVersion;
use aya::{Ebpf, EbpfLoader};
use xdptun_common::attachment::{Attachment, IngressMode};
use xdptun_common::tunnel::config::global;
use xdptun_common::tunnel::replay::PAGES;

use super::attach::first_record;
use super::maps::{Maps, PINNED, PROOFS, take_events};
use super::options::{AttachOptions, Trace};
use super::sizes::forgetful;
use super::tcp_defaults;
use crate::config::{IngressChoice, TcChoice};
use crate::datapath::hook::load_all;
use crate::datapath::pod::AsPod;
use crate::datapath::{TUNNEL, pins};
use crate::error::{Context as _, Result};
use crate::host::interface::Interface;
use crate::host::preflight::kernel_version;

/// The object in the kernel, its maps pinned and filled. Maps that are pinned
/// already are used as they are.
pub fn prepare(
    interface: &Interface,
    options: &AttachOptions,
    attachment: Attachment,
    near_end: u32,
) -> Result<(Ebpf, Maps, RingBuf<MapData>)> {
    let directory = pins::directory(interface.index)?;
    let mut ebpf = load(interface, options, &attachment, near_end, Some(&directory))?;
    let mut maps = Maps::of(&mut ebpf)?;
    let events = take_events(&mut ebpf)?;
    maps.set_ports(&options.ports)?;
    maps.add_peers(&options.peers)?;
    // Recorded before it is made: whatever ends this process, `strip` knows.
    maps.own()?;
    maps.set_attachment(attachment)?;
    Ok((ebpf, maps, events))
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
    let attachment = first_record(interface, &options, IngressMode::Xdp)?;
    let mut ebpf = load(interface, &options, &attachment, interface.index, None)?;
    load_all(&mut ebpf)
}

/// Makes the maps, pinned in `directory` if there is one.
fn load(
    interface: &Interface,
    options: &AttachOptions,
    attachment: &Attachment,
    near_end: u32,
    directory: Option<&Path>,
) -> Result<Ebpf> {
    let log_level: u8 = match options.trace {
        Trace::On => u8::MAX,
        Trace::Off => 0,
    };
    let peers_only = u32::from(options.only_peers);
    let shrink_twice = u32::from(kernel_version()? < PULLS_FIRST);
    let hidden = u32::from(options.keys.is_some());
    let record = options.record.map_or(0, NonZeroU32::get);
    let tcp_defaults = AsPod(tcp_defaults::read(&interface.name));
    let mut loader = EbpfLoader::new();
    loader
        .override_global(global::HIDDEN, &hidden, true)
        .override_global(global::SECRET, &attachment.secret, true)
        .override_global(global::IFINDEX, &interface.index, true)
        .override_global(global::LINK_LEN, &interface.link_len, true)
        .override_global(global::MTU, &interface.mtu, true)
        .override_global(global::MAX_FLOWS, &options.max_flows, true)
        .override_global(global::TCP_DEFAULTS, &tcp_defaults, true)
        .override_global(global::PEERS_ONLY, &peers_only, true)
        .override_global(global::SPLITTER, &near_end, true)
        .override_global(global::SHRINK_TWICE, &shrink_twice, true)
        .override_global(global::XDP, &attachment.ingress, true)
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
        for map in PINNED.iter().chain(proofs) {
            loader.map_pin_path(map, directory.join(map));
        }
    }
    loader.load(TUNNEL).context("cannot load the kernel side")
}

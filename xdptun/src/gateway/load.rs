//! Loading the programs, set up for a link layer and a group.

use std::path::Path;

use aya::Ebpf;
use xdptun_common::gateway::global;
use xdptun_object::GATEWAY;

use super::maps::{ENTRIES, pinned};
use super::settings::Settings;
use crate::datapath::local::LocalMap;
use crate::error::{Context as _, Result};
use crate::group::Options;
use crate::group::load::{Globals, bytes_of};
use crate::host::interface::Interface;

/// What belongs to the programs of one link layer alone.
pub struct Own {
    /// The map with the addresses of this host.
    pub(super) local: LocalMap,
}

/// Loads the object with maps that are pinned in `directory`.
pub fn load(
    options: &Options<Settings>,
    interface: &Interface,
    directory: &Path,
) -> Result<(Ebpf, Own)> {
    let max_sessions = options.settings.max_sessions;
    let globals = Globals::of(options, interface)?;
    let mut loader = globals.loader(Some(directory));
    loader
        .override_global(global::MAX_SESSIONS, &max_sessions, true)
        .map_max_entries("SESSIONS", max_sessions * ENTRIES)
        .map_max_entries("BINDINGS", options.settings.max_bindings)
        .map_max_entries("OUTSIDE_PORTS", options.settings.max_bindings);
    for map in pinned() {
        loader.map_pin_path(map, directory.join(map));
    }
    let loaded = loader.load(&bytes_of(GATEWAY));
    let mut ebpf = loaded.context("cannot load the kernel side")?;
    let local = LocalMap::take(&mut ebpf)?;
    Ok((ebpf, Own { local }))
}

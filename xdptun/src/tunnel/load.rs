//! Loading the programs, set up for a link layer and a group.

use std::path::Path;

use aya::Ebpf;
use xdptun_common::tunnel::config::global;
use xdptun_common::tunnel::group::Group;
use xdptun_common::tunnel::isn::Secret;
use xdptun_common::tunnel::replay::PAGES;
use xdptun_common::tunnel::veil;
use xdptun_object::TUNNEL;

use super::Tunnel;
use super::keys::KeyMaps;
use super::maps::{PINNED, PROOFS, group};
use super::settings::{PhantunPeers, Settings};
use super::sizes::forgetful;
use super::tcp_defaults;
use crate::config::{GroChoice, IngressChoice, TcChoice};
use crate::datapath::hook::load_all;
use crate::datapath::local::LocalMap;
use crate::datapath::pins;
use crate::datapath::pod::AsPod;
use crate::error::{Context as _, Result};
use crate::group::load::{Globals, bytes_of};
use crate::group::{Function as _, Options, Trace};
use crate::host::interface::Interface;
use crate::host::random;

/// What belongs to the programs of one link layer alone.
pub struct Own {
    /// The maps with the keys of proofs.
    pub(super) keys: KeyMaps,
    /// The map with the addresses of this host.
    pub(super) local: LocalMap,
    /// What they were told of the group.
    pub(super) group: Group,
}

/// Loads the object with maps that are pinned in `directory`, and fills those that are not.
pub fn load(
    options: &Options<Settings>,
    interface: &Interface,
    directory: &Path,
) -> Result<(Ebpf, Own)> {
    let group = Group {
        // Initial sequence numbers go on.
        secret: match pins::has_maps(directory)? {
            true => group(directory)?.secret,
            false => random_secret()?,
        },
        hidden: options.settings.keys.is_some().into(),
    };
    let mut ebpf = load_object(options, interface, &group, Some(directory))?;
    let mut keys = KeyMaps::take(&mut ebpf)?;
    if let Some(wanted) = &options.settings.keys {
        keys.set(wanted)?;
    }
    let local = LocalMap::take(&mut ebpf)?;
    Ok((ebpf, Own { keys, local, group }))
}

fn random_secret() -> Result<[u64; 2]> {
    let bytes: [u8; 16] = random::bytes()?;
    let (words, _) = bytes.as_chunks::<8>();
    Ok([0, 1].map(|word| u64::from_ne_bytes(words[word])))
}

/// Loads every program as [`super::Attached::new`] would, attaches and pins nothing, and
/// lets go of all of it. Whether the kernel translates the programs for the
/// processor (JIT).
///
/// # Errors
///
/// If the kernel refuses one of them.
pub fn try_load(interface: &Interface) -> Result<bool> {
    let options = Options {
        ingress: IngressChoice::Auto,
        gro: GroChoice::Auto,
        tc: TcChoice::Auto,
        trace: Trace::Off,
        record: None,
        settings: Settings {
            ports: Vec::new(),
            peers: Vec::new(),
            only_peers: false,
            phantuns: PhantunPeers::default(),
            max_flows: 1,
            keys: None,
            veil: None,
        },
    };
    let group = Group {
        secret: [0; 2],
        hidden: 0,
    };
    let mut ebpf = load_object(&options, interface, &group, None)?;
    load_all(&mut ebpf, Tunnel::PROGRAMS)
}

/// Makes the maps, pinned in `directory` if there is one.
fn load_object(
    options: &Options<Settings>,
    interface: &Interface,
    group: &Group,
    directory: Option<&Path>,
) -> Result<Ebpf> {
    let settings = &options.settings;
    let peers_only = u32::from(settings.only_peers);
    let hidden = u32::from(settings.keys.is_some());
    let veil = settings.veil.map_or(0, |veil| {
        veil::word(veil.pads_to(), settings.has_own_keys())
    });
    let phantuns = settings.phantuns.choice() as u32;
    let tcp_defaults = AsPod(tcp_defaults::read(&interface.name));
    let seeds: [u8; 48] = random::bytes()?;
    let Secret(secret) = Secret::new(group.secret);
    let globals = Globals::of(options, interface)?;
    let mut loader = globals.loader(directory);
    loader
        .override_global(global::HIDDEN, &hidden, true)
        .override_global(global::VEIL, &veil, true)
        .override_global(global::SECRET, &secret, true)
        .override_global(global::SEEDS, &seeds, true)
        .override_global(global::MAX_FLOWS, &settings.max_flows, true)
        .override_global(global::TCP_DEFAULTS, &tcp_defaults, true)
        .override_global(global::PEERS_ONLY, &peers_only, true)
        .override_global(global::PHANTUNS, &phantuns, true)
        .map_max_entries("FLOWS", settings.max_flows)
        .map_max_entries("REMOTES", settings.max_flows);
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
    loader
        .load(&bytes_of(TUNNEL))
        .context("cannot load the kernel side")
}

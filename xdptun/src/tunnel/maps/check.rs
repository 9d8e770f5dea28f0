//! Opening of pinned maps, and the check that a map is what its name says.

use std::path::Path;

use aya::maps::{MapData, MapError, MapType};
use xdptun_common::attachment::{Attachment, Owner};
use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::share::{Settled, Tally};
use xdptun_common::tunnel::state::Flow;

use super::{ATTACHMENT, COUNTERS, FLOWS, OPENED, OWNER, PEERS, PORTS, PeerKey, REMOTES, SETTLED};
use crate::error::{Context as _, Error, Result, bail};

/// Opens a map pinned in `directory`.
pub fn open(directory: &Path, name: &str) -> Result<MapData> {
    let path = directory.join(name);
    let data = MapData::from_pin(&path).map_err(|error| open_error(&path, error))?;
    verify(name, &data).with_context(|| path.display().to_string())?;
    Ok(data)
}

/// Checks that a map is what its name says. Another user may own the pins. The kernel copies
/// as many bytes as a value of the map has, even if the buffer is smaller: a per-CPU array
/// in the place of an array would write beyond it.
pub fn verify(name: &str, data: &MapData) -> Result<()> {
    const INDEX: usize = size_of::<u32>();
    let (kind, key, value) = match name {
        FLOWS => (MapType::Hash, size_of::<FlowKey>(), size_of::<Flow>()),
        PEERS => (MapType::LpmTrie, size_of::<PeerKey>(), size_of::<u32>()),
        REMOTES => (MapType::Hash, size_of::<[u8; 16]>(), size_of::<u32>()),
        COUNTERS => (MapType::PerCpuArray, INDEX, size_of::<u64>()),
        PORTS => (MapType::Array, INDEX, size_of::<u64>()),
        ATTACHMENT => (MapType::Array, INDEX, size_of::<Attachment>()),
        OWNER => (MapType::Array, INDEX, size_of::<Owner>()),
        OPENED => (MapType::Array, INDEX, size_of::<Tally>()),
        SETTLED => (MapType::Array, INDEX, size_of::<Settled>()),
        _ => bail!(Other, "no map of ours is called {name}"),
    };
    let info = data.info()?;
    let found = (info.map_type()?, info.key_size(), info.value_size());
    if found != (kind, key as u32, value as u32) {
        bail!(
            Other,
            "not the map that xdptun made: {found:?} instead of {kind:?} {key} {value}"
        );
    }
    Ok(())
}

fn open_error(path: &Path, error: MapError) -> Error {
    let denied = matches!(&error, MapError::SyscallError(error)
        if error.io_error.kind() == std::io::ErrorKind::PermissionDenied);
    let advice = if denied {
        "; run it as root, for example with sudo"
    } else {
        ""
    };
    Error::from(error).context(format!(
        "cannot open the pinned map {}{advice}",
        path.display()
    ))
}

//! Maps by name, and the check that a map is what its name says.

use std::path::Path;

use aya::Ebpf;
use aya::maps::{Map, MapData, MapError, MapType};

use crate::error::{Context as _, Error, Result, bail};

/// Where maps come from.
pub enum Source<'a> {
    /// A loaded object, which gives each map once.
    Object(&'a mut Ebpf),
    /// The directory of their pins.
    Pins(&'a Path),
}

impl Source<'_> {
    /// The map of a name, which must have this shape.
    ///
    /// # Errors
    ///
    /// If it is missing, or is not what its name says.
    pub fn map(&mut self, name: &str, shape: Shape) -> Result<Map> {
        match self {
            Self::Object(ebpf) => {
                let map = take_map(ebpf, name)?;
                shape.check_loaded(name, &map)?;
                Ok(map)
            }
            Self::Pins(directory) => shape.open(directory, name),
        }
    }
}

/// Takes a map out of a loaded object.
///
/// # Errors
///
/// If the object has none of that name.
pub fn take_map(ebpf: &mut Ebpf, name: &str) -> Result<Map> {
    let map = ebpf.take_map(name);
    map.with_context(|| format!("the object has no map {name}"))
}

/// The kind of a map, and the length of a key and of a value in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Shape(pub MapType, pub usize, pub usize);

impl Shape {
    /// An array.
    pub const fn array<T>() -> Self {
        Self(MapType::Array, size_of::<u32>(), size_of::<T>())
    }

    /// A hash map.
    pub const fn hash<K, V>() -> Self {
        Self(MapType::Hash, size_of::<K>(), size_of::<V>())
    }

    /// The same whose entries the kernel evicts when it is full.
    pub const fn lru_hash<K, V>() -> Self {
        Self(MapType::LruHash, size_of::<K>(), size_of::<V>())
    }

    /// Checks that a map has this shape. Another user may own the pins. The kernel copies as
    /// many bytes as a value of the map has, even if the buffer is smaller: a per-CPU array in
    /// the place of an array would write beyond it.
    ///
    /// # Errors
    ///
    /// If it has another one, or cannot be asked.
    fn check(self, data: &MapData) -> Result<()> {
        let Self(kind, key, value) = self;
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

    /// Opens a map of this shape that is pinned in `directory`.
    ///
    /// # Errors
    ///
    /// If it cannot be opened, or has another shape.
    fn open(self, directory: &Path, name: &str) -> Result<Map> {
        let path = directory.join(name);
        let data = MapData::from_pin(&path).map_err(|error| open_error(&path, error))?;
        self.check(&data)
            .with_context(|| path.display().to_string())?;
        Ok(match self.0 {
            MapType::Hash => Map::HashMap(data),
            MapType::LruHash => Map::LruHashMap(data),
            MapType::LpmTrie => Map::LpmTrie(data),
            MapType::PerCpuArray => Map::PerCpuArray(data),
            _ => Map::Array(data),
        })
    }

    /// Checks a map of a loaded object. It may have been pinned, and the loader asks nothing
    /// of such a map.
    ///
    /// # Errors
    ///
    /// As [`Shape::check`].
    fn check_loaded(self, name: &str, map: &Map) -> Result<()> {
        match map {
            Map::HashMap(data)
            | Map::LruHashMap(data)
            | Map::LpmTrie(data)
            | Map::PerCpuArray(data)
            | Map::Array(data) => self.check(data).with_context(|| name.to_owned()),
            _ => bail!(Other, "{name} is of another kind"),
        }
    }
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

/// What a look-up found, if anything.
///
/// # Errors
///
/// If the look-up failed otherwise.
pub fn absent<T>(result: Result<T, MapError>) -> Result<Option<T>, MapError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(MapError::KeyNotFound) => Ok(None),
        Err(MapError::SyscallError(error))
            if error.io_error.raw_os_error() == Some(libc::ENOENT) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

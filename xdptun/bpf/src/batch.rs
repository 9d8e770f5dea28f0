//! Many entries of a map in one call.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd as _};

use nix::errno::Errno;

use super::bpf;

/// `BPF_MAP_LOOKUP_BATCH` of `enum bpf_cmd` (kernel 5.6; for per-CPU arrays 5.13).
const LOOKUP_BATCH: c_int = 24;

/// `batch` of `union bpf_attr`. Addresses as numbers.
#[repr(C)]
struct Batch {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

/// Where the next call continues; the default begins.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    /// The kernel's place in the map, which has no meaning in user space.
    place: u32,
    started: bool,
}

/// Reads the entries at `cursor`, at most as many as `keys` has room for. Returns how many it
/// read, and whether there may be more.
///
/// # Errors
///
/// If the map cannot be read.
///
/// # Safety
///
/// `K` and `V` must be as long as a key and a value of the map, and any bytes valid for them.
/// `values` must have room for a value of each key; if the map is per CPU, for each CPU.
pub unsafe fn lookup_batch<K, V>(
    map: impl AsFd,
    cursor: &mut Cursor,
    keys: &mut [K],
    values: &mut [V],
) -> nix::Result<(usize, bool)> {
    let place = &raw mut cursor.place as u64;
    let mut batch = Batch {
        in_batch: if cursor.started { place } else { 0 },
        out_batch: place,
        keys: keys.as_mut_ptr() as u64,
        values: values.as_mut_ptr() as u64,
        count: keys.len() as u32,
        map_fd: map.as_fd().as_raw_fd().cast_unsigned(),
        elem_flags: 0,
        flags: 0,
    };
    // SAFETY: the attributes have the kernel's layout. By the contract of this function,
    // there is room for `count` keys and their values; a cursor has four bytes.
    let more = match unsafe { bpf(LOOKUP_BATCH, &mut batch) } {
        Ok(_) => true,
        // The end of the map; the entries before it are valid.
        Err(Errno::ENOENT) => false,
        Err(error) => return Err(error),
    };
    cursor.started = true;
    Ok((batch.count as usize, more))
}

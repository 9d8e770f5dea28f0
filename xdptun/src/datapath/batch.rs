//! Reads a whole hash map in few system calls, and takes one entry in a single call. aya
//! has neither.
//!
//! The daemon reads the table of flows several times a second; key by key that would
//! be two calls for each flow.

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _};

use nix::errno::Errno;
use xdptun_bpf::{Cursor, bpf, lookup_batch};
use xdptun_common::Plain;

/// Entries of one call: more than any bucket holds.
const AT_ONCE: usize = 4096;

/// Reads the entries of a hash map whose keys and values are `K` and `V`. Entries
/// that come or go meanwhile may be missing.
///
/// # Errors
///
/// If the map cannot be read.
pub fn entries<K: Plain, V: Plain>(map: impl AsFd) -> io::Result<Vec<(K, V)>> {
    let parts: io::Result<Vec<_>> = parts(map).collect();
    Ok(parts?.concat())
}

/// Reads the entries in parts of at most 4096; ends after the first error.
pub fn parts<K: Plain, V: Plain>(map: impl AsFd) -> impl Iterator<Item = io::Result<Vec<(K, V)>>> {
    let mut part = Part::new();
    let mut more = true;
    std::iter::from_fn(move || {
        if !more {
            return None;
        }
        let read = part.read(&map);
        more = *read.as_ref().unwrap_or(&false);
        Some(read.map(|_| part.entries().collect()))
    })
}

/// Removes an entry of a hash map whose keys and values are `K` and `V`, and returns it as
/// it was at that moment, if there was one.
///
/// # Errors
///
/// If the map cannot be written.
pub fn take<K: Plain, V: Plain>(map: impl AsFd, key: &K) -> io::Result<Option<V>> {
    /// `BPF_MAP_LOOKUP_AND_DELETE_ELEM` of `enum bpf_cmd` (kernel 5.14 for hash maps).
    const LOOKUP_AND_DELETE: c_int = 21;
    /// The part of `union bpf_attr` for single entries. Addresses as numbers.
    #[repr(C)]
    struct Element {
        map_fd: u32,
        padding: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    let mut value = MaybeUninit::<V>::uninit();
    let mut element = Element {
        map_fd: map.as_fd().as_raw_fd().cast_unsigned(),
        padding: 0,
        key: std::ptr::from_ref(key) as u64,
        value: value.as_mut_ptr() as u64,
        flags: 0,
    };
    // SAFETY: the attributes are those of the command, and key and value are as long as
    // the map's and outlive the call.
    match unsafe { bpf(LOOKUP_AND_DELETE, &mut element) } {
        // SAFETY: the kernel has written all of it, and any bytes are valid.
        Ok(_) => Ok(Some(unsafe { value.assume_init() })),
        Err(Errno::ENOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The result of one call, and where the next continues.
struct Part<K, V> {
    keys: Vec<MaybeUninit<K>>,
    values: Vec<MaybeUninit<V>>,
    count: usize,
    cursor: Cursor,
}

impl<K: Plain, V: Plain> Part<K, V> {
    fn new() -> Self {
        Self {
            keys: vec![MaybeUninit::uninit(); AT_ONCE],
            values: vec![MaybeUninit::uninit(); AT_ONCE],
            count: 0,
            cursor: Cursor::default(),
        }
    }

    /// Reads the next entries; returns whether there may be more.
    fn read(&mut self, map: &impl AsFd) -> io::Result<bool> {
        // SAFETY: key and value are as long as the map's and any bytes are valid; there is
        // room for as many values as keys.
        let read = unsafe { lookup_batch(map, &mut self.cursor, &mut self.keys, &mut self.values) };
        let (count, more) = read?;
        self.count = count;
        Ok(more)
    }

    fn entries(&self) -> impl Iterator<Item = (K, V)> {
        self.keys
            .iter()
            .zip(&self.values)
            .take(self.count)
            // SAFETY: the kernel wrote this many, and every byte pattern is valid.
            .map(|(key, value)| unsafe { (key.assume_init(), value.assume_init()) })
    }
}

//! Bare maps into the kernel, and runs of bare programs ([`classifier`]). All unsafe
//! code of it is here.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use anyhow::{Context, Result};
use xdptun_bpf::bpf;
pub use xdptun_lab::bpf::classifier;

/// `enum bpf_cmd` of `include/uapi/linux/bpf.h`.
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const PROG_TEST_RUN: libc::c_int = 10;

/// The kernel's types of maps that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum MapType {
    /// `BPF_MAP_TYPE_HASH`.
    Hash = 1,
    /// `BPF_MAP_TYPE_ARRAY`.
    Array = 2,
}

/// The start of `union bpf_attr` for `BPF_MAP_CREATE`.
#[repr(C)]
struct MapAttributes {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
}

/// The same for `BPF_MAP_UPDATE_ELEM`. Addresses as numbers.
#[repr(C)]
struct ElementAttributes {
    map: u32,
    _padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// The same for `BPF_PROG_TEST_RUN`.
#[repr(C)]
struct TestAttributes {
    program: u32,
    verdict: u32,
    length_in: u32,
    length_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
}

/// What a map holds.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Its type.
    pub kind: MapType,
    /// Bytes of a key, four or more.
    pub key: usize,
    /// Bytes of a value.
    pub value: usize,
    /// For how many entries there is room.
    pub room: u32,
    /// How many there are. Their keys start with their numbers, all else is zero.
    pub entries: u32,
}

/// Makes such a map.
pub fn map(shape: Shape) -> Result<OwnedFd> {
    let mut attributes = MapAttributes {
        map_type: shape.kind as u32,
        key_size: shape.key as u32,
        value_size: shape.value as u32,
        max_entries: shape.room,
        flags: 0,
    };
    // SAFETY: the attributes are those of the command.
    let map =
        unsafe { bpf(MAP_CREATE, &mut attributes) }.context("the kernel makes no such map")?;
    // SAFETY: the kernel just made this descriptor, and nothing else owns it.
    let map = unsafe { OwnedFd::from_raw_fd(map) };
    let (mut key, value) = (vec![0_u8; shape.key], vec![0_u8; shape.value]);
    for number in 0..shape.entries {
        key[..4].copy_from_slice(&number.to_ne_bytes());
        let mut attributes = ElementAttributes {
            map: map.as_raw_fd().cast_unsigned(),
            _padding: 0,
            key: key.as_ptr() as u64,
            value: value.as_ptr() as u64,
            flags: 0,
        };
        // SAFETY: as above; key and value have the map's lengths and outlive the call.
        unsafe { bpf(MAP_UPDATE_ELEM, &mut attributes) }.context("the map takes no entry")?;
    }
    Ok(map)
}

/// Runs a program on a packet, `repeat` times: the packet after the last run, and
/// the nanoseconds of one.
pub fn test_run(program: impl AsFd, packet: &[u8], repeat: u32) -> Result<(Vec<u8>, u32)> {
    let mut after = vec![0_u8; packet.len()];
    let mut attributes = TestAttributes {
        program: program.as_fd().as_raw_fd().cast_unsigned(),
        verdict: 0,
        length_in: packet.len() as u32,
        length_out: after.len() as u32,
        data_in: packet.as_ptr() as u64,
        data_out: after.as_mut_ptr() as u64,
        repeat,
        duration: 0,
    };
    // SAFETY: as above; both packets have the length that is told.
    unsafe { bpf(PROG_TEST_RUN, &mut attributes) }.context("the kernel runs no tests of it")?;
    Ok((after, attributes.duration))
}

//! What the interfaces have in common, noted by user space for the process after it.

use aya_ebpf::macros::map;
use aya_ebpf::maps::Array;
use xdptun_common::tunnel::group::Group;

/// What all interfaces have in common; the programs do not read it.
#[map]
pub static GROUP: Array<Group> = Array::with_max_entries(1, 0);

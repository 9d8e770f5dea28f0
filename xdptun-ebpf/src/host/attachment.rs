//! What user space notes for itself, in maps that outlive it.

use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap};
use xdptun_common::attachment::{Attachment, Owner};
use xdptun_common::member::ROWS;

/// The process that keeps the group; the programs do not read it.
#[map]
pub static OWNER: Array<Owner> = Array::with_max_entries(1, 0);

/// What was set up on each interface, by its index; the programs do not read it. With room for
/// interfaces that are made anew, which have two entries for a moment.
#[map]
pub static ATTACHMENTS: HashMap<u32, Attachment> = HashMap::with_max_entries(2 * ROWS, 0);

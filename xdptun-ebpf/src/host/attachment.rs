//! What user space notes for itself, in maps that outlive it.

use aya_ebpf::macros::map;
use aya_ebpf::maps::Array;
use xdptun_common::attachment::{Attachment, Owner};

/// Who keeps this attachment; the programs do not read it.
#[map]
pub static OWNER: Array<Owner> = Array::with_max_entries(1, 0);

/// What this attachment is; the programs do not read it.
#[map]
pub static ATTACHMENT: Array<Attachment> = Array::with_max_entries(1, 0);

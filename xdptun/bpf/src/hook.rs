//! The programs of a hook. aya asks for more than their identifiers, for which it needs
//! `CAP_SYS_ADMIN`.

use std::ffi::c_int;

use super::bpf;

/// `BPF_PROG_QUERY` of `enum bpf_cmd`.
const PROG_QUERY: c_int = 16;

/// The most programs of a hook (`BPF_MPROG_MAX`).
const MOST: usize = 64;

/// `query` of `union bpf_attr`. Addresses as numbers.
#[repr(C)]
#[derive(Default)]
struct Query {
    target_ifindex: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    prog_ids: u64,
    count: u32,
    hole: u32,
    prog_attach_flags: u64,
    link_ids: u64,
    link_attach_flags: u64,
    revision: u64,
}

/// The identifiers of the programs on a hook of a device, in order; `attach_type` is one of
/// `enum bpf_attach_type`.
///
/// # Errors
///
/// If there is no such device or hook.
pub fn programs_on(ifindex: u32, attach_type: u32) -> nix::Result<Vec<u32>> {
    let mut ids = vec![0_u32; MOST];
    let mut query = Query {
        target_ifindex: ifindex,
        attach_type,
        prog_ids: ids.as_mut_ptr() as u64,
        count: MOST as u32,
        ..Query::default()
    };
    // SAFETY: the attributes have the kernel's layout, and there is room for `count` identifiers.
    unsafe { bpf(PROG_QUERY, &mut query) }?;
    ids.truncate(query.count as usize);
    Ok(ids)
}

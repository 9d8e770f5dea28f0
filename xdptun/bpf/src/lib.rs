//! Calls of bpf(2) that aya does not offer.
//!
//! A package of its own, so that tests and measurements make them without the command.

mod batch;
mod hook;

use std::ffi::c_int;

use nix::errno::Errno;
use nix::libc;

pub use batch::{Cursor, lookup_batch};
pub use hook::programs_on;

/// Runs a command of `enum bpf_cmd`, and returns its result.
///
/// # Errors
///
/// The error of the system call.
///
/// # Safety
///
/// `attributes` must have the layout of that command's part of `union bpf_attr`, and its
/// addresses must be valid for what the kernel does with them.
pub unsafe fn bpf<T>(command: c_int, attributes: &mut T) -> nix::Result<c_int> {
    // SAFETY: by the contract of this function; the length is that of the attributes.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attributes),
            size_of::<T>(),
        )
    };
    // Descriptors and zero, which are 32 bits wide.
    Errno::result(result).map(|value| value as c_int)
}

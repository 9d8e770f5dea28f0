//! Values that the compiler knows nothing about.
//!
//! It tests one register and then uses another that it knows to be equal, and
//! kernels before 6.18 learn nothing about the second from the first.

use core::arch::asm;

/// The same value, as far as the compiler can tell some other.
#[inline(always)]
pub fn opaque(mut value: u64) -> u64 {
    // SAFETY: moves a register to itself.
    unsafe {
        asm!(
            "{value} = {value}",
            value = inout(reg) value,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    value
}

/// A length that the verifier knows to be from 1 to `MAX`; `None` if it is not.
/// (Kernel 6.1 does not learn from `len != 0` that it is at least 1.)
#[inline(always)]
pub fn bounded<const MAX: usize>(len: u32) -> Option<u32> {
    let last = opaque(u64::from(len).wrapping_sub(1));
    if last >= MAX as u64 {
        return None;
    }
    Some(last as u32 + 1)
}

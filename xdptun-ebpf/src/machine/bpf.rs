//! The BPF machine.

use core::arch::asm;
use core::intrinsics::AtomicOrdering::SeqCst;
use core::intrinsics::{atomic_cxchg, atomic_xadd};

use xdptun_common::Plain;

use super::Atomic;

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

/// The same value, which the verifier does not know any more: changed twice by `noise`, which it must
/// not know either. Unlike [`opaque`], which hides a value from the compiler, this lets the verifier
/// walk what follows once, and not once for each value.
#[inline(always)]
pub fn forget(mut value: u64, noise: u64) -> u64 {
    // SAFETY: changes a register, and changes it back.
    unsafe {
        asm!(
            "{value} ^= {noise}",
            "{value} ^= {noise}",
            value = inout(reg) value,
            noise = in(reg) noise,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    value
}

/// Reads a value of a packet. Headers lie at multiples of two only, but an unaligned read
/// would be split into bytes. The CPUs that run this load words from any address, or the kernel does it for
/// them (64 bits at once on 32-bit ARM); the verifier of any other CPU refuses the program.
///
/// # Safety
///
/// The value must lie in memory that the program may read.
#[inline(always)]
pub unsafe fn load<T: Plain>(at: usize) -> T {
    // SAFETY: readable by the contract, and `Plain` accepts any bytes.
    unsafe { (at as *const T).read() }
}

/// Writes a value of a packet, aligned as in [`load`].
///
/// # Safety
///
/// The value must lie in memory that the program may write.
#[inline(always)]
pub unsafe fn store<T: Plain>(at: usize, value: T) {
    // SAFETY: writable by the contract.
    unsafe { (at as *mut T).write(value) }
}

/// Loads a packet pointer from a field of the context. The kernel declares the
/// field 32 bits wide and the verifier widens the load; the compiler knows
/// nothing of that and would move the value about in 32-bit registers, which
/// ends its life as a pointer. So it sees only the 64-bit result.
macro_rules! packet_pointer {
    ($context:expr, $type:ty, $field:ident) => {{
        let pointer: usize;
        // SAFETY: the context is valid for the whole program run.
        unsafe {
            ::core::arch::asm!(
                "{pointer} = *(u32 *)({context} + {field})",
                pointer = out(reg) pointer,
                context = in(reg) $context,
                field = const ::core::mem::offset_of!($type, $field),
                options(nostack, preserves_flags)
            );
        }
        pointer
    }};
}
pub(crate) use packet_pointer;

// The intrinsics: `core::sync::atomic` offers BPF no read-modify-write operation. They become
// `BPF_ATOMIC` instructions (kernel 5.12), and are sequentially consistent because LLVM (22)
// turns a relaxed addition into the instruction without `BPF_FETCH`, whether or not its result
// is used, and the result is then the addend.
macro_rules! atomic {
    ($($integer:ty),+) => {$(
        impl Atomic for $integer {
            #[inline(always)]
            unsafe fn fetch_add(word: *mut Self, value: Self) -> Self {
                // SAFETY: valid and aligned by the contract.
                unsafe { atomic_xadd::<Self, Self, { SeqCst }>(word, value) }
            }

            #[inline(always)]
            unsafe fn replace(word: *mut Self, old: Self, new: Self) -> bool {
                // SAFETY: as in `fetch_add`.
                unsafe { atomic_cxchg::<Self, { SeqCst }, { SeqCst }>(word, old, new).1 }
            }
        }
    )+};
}

atomic!(u32, u64);

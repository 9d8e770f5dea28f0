//! Host versions of the BPF instructions, for unit tests.

use core::hint::black_box;
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicU32, AtomicU64};

use xdptun_common::Plain;

use super::Atomic;

/// The same value, as far as the compiler can tell some other.
pub fn opaque(value: u64) -> u64 {
    black_box(value)
}

/// The same value.
pub fn forget(value: u64, _noise: u64) -> u64 {
    value
}

/// Reads a value of a packet, wherever it lies.
///
/// # Safety
///
/// The value must lie in memory that the program may read.
pub unsafe fn load<T: Plain>(at: usize) -> T {
    // SAFETY: readable by the contract, and `Plain` accepts any bytes.
    unsafe { (at as *const T).read_unaligned() }
}

/// Writes a value of a packet, wherever it lies.
///
/// # Safety
///
/// The value must lie in memory that the program may write.
pub unsafe fn store<T: Plain>(at: usize, value: T) {
    // SAFETY: writable by the contract.
    unsafe { (at as *mut T).write_unaligned(value) }
}

/// Loads a packet pointer from a field of the context, whose 32 bits the kernel widens: an
/// address only of memory that lies low enough for them.
macro_rules! packet_pointer {
    ($context:expr, $type:ty, $field:ident) => {{
        let context: *const $type = $context;
        // SAFETY: the context is valid for the whole program run.
        unsafe { (*context).$field as usize }
    }};
}
pub(crate) use packet_pointer;

macro_rules! atomic {
    ($($integer:ty: $atomic:ty),+) => {$(
        impl Atomic for $integer {
            unsafe fn fetch_add(word: *mut Self, value: Self) -> Self {
                // SAFETY: valid and aligned by the contract.
                unsafe { <$atomic>::from_ptr(word) }.fetch_add(value, SeqCst)
            }

            unsafe fn replace(word: *mut Self, old: Self, new: Self) -> bool {
                // SAFETY: as in `fetch_add`.
                let word = unsafe { <$atomic>::from_ptr(word) };
                word.compare_exchange(old, new, SeqCst, SeqCst).is_ok()
            }
        }
    )+};
}

atomic!(u32: AtomicU32, u64: AtomicU64);

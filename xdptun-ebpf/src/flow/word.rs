//! Words of shared memory that several CPUs change at once.
//!
//! `core::sync::atomic` offers BPF no read-modify-write operation, so these are
//! the compiler's intrinsics, which become `BPF_ATOMIC` instructions (kernel
//! 5.12). They are sequentially consistent because LLVM (22) turns a relaxed
//! addition into the instruction without `BPF_FETCH`, whether or not its result
//! is used, and the result is then the addend.
//!
//! Plain loads and stores are volatile: one instruction each, in no order that
//! other CPUs could rely on. Whoever reads a new state beside an old number
//! misjudges one segment, as if it had come a moment earlier; nothing here needs
//! more than that.

use core::intrinsics::AtomicOrdering::SeqCst;
use core::intrinsics::{atomic_cxchg, atomic_xadd};

/// A word inside a map value.
#[derive(Clone, Copy)]
pub struct Word<T>(*mut T);

impl<T: Copy> Word<T> {
    /// A word of a map value.
    ///
    /// # Safety
    ///
    /// `word` must point into a map value that the program holds, aligned for `T`.
    #[inline(always)]
    pub unsafe fn new(word: *mut T) -> Self {
        Self(word)
    }

    #[inline(always)]
    pub fn load(self) -> T {
        // SAFETY: valid and aligned by the contract of `new`.
        unsafe { self.0.read_volatile() }
    }

    #[inline(always)]
    pub fn store(self, value: T) {
        // SAFETY: as in `load`.
        unsafe { self.0.write_volatile(value) }
    }
}

impl Word<u64> {
    /// Stores what is there already in most cases, and then does not write: other
    /// CPUs keep their copies of the line.
    #[inline(always)]
    pub fn refresh(self, value: u64) {
        if self.load() != value {
            self.store(value);
        }
    }
}

macro_rules! read_modify_write {
    ($($word:ty),+) => {$(
        impl Word<$word> {
            /// Adds, and returns the value before.
            #[inline(always)]
            pub fn fetch_add(self, value: $word) -> $word {
                // SAFETY: valid and aligned by the contract of `new`.
                unsafe { atomic_xadd::<$word, $word, { SeqCst }>(self.0, value) }
            }

            /// Sets `new` if the value is still `old`; whether it was.
            #[inline(always)]
            pub fn replace(self, old: $word, new: $word) -> bool {
                // SAFETY: as in `fetch_add`.
                unsafe { atomic_cxchg::<$word, { SeqCst }, { SeqCst }>(self.0, old, new).1 }
            }
        }
    )+};
}

read_modify_write!(u32, u64);

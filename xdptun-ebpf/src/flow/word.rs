//! Words of shared memory that several CPUs change at once.
//!
//! Plain loads and stores are volatile: one instruction each, in no order that
//! other CPUs could rely on. A reader that sees a new state with an old number
//! misjudges one segment, as if it had come a moment earlier. That is harmless here.

use core::cell::UnsafeCell;

use crate::machine::Atomic;

/// A word that every run of the programs shares, in a variable of theirs: 0 at first.
pub struct Variable(UnsafeCell<u64>);

// SAFETY: it is only used as a `Word`, which several CPUs may change at once.
unsafe impl Sync for Variable {}

impl Variable {
    /// As it is at first.
    pub const fn zero() -> Self {
        Self(UnsafeCell::new(0))
    }

    /// The word, of a variable that lives as long as the programs.
    #[inline(always)]
    pub fn word(&'static self) -> Word<u64> {
        Word(self.0.get())
    }
}

/// A word inside a map value, or in a [`Variable`].
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

    /// The value.
    #[inline(always)]
    pub fn load(self) -> T {
        // SAFETY: valid and aligned by the contract of `new`.
        unsafe { self.0.read_volatile() }
    }

    /// Sets the value.
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

impl<T: Atomic> Word<T> {
    /// Adds, and returns the value before.
    #[inline(always)]
    pub fn fetch_add(self, value: T) -> T {
        // SAFETY: valid and aligned by the contract of `new`.
        unsafe { T::fetch_add(self.0, value) }
    }

    /// Sets `new` if the value is still `old`; whether it was.
    #[inline(always)]
    pub fn replace(self, old: T, new: T) -> bool {
        // SAFETY: as in `fetch_add`.
        unsafe { T::replace(self.0, old, new) }
    }
}

//! What differs between BPF and the host, on which the crate is tested: instructions, and
//! what every object holds. Elsewhere only the attributes of the crate and of its programs
//! (`no_std`, `no_main`, features) ask which of the two they are compiled for.

#[cfg_attr(target_arch = "bpf", path = "bpf.rs")]
#[cfg_attr(not(target_arch = "bpf"), path = "stand_in.rs")]
mod this;

pub(crate) use this::packet_pointer;
pub use this::{forget, load, opaque, store};

/// Integers that several CPUs change at once.
pub trait Atomic: Copy {
    /// Adds, and returns the value before.
    ///
    /// # Safety
    ///
    /// `word` must be valid and aligned.
    unsafe fn fetch_add(word: *mut Self, value: Self) -> Self;

    /// Sets `new` if the value is still `old`; whether it was.
    ///
    /// # Safety
    ///
    /// `word` must be valid and aligned.
    unsafe fn replace(word: *mut Self, old: Self, new: Self) -> bool;
}

/// What every object has beside its entry points: the licence, and an end for panics. On
/// the host a `main` that says that there is nothing to run.
#[macro_export]
macro_rules! object {
    () => {
        /// Helpers marked GPL-only need it; the code itself is MIT OR Apache-2.0.
        #[unsafe(link_section = "license")]
        #[unsafe(no_mangle)]
        static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

        #[cfg(target_arch = "bpf")]
        #[panic_handler]
        fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
            loop {}
        }

        #[cfg(not(target_arch = "bpf"))]
        fn main() {
            eprintln!("these programs run in the kernel; `xdptun attach` loads them");
        }
    };
}

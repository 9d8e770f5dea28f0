//! The memory of this process.

/// Gives memory that is free back to the kernel. To load programs takes much more than to keep
/// them, and glibc would keep it for a process that lives for months.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it touches free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
}

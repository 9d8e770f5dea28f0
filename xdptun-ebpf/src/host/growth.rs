//! How hash tables take their memory.

#[cfg(not(kernel_bits = "32"))]
use aya_ebpf::bindings::BPF_F_NO_PREALLOC;

/// The flags of tables whose values hold 64-bit words that CPUs change at once: memory is taken as
/// entries come, and given back.
#[cfg(not(kernel_bits = "32"))]
pub const FLAGS_WITH_ATOMICS: u32 = BPF_F_NO_PREALLOC;

/// The same for 32-bit kernels: the kernel allocates all entries when it makes the table. Those of a
/// table that grows come from `bpf_mem_alloc` (Linux 6.1), which leaves a pointer before each, of four
/// bytes there. A 64-bit atomic operation on a word that lies so (`ldrexd` of ARM) ends in a panic of
/// the kernel.
#[cfg(kernel_bits = "32")]
pub const FLAGS_WITH_ATOMICS: u32 = 0;

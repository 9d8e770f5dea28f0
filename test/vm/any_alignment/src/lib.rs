//! Asks the verifier not to mind how words are aligned (`BPF_F_ANY_ALIGNMENT`), in every program
//! that this library is loaded into (`LD_PRELOAD`) and that loads eBPF programs.
//!
//! User-Mode Linux is built without `CONFIG_HAVE_EFFICIENT_UNALIGNED_ACCESS`, although the processor
//! that it runs on has it: its verifier would refuse all programs that read headers by words.

use std::ffi::{c_long, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

/// `BPF_PROG_LOAD`.
const PROG_LOAD: c_long = 5;
/// Where `prog_flags` is in its attributes, in bytes.
const FLAGS: usize = 44;
/// `BPF_F_ANY_ALIGNMENT`.
const ANY_ALIGNMENT: u32 = 1 << 1;

type Syscall =
    unsafe extern "C" fn(c_long, c_long, c_long, c_long, c_long, c_long, c_long) -> c_long;

/// The function of the C library, in front of which this one is. Without a lock, which would call it.
fn original() -> Option<Syscall> {
    static ORIGINAL: AtomicUsize = AtomicUsize::new(0);
    let mut found = ORIGINAL.load(Ordering::Relaxed);
    if found == 0 {
        // SAFETY: the name is a C string.
        found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"syscall".as_ptr()) } as usize;
        ORIGINAL.store(found, Ordering::Relaxed);
    }
    let found = found as *const c_void;
    // SAFETY: the C library has a function of this kind; it reads as many arguments as the call has.
    (!found.is_null()).then(|| unsafe { std::mem::transmute::<*const c_void, Syscall>(found) })
}

/// `syscall(2)`.
///
/// # Safety
///
/// As the one of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    if number == libc::SYS_bpf && a == PROG_LOAD {
        let flags = (b as usize + FLAGS) as *mut u32;
        // SAFETY: the attributes of a load, which the caller may write.
        unsafe { flags.write(flags.read() | ANY_ALIGNMENT) };
    }
    match original() {
        // SAFETY: as the caller promises.
        Some(original) => unsafe { original(number, a, b, c, d, e, f) },
        None => -1,
    }
}

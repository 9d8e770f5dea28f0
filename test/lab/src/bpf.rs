//! Programs of a few instructions. aya loads only objects that a compiler made.

use std::os::fd::{FromRawFd, OwnedFd};

use anyhow::{Context, Result};
use xdptun_bpf::bpf;

/// `enum bpf_cmd` and `enum bpf_prog_type` of `include/uapi/linux/bpf.h`.
const PROG_LOAD: libc::c_int = 5;
const PROG_TYPE_SCHED_CLS: u32 = 3;

/// The start of `union bpf_attr` for `BPF_PROG_LOAD`. Addresses as numbers.
#[repr(C)]
struct ProgramAttributes {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
}

/// Loads a tc program; an error holds what the verifier said.
pub fn classifier(instructions: &[u8]) -> Result<OwnedFd> {
    let mut log = vec![0_u8; 1 << 16];
    let mut attributes = ProgramAttributes {
        program_type: PROG_TYPE_SCHED_CLS,
        instruction_count: (instructions.len() / 8) as u32,
        instructions: instructions.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        log_level: 1,
        log_size: log.len() as u32,
        log: log.as_mut_ptr() as u64,
        kernel_version: 0,
        flags: 0,
    };
    // SAFETY: the attributes are those of the command, and their buffers outlive the call.
    let loaded = unsafe { bpf(PROG_LOAD, &mut attributes) }.with_context(|| {
        let text = log.split(|byte| *byte == 0).next().unwrap_or_default();
        format!("the verifier says\n{}", String::from_utf8_lossy(text))
    })?;
    // SAFETY: the kernel just made this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(loaded) })
}

//! The checks before anything is changed.

use std::path::Path;

use aya::programs::{SchedClassifier, TcAttachType};
use aya::util::KernelVersion;
use caps::{CapSet, Capability};
use nix::sys::utsname::uname;

use crate::error::{Error, Result, bail};

/// The oldest kernel supported: atomics that return a value, `bpf_check_mtu`
/// (both 5.12), and a verifier that follows the programs.
const MINIMUM_KERNEL: (u32, u32) = (5, 15);

/// The capabilities for loading, attaching and sending.
pub(crate) const CAPABILITIES: [Capability; 4] = [
    Capability::CAP_BPF,
    Capability::CAP_NET_ADMIN,
    Capability::CAP_NET_RAW,
    Capability::CAP_PERFMON,
];

/// Checks kernel and privileges.
///
/// # Errors
///
/// Names what is missing; of [kind](crate::error::Kind) `Unsupported` or `Permission`.
pub fn check() -> Result<()> {
    check_kernel(&kernel_release()?)?;
    check_processor(&uname()?.machine().to_string_lossy(), usize::BITS)?;
    check_capabilities()
}

/// The kernel's release, as `uname -r` prints it.
pub(crate) fn kernel_release() -> Result<String> {
    Ok(uname()?.release().to_string_lossy().into_owned())
}

/// Its version, to compare with that of a change which cannot be probed.
pub(crate) fn kernel_version() -> Result<KernelVersion> {
    KernelVersion::current().map_err(Error::other)
}

/// Checks that the kernel has TCX links, for `tc = "tcx"`.
///
/// # Errors
///
/// Names the kernel and the way out.
pub fn check_tcx() -> Result<()> {
    if SchedClassifier::query_tcx("lo", TcAttachType::Ingress).is_err() {
        bail!(
            Unsupported,
            "kernel {} has no TCX, which came with 6.6; leave `tc` out or set it to `clsact`",
            uname()?.release().display()
        );
    }
    Ok(())
}

/// Checks that the programs can read the clock that hosts with a secret share.
///
/// # Errors
///
/// Names the kernel and what it lacks.
pub fn check_tai() -> Result<()> {
    const TAI_HELPER: KernelVersion = KernelVersion::new(6, 1, 0);
    if kernel_version()? < TAI_HELPER {
        bail!(
            Unsupported,
            "kernel {} is too old for a secret, which needs 6.1 or later \
             (bpf_ktime_get_tai_ns)",
            uname()?.release().display()
        );
    }
    Ok(())
}

/// Where a kernel describes its types (BTF).
pub const BTF: &str = "/sys/kernel/btf/vmlinux";

/// Whether the running kernel was built with BTF. Those of Raspberry Pi OS (issue 6622 of
/// raspberrypi/linux) and OpenWrt are not.
#[must_use]
pub fn has_btf() -> bool {
    Path::new(BTF).exists()
}

/// Checks that the verifier can walk the programs of a veil: without BTF it would walk some of their
/// functions at each call, which exceeds its limit.
///
/// # Errors
///
/// Names the file of the kernel that is missing.
pub fn check_btf() -> Result<()> {
    if !has_btf() {
        bail!(
            Unsupported,
            "a veil needs a kernel with BTF, and {BTF} is missing: attach both hosts without a veil, \
             run a kernel that was built with CONFIG_DEBUG_INFO_BTF, or mount /sys if it is not there"
        );
    }
    Ok(())
}

/// Checks that a kernel is not too old.
pub(crate) fn check_kernel(release: &str) -> Result<()> {
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse::<u32>().ok());
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else {
        // The version of an odd name is unknown; the load of the programs will tell.
        return Ok(());
    };
    if (major, minor) < MINIMUM_KERNEL {
        let (want_major, want_minor) = MINIMUM_KERNEL;
        bail!(
            Unsupported,
            "kernel {release} is too old; xdptun needs {want_major}.{want_minor} or later"
        );
    }
    Ok(())
}

/// Checks that a program of so many bits is one for the kernel's processor, as `uname -m` names it. One
/// of 32 bits would set up tables and rings as 32-bit kernels need them.
fn check_processor(machine: &str, bits: u32) -> Result<()> {
    if bits == 32 && machine.contains("64") {
        bail!(
            Unsupported,
            "this xdptun has 32 bits, and the kernel 64 ({machine}): take the program or the package for \
             {machine}, which needs no other library"
        );
    }
    Ok(())
}

/// The names of the capabilities that this process lacks.
pub(crate) fn missing_capabilities() -> Result<Vec<String>> {
    let effective = caps::read(None, CapSet::Effective)?;
    let missing = CAPABILITIES
        .iter()
        .filter(|capability| !effective.contains(capability));
    Ok(missing.map(ToString::to_string).collect())
}

fn check_capabilities() -> Result<()> {
    let missing = missing_capabilities()?;
    if !missing.is_empty() {
        bail!(
            Permission,
            "missing {}; run it as root, for example with sudo",
            missing.join(", ")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_32_bits_is_refused_by_a_kernel_of_64() {
        let error = check_processor("aarch64", 32).unwrap_err().to_string();
        assert!(error.contains("the package for aarch64"), "{error}");
        for (machine, bits) in [("armv7l", 32), ("aarch64", 64), ("x86_64", 64)] {
            check_processor(machine, bits).unwrap();
        }
    }

    #[test]
    fn old_kernels_are_refused_by_name() {
        for release in ["5.14.21-default", "4.19.0", "5.10.0-30-amd64"] {
            let error = check_kernel(release).expect_err(release).to_string();
            assert!(error.contains(release) && error.contains("5.15"), "{error}");
        }
        for release in [
            "5.15.0-105-generic",
            "6.18.44",
            "6.1.0-rpi8-rpi-v8",
            "strange",
        ] {
            check_kernel(release).unwrap();
        }
    }
}

//! The kernel and the privileges of this process.

use std::io;

use aya::maps::MapType;
use aya::programs::ProgramType;
use aya::sys::{BpfHelper, is_helper_supported, is_map_supported};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socket, sockopt};

use super::{Finding, Level};
use crate::datapath::pins;
use crate::error::{Context as _, Result};
use crate::host::interface::Interface;
use crate::host::preflight::{self, BTF};
use crate::tunnel::try_load;

pub fn check() -> Vec<Finding> {
    let mut findings = vec![kernel(), btf(), bpffs(), udp_gso()];
    match preflight::missing_capabilities() {
        Ok(missing) => {
            findings.push(capabilities(&missing));
            if missing.is_empty() {
                findings.extend(probes());
            }
        }
        Err(error) => findings.push(Finding::warn(
            "capabilities",
            format!("cannot be looked at: {error:#}"),
        )),
    }
    findings
}

fn kernel() -> Finding {
    let release = preflight::kernel_release();
    match release.and_then(|release| preflight::check_kernel(&release).map(|()| release)) {
        Ok(release) => Finding::ok("kernel", format!("{release} is new enough")),
        Err(error) => Finding::fail("kernel", format!("{error:#}")),
    }
}

/// The types of the running kernel (BTF).
fn btf() -> Finding {
    Finding::ok(
        "btf",
        match preflight::has_btf() {
            true => format!("{BTF} describes the kernel's types"),
            false => format!("the kernel has no BTF ({BTF}): a veil is refused, all else works"),
        },
    )
}

fn bpffs() -> Finding {
    if pins::has_bpffs() {
        return Finding::ok("bpffs", "/sys/fs/bpf is mounted");
    }
    let what = "/sys/fs/bpf is not mounted here, so what is attached cannot be seen; \
                `attach` mounts it if it is allowed to";
    Finding::warn("bpffs", what).mend("mount -t bpf bpf /sys/fs/bpf")
}

fn udp_gso() -> Finding {
    let probe = || -> Result<(), Errno> {
        let datagrams = (SockType::Datagram, SockFlag::SOCK_CLOEXEC);
        let socket = socket(AddressFamily::Inet, datagrams.0, datagrams.1, None)?;
        setsockopt(&socket, sockopt::UdpGsoSegment, &1000)
    };
    match probe() {
        Ok(()) => Finding::ok(
            "udp-gso",
            "programs may send UDP super-packets; the kernel splits them",
        ),
        Err(error) => Finding::warn("udp-gso", format!("the kernel has no UDP_SEGMENT: {error}")),
    }
}

fn capabilities(missing: &[String]) -> Finding {
    if missing.is_empty() {
        return Finding::ok("capabilities", "none is missing");
    }
    let what = format!(
        "missing {}; without them, what the kernel can do is not probed",
        missing.join(", ")
    );
    Finding::fail("capabilities", what).mend("sudo xdptun doctor")
}

/// The checks that need the capabilities.
fn probes() -> Vec<Finding> {
    let mut findings = programs();
    findings.push(feature(
        "ring-buffer",
        is_map_supported(MapType::RingBuf).map_err(io::Error::other),
        "the kernel has BPF ring buffers",
        (
            Level::Fail,
            "the kernel has no BPF ring buffers; xdptun needs Linux 5.15",
        ),
    ));
    let helper = |helper| is_helper_supported(ProgramType::Xdp, helper).map_err(io::Error::other);
    findings.push(feature(
        "memory-lock",
        // As libbpf does: the helper came in the same release as the cgroup accounting.
        helper(BpfHelper::BPF_FUNC_ktime_get_coarse_ns),
        "BPF memory is charged to the cgroup; RLIMIT_MEMLOCK does not matter",
        (
            Level::Warn,
            "BPF memory counts against RLIMIT_MEMLOCK before Linux 5.11",
        ),
    ));
    findings.push(feature(
        "tai-clock",
        helper(BpfHelper::BPF_FUNC_ktime_get_tai_ns),
        "the kernel has bpf_ktime_get_tai_ns, so `--secret` works",
        (Level::Warn, "the kernel has no bpf_ktime_get_tai_ns, so `--secret` does not work; it needs Linux 6.1"),
    ));
    findings.push(match preflight::check_tcx() {
        Ok(()) => Finding::ok("tcx", "the kernel has TCX"),
        Err(_) => Finding::ok(
            "tcx",
            "the kernel has no TCX; xdptun uses clsact filters instead",
        ),
    });
    findings
}

fn programs() -> Vec<Finding> {
    match Interface::find("lo").and_then(|loopback| try_load(&loopback)) {
        Ok(translated) => vec![
            Finding::ok("programs", "the kernel accepts them"),
            jit(translated),
        ],
        Err(error) => vec![Finding::fail("programs", format!("{error:#}"))],
    }
}

fn jit(translated: bool) -> Finding {
    if translated {
        return Finding::ok(
            "jit",
            "the kernel translates the programs for the processor",
        );
    }
    let what = "the kernel interprets the programs, which takes several times the processor time";
    if usize::BITS == 32 {
        // That of 32-bit ARM translates no program with functions.
        return Finding::ok("jit", what);
    }
    Finding::warn("jit", what).mend("sysctl -w net.core.bpf_jit_enable=1")
}

fn feature(
    check: &'static str,
    supported: io::Result<bool>,
    there: &str,
    (level, missing): (Level, &str),
) -> Finding {
    match supported.context("cannot be probed") {
        Ok(true) => Finding::ok(check, there),
        Ok(false) => Finding::new(check, level, missing),
        Err(error) => Finding::warn(check, format!("{error:#}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_has_its_level() {
        let probed = |supported| feature("btf", supported, "there", (Level::Fail, "gone"));
        assert_eq!(probed(Ok(true)), Finding::ok("btf", "there"));
        assert_eq!(probed(Ok(false)), Finding::fail("btf", "gone"));
        let unknown = probed(Err(io::Error::other("odd")));
        assert_eq!(unknown, Finding::warn("btf", "cannot be probed: odd"));
        assert_eq!(jit(true).level, Level::Ok);
        assert_eq!(
            jit(false).mend.as_deref(),
            Some("sysctl -w net.core.bpf_jit_enable=1")
        );
    }
}

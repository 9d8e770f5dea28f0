//! The suites that the user selects, in one guest.

use std::time::Duration;

use anyhow::Result;

use crate::debian::Arch;
use crate::guest::Hypervisor;
use crate::test;
use crate::test::guests::{harness_in, in_guest};

/// Runs the selected suites in one guest.
pub fn run(arch: Arch, kernel: &str, selection: test::Args, limit: Duration) -> Result<()> {
    arch.ensure()?;
    let selection = selection.or_words(default_suites(arch));
    let Some(mut job) = test::build_for_guest(&selection, arch.target())? else {
        return Ok(());
    };
    job.harness = harness_in(kernel, &job.harness);
    let show = |line: &str| println!("{line}");
    let run = in_guest(&Hypervisor::new(arch), kernel, &job, limit, show)?;
    println!(
        "\nLinux {}, booted in {:.0} s",
        run.release,
        run.boot.as_secs_f64()
    );
    for outcome in run.report.outcomes {
        job.totals.add(outcome);
    }
    job.totals.conclude()
}

/// The suites that run unless the user names others; an empty list means all.
///
/// Another processor matters to the kernel programs, which its own just-in-time compiler translates
/// or, on 32-bit ARM, the interpreter runs, and to the binary that loads them. Debian's kernels for
/// the latter have no BTF, which `test-datapath` needs.
fn default_suites(arch: Arch) -> &'static [&'static str] {
    match arch {
        Arch::X86_64 => &[],
        Arch::Aarch64 => &["test-datapath", "test-vm quick"],
        Arch::Armv7 => &["test-vm quick"],
    }
}

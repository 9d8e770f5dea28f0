//! What differs between the machines that are emulated.

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::ValueEnum;
use xdptun_lab::workspace;

use crate::setup;

/// A processor architecture by Rust's name for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Arch {
    /// 64-bit PC.
    #[value(name = "x86_64")]
    X86_64,
    /// 64-bit ARM.
    Aarch64,
}

impl Arch {
    /// Installs what emulating it needs.
    pub fn ensure(self) -> Result<()> {
        setup::ensure_vm()?;
        match self {
            Self::X86_64 => Ok(()),
            Self::Aarch64 => setup::ensure_arm_vm(),
        }
    }

    /// That of this machine.
    pub fn this() -> Result<Self> {
        let name = std::env::consts::ARCH;
        Self::from_str(name, false).map_err(|_| anyhow!("Debian's packages for {name} are unknown"))
    }

    /// Debian's name for it.
    pub fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// The emulator's program.
    pub fn emulator(self) -> &'static str {
        match self {
            Self::X86_64 => "qemu-system-x86_64",
            Self::Aarch64 => "qemu-system-aarch64",
        }
    }

    /// Machine and processor, without acceleration: nested KVM is not to be had
    /// everywhere, and what takes it must give the same results as what does not.
    pub fn machine(self) -> &'static [&'static str] {
        match self {
            Self::X86_64 => &["-machine", "q35", "-cpu", "max"],
            // The least of the 64-bit ones, and by far the cheapest to emulate.
            Self::Aarch64 => &["-machine", "virt", "-cpu", "cortex-a53"],
        }
    }

    /// The kernel's name of the first serial port.
    pub fn serial(self) -> &'static str {
        match self {
            Self::X86_64 => "ttyS0",
            Self::Aarch64 => "ttyAMA0",
        }
    }

    /// What cargo builds for it, unless that is this machine's own.
    ///
    /// Static, and linked without a C toolchain.
    pub fn target(self) -> Option<&'static str> {
        match self {
            Self::X86_64 => None,
            Self::Aarch64 => Some("aarch64-unknown-linux-musl"),
        }
    }

    /// Where cargo puts that.
    pub fn target_dir(self) -> PathBuf {
        let mut folder = workspace::target_dir();
        folder.extend(self.target());
        folder
    }

    /// The suites that run unless others are named; none means all.
    ///
    /// Another processor matters to the kernel programs, which its own
    /// just-in-time compiler translates, and to the binary that loads them.
    pub fn suites(self) -> &'static [&'static str] {
        match self {
            Self::X86_64 => &[],
            Self::Aarch64 => &["test-datapath", "test-vm quick"],
        }
    }

    /// Everything in a guest takes this much longer than on the machine that
    /// emulates it, roughly; limits on time in tests are stretched by it.
    pub fn time_factor(self) -> u32 {
        match self {
            Self::X86_64 => 10,
            Self::Aarch64 => 20,
        }
    }
}

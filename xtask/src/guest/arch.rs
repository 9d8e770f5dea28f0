//! What differs between the processors that are emulated.

use anyhow::Result;

use crate::debian::Arch;
use crate::setup;

impl Arch {
    /// Installs the emulator.
    pub fn ensure(self) -> Result<()> {
        setup::ensure_vm()?;
        match self {
            Self::X86_64 => Ok(()),
            Self::Aarch64 | Self::Armv7 => setup::ensure_arm_vm(),
        }
    }

    /// The emulator's program.
    pub fn emulator(self) -> &'static str {
        match self {
            Self::X86_64 => "qemu-system-x86_64",
            Self::Aarch64 => "qemu-system-aarch64",
            Self::Armv7 => "qemu-system-arm",
        }
    }

    /// Machine and processor, without acceleration: few virtual machines offer nested
    /// KVM, and a test must give the same result with and without it.
    pub fn machine(self) -> &'static [&'static str] {
        match self {
            Self::X86_64 => &["-machine", "q35", "-cpu", "max"],
            // The least of the 64-bit ones, and by far the cheapest to emulate.
            Self::Aarch64 => &["-machine", "virt", "-cpu", "cortex-a53"],
            // Debian's ordinary kernel for it finds no devices above 4 GiB.
            Self::Armv7 => &["-machine", "virt,highmem=off", "-cpu", "cortex-a15"],
        }
    }

    /// The kernel's name of the first serial port.
    pub fn serial(self) -> &'static str {
        match self {
            Self::X86_64 => "ttyS0",
            Self::Aarch64 | Self::Armv7 => "ttyAMA0",
        }
    }

    /// Everything in a guest takes this much longer than on the machine that
    /// emulates it, roughly; limits on time in tests are stretched by it.
    pub fn time_factor(self) -> u32 {
        match self {
            Self::X86_64 => 10,
            Self::Aarch64 | Self::Armv7 => 20,
        }
    }
}

//! What differs between the machines that are emulated.

use clap::ValueEnum;

/// A processor architecture by Rust's name for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Arch {
    /// 64-bit PC.
    #[value(name = "x86_64")]
    X86_64,
}

impl Arch {
    /// Debian's name for it.
    pub fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
        }
    }

    /// The emulator's program.
    pub fn emulator(self) -> &'static str {
        match self {
            Self::X86_64 => "qemu-system-x86_64",
        }
    }

    /// Machine and processor, without acceleration: nested KVM is not to be had
    /// everywhere, and what takes it must give the same results as what does not.
    pub fn machine(self) -> &'static [&'static str] {
        match self {
            Self::X86_64 => &["-machine", "q35", "-cpu", "max"],
        }
    }

    /// The kernel's name of the first serial port.
    pub fn serial(self) -> &'static str {
        match self {
            Self::X86_64 => "ttyS0",
        }
    }
}

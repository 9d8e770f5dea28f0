//! Processor architectures, by the names that Rust, Debian and cargo have for them.

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::ValueEnum;
use xdptun_lab::workspace;

/// A processor architecture by Rust's name for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Arch {
    /// 64-bit PC.
    #[value(name = "x86_64")]
    X86_64,
    /// 64-bit ARM.
    Aarch64,
    /// 32-bit ARM with hardware floating point.
    Armv7,
}

impl Arch {
    /// The architecture of this machine.
    pub fn this() -> Result<Self> {
        let name = std::env::consts::ARCH;
        Self::from_str(name, false).map_err(|_| anyhow!("Debian's packages for {name} are unknown"))
    }

    /// Debian's name for it.
    pub fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
            Self::Armv7 => "armhf",
        }
    }

    /// What the names of Debian's ordinary kernels for it end with.
    pub fn kernels(self) -> &'static str {
        match self {
            Self::X86_64 | Self::Aarch64 => self.debian(),
            Self::Armv7 => "armmp",
        }
    }

    /// Cargo's name of the target that makes static programs for it, which are linked
    /// without a C toolchain.
    pub fn triple(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64-unknown-linux-musl",
            Self::Aarch64 => "aarch64-unknown-linux-musl",
            Self::Armv7 => "armv7-unknown-linux-musleabihf",
        }
    }

    /// The architecture of such a target.
    pub fn of_triple(triple: &str) -> Option<Self> {
        let mut all = Self::value_variants().iter().copied();
        all.find(|arch| arch.triple() == triple)
    }

    /// What cargo builds for a guest, unless this machine's own programs run there.
    pub fn target(self) -> Option<&'static str> {
        match self {
            Self::X86_64 => None,
            Self::Aarch64 | Self::Armv7 => Some(self.triple()),
        }
    }

    /// Where cargo puts the programs for a guest.
    pub fn target_dir(self) -> PathBuf {
        let mut folder = workspace::target_dir();
        folder.extend(self.target());
        folder
    }
}

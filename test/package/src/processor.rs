//! The processors that packages are made for.

use anyhow::{Context, Result, ensure};

/// A kind of processor.
#[derive(Debug, Clone, Copy)]
pub struct Processor {
    /// What Debian calls it.
    pub debian: &'static str,
    /// What `uname -m` calls it, and rpm, pacman and apk if packages of theirs are made for it.
    pub name: &'static str,
    /// What Rust calls it.
    pub triple: &'static str,
    /// How an ELF header calls it (`e_machine`).
    elf: u16,
    /// Whether all formats are made for it, not only those of Debian, of OpenWrt, and the archive.
    has_all_formats: bool,
}

/// All of them.
pub const PROCESSORS: [Processor; 3] = [
    Processor {
        debian: "amd64",
        name: "x86_64",
        triple: "x86_64-unknown-linux-musl",
        elf: 62,
        has_all_formats: true,
    },
    Processor {
        debian: "arm64",
        name: "aarch64",
        triple: "aarch64-unknown-linux-musl",
        elf: 183,
        has_all_formats: true,
    },
    Processor {
        debian: "armhf",
        name: "armv7l",
        triple: "armv7-unknown-linux-musleabihf",
        elf: 40,
        has_all_formats: false,
    },
];

/// Those that all formats are made for.
pub fn with_all_formats() -> impl Iterator<Item = Processor> {
    let all = PROCESSORS.into_iter();
    all.filter(|processor| processor.has_all_formats)
}

impl Processor {
    /// That of this machine.
    pub fn own() -> Result<Self> {
        let own = PROCESSORS
            .into_iter()
            .find(|kind| kind.name == std::env::consts::ARCH);
        own.context("no packages are made for this machine")
    }

    /// Requires a static program for it: no `PT_INTERP`, which names the loader of dynamic ones.
    pub fn check(self, elf: &[u8]) -> Result<()> {
        const PT_INTERP: u64 = 3;
        let number = |at: usize, length: usize| {
            let mut bytes = [0; 8];
            bytes[..length].copy_from_slice(&elf[at..at + length]);
            u64::from_le_bytes(bytes)
        };
        ensure!(elf[..4] == *b"\x7fELF", "no ELF file");
        ensure!(
            number(18, 2) == u64::from(self.elf),
            "not for {}",
            self.name
        );
        // ELFCLASS64, or the shorter header of 32 bits.
        let (table, size, count) = match elf[4] {
            2 => (number(32, 8), number(54, 2), number(56, 2)),
            _ => (number(28, 4), number(42, 2), number(44, 2)),
        };
        for index in 0..count {
            let kind = number(usize::try_from(table + index * size)?, 4);
            ensure!(kind != PT_INTERP, "it needs a loader");
        }
        Ok(())
    }
}

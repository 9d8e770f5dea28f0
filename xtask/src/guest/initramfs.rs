//! The file system a guest starts with: a shell, and the modules it takes to
//! see the host's.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use cpio::newc::{Builder, trailer};

use super::kernel::Kernel;

/// Shared directories, writable layers over them, and the job's terminal.
const MODULES: [&str; 5] = [
    "virtio_pci",
    "9pnet_virtio",
    "9p",
    "overlay",
    "virtio_console",
];

/// User-Mode Linux sees the host's directories and terminal by itself.
const USER_MODE_MODULES: [&str; 1] = ["overlay"];

const INIT: &str = include_str!("initramfs.sh");
const GUEST: &str = include_str!("guest.sh");

/// Writes the initramfs of a kernel. `shell` is a static busybox.
pub fn write(kernel: &Kernel, shell: &Path, to: &Path) -> Result<()> {
    let describe = || format!("{}: cannot write", to.display());
    let mut archive = Archive {
        file: BufWriter::new(File::create(to).with_context(describe)?),
    };
    archive.directory("bin")?;
    archive.directory("modules")?;
    let shell = fs::read(shell).with_context(|| format!("{}: cannot read", shell.display()))?;
    archive.program("bin/busybox", &shell)?;
    archive.program("init", INIT.as_bytes())?;
    archive.program("guest.sh", GUEST.as_bytes())?;
    let mut order = String::new();
    let modules: &[&str] = match kernel.is_user_mode {
        true => &USER_MODE_MODULES,
        false => &MODULES,
    };
    for file in kernel.module_files(modules)? {
        let name = file.file_name().context("a module without a name")?;
        let name = name.to_string_lossy();
        let name = name.trim_end_matches(".xz");
        archive.program(&format!("modules/{name}"), &plain(&file)?)?;
        order += &format!("{name}\n");
    }
    archive.program("modules/order", order.as_bytes())?;
    archive.finish().with_context(describe)
}

/// A module as the kernel takes it: busybox cannot unpack it.
fn plain(file: &Path) -> Result<Vec<u8>> {
    if file.extension().is_none_or(|extension| extension != "xz") {
        return fs::read(file).with_context(|| format!("{}: cannot read", file.display()));
    }
    let output = Command::new("xz")
        .args(["--decompress", "--stdout"])
        .arg(file)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start `xz`; `cargo xtask setup` installs what is missing")?;
    ensure!(
        output.status.success(),
        "{}: xz cannot unpack it: {}",
        file.display(),
        output.status
    );
    Ok(output.stdout)
}

/// An archive in the kernel's format.
struct Archive<W> {
    file: W,
}

impl<W: Write> Archive<W> {
    fn directory(&mut self, name: &str) -> Result<()> {
        self.add(name, 0o040_755, &[])
    }

    fn program(&mut self, name: &str, content: &[u8]) -> Result<()> {
        self.add(name, 0o100_755, content)
    }

    fn add(&mut self, name: &str, mode: u32, content: &[u8]) -> Result<()> {
        let size = u32::try_from(content.len()).context("too large for an initramfs")?;
        let mut entry = Builder::new(name).mode(mode).write(&mut self.file, size);
        entry.write_all(content)?;
        entry.finish()?;
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        trailer(&mut self.file)?;
        self.file.flush()?;
        Ok(())
    }
}

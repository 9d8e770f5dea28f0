//! Debian's kernels, unpacked under `.tools/kernels`.
//!
//! One of them is User-Mode Linux: a kernel that runs as a program of this machine, without an
//! emulator. It was built without BTF, as kernels of small devices are, and without a JIT for eBPF.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use xdptun_lab::command::run;
use xdptun_lab::workspace;

use crate::debian::{Apt, Arch};
use crate::shell::path_with_admin_dirs;

const PACKAGE: &str = "linux-image-";

/// User-Mode Linux, as a kernel's name.
pub const USER_MODE: &str = "user-mode-linux";

/// Its package, of the oldest release that has one for kernels that xdptun supports: a program runs
/// with newer C libraries than the one it was built for.
const USER_MODE_PACKAGE: &str = "user-mode-linux/bookworm";

/// A kernel with its modules.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// Its release, as `uname -r` prints it.
    pub release: String,
    /// Where `boot` and `lib/modules` are.
    root: PathBuf,
    /// Whether it is User-Mode Linux.
    pub is_user_mode: bool,
}

impl Kernel {
    /// The newest kernel of a series (`6.1`), or one version of it (`6.1.0-50`);
    /// downloaded unless one is there.
    pub fn get(wanted: &str, apt: &Apt) -> Result<Self> {
        let (arch, store) = (apt.arch(), store(apt));
        if wanted == USER_MODE {
            return Self::user_mode(apt, &store);
        }
        let kept = entries(&store)?;
        if let Some(package) = newest(&kept, wanted, arch) {
            return Ok(Self::of(package, &store));
        }
        eprintln!("kernel {wanted} is not there yet: looking through Debian's releases");
        let offered = apt.names(PACKAGE)?;
        let Some(package) = newest(&offered, wanted, arch) else {
            bail!(
                "no kernel {wanted} in Debian's releases; they have {}",
                series(&offered, arch).join(", ")
            );
        };
        eprintln!("kernel {wanted}: {package}");
        let kernel = Self::of(package, &store);
        let parts = parts(&kernel.release, apt)?;
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        apt.unpack(&parts, &kernel.root, |root| complete(root, &kernel.release))?;
        Ok(kernel)
    }

    fn of(package: &str, store: &Path) -> Self {
        Self {
            release: package.trim_start_matches(PACKAGE).to_owned(),
            root: store.join(package),
            is_user_mode: false,
        }
    }

    fn user_mode(apt: &Apt, store: &Path) -> Result<Self> {
        ensure!(
            apt.arch() == Arch::X86_64,
            "{USER_MODE} runs on x86-64 only: leave out --arch"
        );
        let root = store.join(USER_MODE);
        if !root.exists() {
            apt.unpack(&[USER_MODE_PACKAGE], &root, |root| {
                fs::create_dir(root.join("lib"))?;
                fs::rename(root.join("usr/lib/uml/modules"), root.join("lib/modules"))?;
                Ok(())
            })?;
        }
        let releases = entries(&root.join("lib/modules"))?;
        let release = releases.into_iter().next();
        Ok(Self {
            release: release.with_context(|| format!("{}: no modules in it", root.display()))?,
            root,
            is_user_mode: true,
        })
    }

    /// The kernel's image, which is beside the modules since 6.19; a program, if it is User-Mode
    /// Linux.
    pub fn image(&self) -> PathBuf {
        if self.is_user_mode {
            return self.root.join("usr/bin/linux.uml");
        }
        let boot = self.root.join(format!("boot/vmlinuz-{}", self.release));
        if boot.exists() {
            return boot;
        }
        self.modules().join(&self.release).join("vmlinuz")
    }

    /// The folder that the guest sees as `/lib/modules`.
    pub fn modules(&self) -> PathBuf {
        self.root.join("lib/modules")
    }

    /// The files of modules with all they need, in the order to load them.
    pub fn module_files(&self, names: &[&str]) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for name in names {
            let mut command = admin("modprobe");
            command.arg("--dirname").arg(&self.root);
            command.args(["--set-version", &self.release, "--show-depends", name]);
            // `builtin NAME`, or `insmod FILE OPTIONS` for each.
            for line in run(&mut command)?.lines() {
                let mut words = line.split_whitespace();
                if words.next() != Some("insmod") {
                    continue;
                }
                let file = PathBuf::from(words.next().context("modprobe named no file")?);
                if !files.contains(&file) {
                    files.push(file);
                }
            }
        }
        Ok(files)
    }
}

/// The packages that hold a kernel: one, or since 6.19 one for the image, the
/// modules, and the lists of what is built in.
fn parts(release: &str, apt: &Apt) -> Result<Vec<String>> {
    let mut parts = Vec::new();
    for kind in [PACKAGE, "linux-base-", "linux-binary-", "linux-modules-"] {
        let name = format!("{kind}{release}");
        if apt.names(&name)?.contains(&name) {
            parts.push(name);
        }
    }
    Ok(parts)
}

/// Moves files and makes lists as the installation of the packages would.
fn complete(root: &Path, release: &str) -> Result<()> {
    // Since trixie modules are packaged under /usr.
    let merged = root.join("usr/lib/modules");
    if merged.exists() {
        fs::create_dir_all(root.join("lib"))?;
        fs::rename(&merged, root.join("lib/modules"))
            .with_context(|| format!("{}: cannot move", merged.display()))?;
    }
    run(admin("depmod").arg("--basedir").arg(root).arg(release))?;
    Ok(())
}

/// A static busybox, for the way up.
pub fn busybox(apt: &Apt) -> Result<PathBuf> {
    const PACKAGE: &str = "busybox-static";
    let folder = store(apt).join(PACKAGE);
    if !folder.exists() {
        apt.unpack(&[PACKAGE], &folder, |_| Ok(()))?;
    }
    let places = ["usr/bin/busybox", "bin/busybox"].map(|path| folder.join(path));
    let found = places.into_iter().find(|path| path.is_file());
    found.with_context(|| format!("{}: no busybox in it; remove the folder", folder.display()))
}

pub(super) fn store(apt: &Apt) -> PathBuf {
    let kernels = workspace::root().join(".tools/kernels");
    kernels.join(apt.arch().debian())
}

fn admin(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", path_with_admin_dirs());
    command
}

/// Names in a folder; none if there is no such folder.
fn entries(folder: &Path) -> Result<Vec<String>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(folder).with_context(|| format!("{}", folder.display()))?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect()
}

/// The newest of the packages whose version begins with `wanted`.
fn newest<'a>(packages: &'a [String], wanted: &str, arch: Arch) -> Option<&'a str> {
    let wanted = numbers(wanted);
    let versions = packages
        .iter()
        .filter_map(|package| Some((version(package, arch)?, package.as_str())));
    let fitting = versions.filter(|(version, _)| version.starts_with(&wanted));
    fitting.max().map(|(_, package)| package)
}

/// `5.10`, `6.1`, ... of the packages, oldest first.
fn series(packages: &[String], arch: Arch) -> Vec<String> {
    let versions = packages.iter().filter_map(|name| version(name, arch));
    let mut series: Vec<[u32; 2]> = versions
        .filter_map(|version| version.first_chunk().copied())
        .collect();
    series.sort_unstable();
    series.dedup();
    let texts = series
        .iter()
        .map(|[major, minor]| format!("{major}.{minor}"));
    texts.collect()
}

/// The version in the name of a package with Debian's ordinary kernel.
///
/// `linux-image-6.12.107+deb13-amd64`. The variants say so: `-cloud-`, which has
/// no 9p, `-rt-`, `-dbg`, `-unsigned`. So does a package without a version.
fn version(package: &str, arch: Arch) -> Option<Vec<u32>> {
    let version = package
        .strip_prefix(PACKAGE)?
        .strip_suffix(arch.kernels())?;
    let words = version.split(|c: char| !c.is_ascii_alphabetic());
    let plain = words
        .into_iter()
        .all(|word| matches!(word, "" | "deb" | "bpo"));
    let numbers = numbers(version);
    (plain && numbers.len() >= 2).then_some(numbers)
}

fn numbers(text: &str) -> Vec<u32> {
    let words = text.split(|c: char| !c.is_ascii_digit());
    words.filter_map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARCH: Arch = Arch::X86_64;

    fn packages() -> Vec<String> {
        [
            "linux-image-amd64",
            "linux-image-6.1.0-9-amd64",
            "linux-image-6.1.0-50-amd64",
            "linux-image-6.1.0-51-cloud-amd64",
            "linux-image-6.1.0-51-amd64-dbg",
            "linux-image-6.1.0-51-rt-amd64",
            "linux-image-6.12.95+deb12-amd64",
            "linux-image-6.12.107+deb13-amd64",
        ]
        .map(str::to_owned)
        .into()
    }

    #[test]
    fn takes_the_newest_ordinary_kernel_of_a_series() {
        let packages = packages();
        let newest = |wanted| newest(&packages, wanted, ARCH);
        assert_eq!(newest("6.1"), Some("linux-image-6.1.0-50-amd64"));
        assert_eq!(newest("6.12"), Some("linux-image-6.12.107+deb13-amd64"));
        assert_eq!(newest("6.12.95"), Some("linux-image-6.12.95+deb12-amd64"));
        assert_eq!(newest("5.15"), None);
    }

    #[test]
    fn the_kernels_of_armhf_have_a_name_of_their_own() {
        let packages = ["armmp", "armmp-lpae", "rt-armmp"];
        let packages = packages.map(|kind| format!("linux-image-6.12.117+deb13-{kind}"));
        let newest = newest(&packages, "6.12", Arch::Armv7);
        assert_eq!(newest, Some("linux-image-6.12.117+deb13-armmp"));
    }

    #[test]
    fn names_the_series_there_are() {
        assert_eq!(series(&packages(), ARCH), ["6.1", "6.12"]);
    }
}

//! Packages that nfpm makes of one description: rpm, apk, Arch's and ipk.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use xdptun_lab::command::run;

use super::about::{About, LICENCE, NAME, PRIORITY, SECTION, SUMMARY, TEXT};
use super::archive::Entry;
use super::contents::{Contents, is_setting};
use super::scripts::Scripts;
use super::system::System;
use crate::setup;

/// What OpenWrt has as modules of its own: the hooks of old kernels, the device of NAT64, and the devices
/// that split super-packets.
const OPENWRT_DEPENDS: [&str; 3] = ["kmod-sched-bpf", "kmod-tun", "kmod-veth"];

/// What nfpm calls a format.
#[derive(Debug, Clone, Copy)]
pub enum Packager {
    /// Of Fedora and others.
    Rpm,
    /// Of Alpine, and of OpenWrt from 25.12 on.
    Apk,
    /// Of Arch.
    Arch,
    /// Of OpenWrt until 24.10.
    Ipk,
}

impl Packager {
    fn name(self) -> &'static str {
        match self {
            Self::Rpm => "rpm",
            Self::Apk => "apk",
            Self::Arch => "archlinux",
            Self::Ipk => "ipk",
        }
    }
}

/// A package to make.
#[derive(Debug, Clone, Copy)]
pub struct Package<'a> {
    pub packager: Packager,
    pub system: System,
    pub contents: &'a Contents,
    pub scripts: &'a Scripts,
    pub about: &'a About,
    /// What `uname -m` prints, and rpm, apk and pacman call the processor.
    pub machine: &'a str,
    /// Seconds since 1970, of everything.
    pub time: u64,
}

impl Package<'_> {
    /// Makes it.
    pub fn build(&self) -> Result<Vec<u8>> {
        let nfpm = setup::nfpm()?;
        let folder = tempfile::tempdir().context("cannot make a temporary directory")?;
        let description = serde_json::to_vec(&self.description(folder.path())?)?;
        let config = folder.path().join("nfpm.json");
        fs::write(&config, description)?;
        let target = folder.path().join("package");
        let mut command = Command::new(nfpm);
        command
            .args(["package", "--packager", self.packager.name(), "--config"])
            .arg(&config)
            .arg("--target")
            .arg(&target)
            .env("SOURCE_DATE_EPOCH", self.time.to_string());
        run(&mut command)?;
        fs::read(&target).with_context(|| format!("nfpm made no {}", self.packager.name()))
    }

    /// JSON, which is YAML too.
    fn description(&self, folder: &Path) -> Result<Value> {
        let About {
            version,
            release,
            maintainer,
            homepage,
        } = self.about;
        // A package for OpenWrt fits all that OpenWrt has names of its own for, aarch64_cortex-a53
        // and so on; a script refuses the wrong kind of machine.
        let arch = match (self.system, self.packager) {
            (System::OpenWrt, Packager::Ipk) => "all",
            (System::OpenWrt, _) => "noarch",
            _ => self.machine,
        };
        let depends: &[&str] = match self.system {
            System::OpenWrt => &OPENWRT_DEPENDS,
            _ => &[],
        };
        let text = match self.packager {
            // Of which they show one line.
            Packager::Apk | Packager::Arch => SUMMARY.to_owned(),
            Packager::Ipk => format!("{SUMMARY}\n{TEXT}"),
            // It has the summary by itself.
            Packager::Rpm => TEXT.to_owned(),
        };
        let mut scripts = self.scripts(folder)?;
        // That of a format alone.
        let upgrade: Map<String, Value> = scripts.remove_entry("postupgrade").into_iter().collect();
        Ok(json!({
            "name": NAME,
            "arch": arch,
            "version": version,
            "version_schema": "none",
            "release": release,
            "section": SECTION,
            "priority": PRIORITY,
            "maintainer": maintainer,
            "description": text,
            "homepage": homepage,
            "license": LICENCE,
            "disable_globbing": true,
            "depends": depends,
            "contents": self.files(folder)?,
            "scripts": scripts,
            // Without it the name of this machine is in the package.
            "rpm": { "buildhost": NAME, "summary": SUMMARY, "compression": "xz" },
            "archlinux": { "arch": arch, "packager": maintainer, "scripts": upgrade },
            "apk": { "arch": arch, "scripts": upgrade },
            "ipk": { "arch": arch },
        }))
    }

    /// Every file, and the directories that are the package's own.
    fn files(&self, folder: &Path) -> Result<Vec<Value>> {
        let mut files = Vec::new();
        for (path, entry) in self.contents.entries() {
            let destination = format!("/{path}");
            match entry {
                Entry::Directory if is_own(&path) => {
                    files.push(json!({ "dst": destination, "type": "dir" }));
                }
                Entry::Directory => {}
                Entry::File { mode, data } => {
                    let source = self.stage(folder, &format!("{}", files.len()), &data)?;
                    let kind = if is_setting(&path) {
                        "config|noreplace"
                    } else {
                        "file"
                    };
                    files.push(json!({
                        "src": source,
                        "dst": destination,
                        "type": kind,
                        "file_info": { "mode": mode, "owner": "root", "group": "root" },
                    }));
                }
            }
        }
        Ok(files)
    }

    /// The scripts by nfpm's names for them.
    fn scripts(&self, folder: &Path) -> Result<Map<String, Value>> {
        let scripts = [
            ("preinstall", &self.scripts.before_install),
            ("postinstall", &self.scripts.after_install),
            ("postupgrade", &self.scripts.after_upgrade),
            ("preremove", &self.scripts.before_remove),
            ("postremove", &self.scripts.after_remove),
        ];
        let mut staged = Map::new();
        for (name, text) in scripts {
            if let Some(text) = text {
                let path = self.stage(folder, name, text.as_bytes())?;
                staged.insert(name.to_owned(), json!(path));
            }
        }
        Ok(staged)
    }

    /// Puts a file where nfpm finds it. Its time gets into the package.
    fn stage(&self, folder: &Path, name: &str, data: &[u8]) -> Result<PathBuf> {
        let path = folder.join(name);
        let write = || {
            fs::write(&path, data)?;
            let time = UNIX_EPOCH + Duration::from_secs(self.time);
            File::options().write(true).open(&path)?.set_modified(time)
        };
        write().with_context(|| format!("{}: cannot write", path.display()))?;
        Ok(path)
    }
}

/// Whether no other package has a directory.
fn is_own(directory: &str) -> bool {
    directory.contains(NAME)
}

//! Jool, a NAT64 in a kernel module, built for a guest's kernel.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use xdptun_lab::command::run;
use xdptun_lab::workspace;

use super::kernel::Kernel;
use crate::debian::Apt;
use crate::setup;

/// Its modules, in the order to build and to load them.
const MODULES: [(&str, &str); 2] = [("common", "jool_common.ko"), ("nat64", "jool.ko")];

/// Its source and its command, with libraries: of one release, whose libc every system that
/// builds xdptun has.
const PACKAGES: [&str; 4] = [
    "jool-dkms/bookworm",
    "jool-tools/bookworm",
    "libnl-3-200/bookworm",
    "libnl-genl-3-200/bookworm",
];

/// Where packages have sources and headers.
const SOURCES: &str = "usr/src";

/// Puts modules, command and libraries into a folder of `.tools`, unless they are there.
pub fn build(kernel: &Kernel, apt: &Apt) -> Result<()> {
    let release = &kernel.release;
    let folder = workspace::root().join(format!(".tools/jool-{release}"));
    if folder.exists() {
        return Ok(());
    }
    setup::ensure_modules()?;
    eprintln!("Jool for Linux {release}: downloading and building");
    let [headers, common, kbuild] = headers(release, apt);
    let packages = [&PACKAGES[..], &[&headers, &common, &kbuild]].concat();
    apt.unpack(&packages, &folder, |root| {
        let sources = root.join(SOURCES);
        build_modules(root, &sources.join(&headers), &sources.join(&common))?;
        fs::remove_dir_all(&sources).with_context(|| format!("{}", sources.display()))
    })
    .with_context(|| {
        format!(
            "Jool for Linux {release}; if Debian has a newer kernel now, remove this one from \
             .tools/kernels"
        )
    })
}

/// The packages with the headers of a kernel, `6.1.0-50-amd64`: its own, those of all
/// architectures, and the programs that build modules.
fn headers(release: &str, apt: &Apt) -> [String; 3] {
    let version = release.trim_end_matches(apt.arch().kernels());
    let series: Vec<&str> = release.split('.').take(2).collect();
    [
        format!("linux-headers-{release}"),
        format!("linux-headers-{version}common"),
        format!("linux-kbuild-{}", series.join(".")),
    ]
}

/// Builds the modules and leaves them in the folder.
fn build_modules(root: &Path, headers: &Path, common: &Path) -> Result<()> {
    for (part, file) in MODULES {
        let source = fs::read_dir(root.join(SOURCES))?
            .filter_map(|entry| Some(entry.ok()?.path().join("src/mod").join(part)))
            .find(|path| path.is_dir())
            .with_context(|| format!("{}: no source of Jool", root.display()))?;
        let mut option = OsString::from("M=");
        option.push(&source);
        let mut make = Command::new("make");
        make.arg("-C").arg(headers);
        // The headers name this file by where it would be installed.
        make.arg("-f").arg(common.join("Makefile"));
        // And a compiler of one version.
        make.args(["CC=gcc", "modules"]).arg(option);
        run(&mut make)?;
        let built = source.join(file);
        run(Command::new("strip").arg("--strip-debug").arg(&built))?;
        fs::copy(&built, root.join(file)).with_context(|| format!("{}", built.display()))?;
    }
    Ok(())
}

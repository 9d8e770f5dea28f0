//! The sources of the Rust core library, which the eBPF object is built from.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use xdptun_lab::command::run;

use super::Part;
use super::{packages, sysroot};
use crate::debian::Arch;
use crate::shell::{find, run_visible};

/// Debian's newest Rust, with sources: enough for the eBPF object where the
/// pinned toolchain cannot get its own.
const DEBIAN_RUST: [&str; 3] = ["rustc-web", "cargo-web", "rust-web-src"];

pub(super) fn parts() -> Vec<Part> {
    vec![Part {
        name: "rust-src, the sources of the core library for the eBPF object".into(),
        present: has_core() || has_sources("/usr/bin/rustc"),
        install: Box::new(install),
    }]
}

/// The compiled standard library of another machine.
pub(super) fn target_part(target: &str) -> Part {
    let library = run(Command::new("rustc").args(["--print", "target-libdir", "--target", target]));
    let target = target.to_owned();
    Part {
        name: format!("Rust's standard library for {target}"),
        present: library.is_ok_and(|path| sysroot::is_whole(Path::new(path.trim()))),
        install: Box::new(move || {
            let Err(error) = add_target(&target) else {
                return Ok(());
            };
            if target != Arch::Armv7.triple() {
                return Err(error);
            }
            eprintln!("{error:#}; building it");
            sysroot::build(Arch::Armv7)
        }),
    }
}

fn add_target(target: &str) -> Result<()> {
    let rustup = find("rustup")
        .with_context(|| format!("there is no rustup, which would bring what {target} needs"))?;
    run_visible(Command::new(rustup).args(["target", "add", target]))
}

fn install() -> Result<()> {
    let through_rustup = match find("rustup") {
        // In the project's folder, so it means the pinned toolchain.
        Some(rustup) => run_visible(Command::new(rustup).args(["component", "add", "rust-src"])),
        None => bail_without_rustup(),
    };
    let Err(error) = through_rustup else {
        return Ok(());
    };
    eprintln!("{error:#}");
    packages::install_debian(&DEBIAN_RUST).with_context(|| {
        format!(
            "rust-src is missing: `rustup component add rust-src` gets it, \
             on Debian also the packages {}",
            DEBIAN_RUST.join(" ")
        )
    })
}

fn bail_without_rustup() -> Result<()> {
    bail!("there is no rustup")
}

/// Whether the pinned toolchain has the sources of the core library.
pub fn has_core() -> bool {
    has_sources("rustc")
}

/// Whether the core library's sources lie where this compiler looks for them.
fn has_sources(rustc: &str) -> bool {
    let sysroot = run(Command::new(rustc).args(["--print", "sysroot"]));
    sysroot.is_ok_and(|sysroot| {
        Path::new(sysroot.trim())
            .join("lib/rustlib/src/rust/library/core")
            .is_dir()
    })
}

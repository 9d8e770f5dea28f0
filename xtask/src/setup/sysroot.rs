//! The compiled standard library of another machine, made here: rustup does not have it everywhere.
//!
//! It is built of the toolchain's own sources, and laid where rustup would put it. The static C
//! library and what starts a program come from Debian's packages.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use xdptun_lab::command::run;
use xdptun_lab::scratch::Scratch;

use super::toolchain::has_core;
use crate::debian::{Apt, Arch};
use crate::shell::{cargo, run_visible};

/// A static C library, and what a compiler adds to each program.
const PACKAGES: [&str; 2] = ["musl-dev", "libgcc-14-dev"];

/// The crates that programs and tests are linked with.
const CRATES: &str = "-Zbuild-std=std,panic_abort,test";

/// Beside the library: the compiler that it was built by.
const BUILT_BY: &str = "built-by";

/// Whether a folder has the standard library: that of rustup, or one that this compiler built.
pub(super) fn is_whole(library: &Path) -> bool {
    let built_by = fs::read_to_string(library.join(BUILT_BY));
    library.is_dir() && built_by.map_or(true, |built| compiler().is_ok_and(|own| own == built))
}

/// The compiler in detail.
fn compiler() -> Result<String> {
    run(Command::new("rustc").arg("-vV"))
}

/// Builds it, and puts it into the toolchain: whole or not at all.
pub(super) fn build(target: Arch) -> Result<()> {
    ensure!(
        has_core(),
        "the compiler has no sources of the standard library: `rustup component add rust-src` gets them"
    );
    let triple = target.triple();
    let scratch = Scratch::new()?;
    let debian = scratch.path().join("debian");
    Apt::new(target).unpack(&PACKAGES, &debian, |_| Ok(()))?;
    let compiled = compile(triple, scratch.path())?;

    let sysroot = run(Command::new("rustc").args(["--print", "sysroot"]))?;
    let home = Path::new(sysroot.trim()).join("lib/rustlib");
    let made = tempfile::tempdir_in(&home)
        .with_context(|| format!("{}: cannot write there", home.display()))?;
    let library = made.path().join("lib");
    let own = library.join("self-contained");
    fs::create_dir_all(&own)?;
    copy(&debian, &own, of_program)?;
    for needed in ["crt1.o", "crtbegin.o", "libc.a", UNWINDER] {
        let is_there = own.join(needed).exists();
        ensure!(is_there, "{}: no {needed} in them", PACKAGES.join(", "));
    }
    copy(&compiled, &library, |name| {
        let is_library = name.ends_with(".rlib") && !name.starts_with("libnothing");
        is_library.then_some(name)
    })?;
    fs::write(library.join(BUILT_BY), compiler()?)?;
    let place = home.join(triple);
    if place.exists() {
        fs::remove_dir_all(&place)?;
    }
    fs::rename(made.path(), &place)
        .with_context(|| format!("{}: cannot move it there", place.display()))
}

/// What rustc calls the library that walks the stack.
const UNWINDER: &str = "libunwind.a";

/// The name that rustc has for a file of Debian's that it links every program with.
fn of_program(name: &str) -> Option<&str> {
    match name {
        "libgcc_eh.a" => Some(UNWINDER),
        "libc.a" => Some(name),
        _ if name.contains("crt") && name.ends_with(".o") => Some(name),
        _ => None,
    }
}

/// Stands between cargo and rustc: `panic_abort` has to be compiled with what it is for, and link-time
/// optimization reads bitcode. What rustup brings is made so, too.
const WRAPPER: &str = r#"#!/bin/sh
case "$*" in
    *"--crate-name panic_abort "*) set -- "$@" -Cpanic=abort ;;
esac
exec "$@" -Cembed-bitcode=yes
"#;

/// Builds the crates, and says where they are. cargo builds them together with another: an empty
/// one.
fn compile(triple: &str, scratch: &Path) -> Result<PathBuf> {
    let (manifest, target) = (scratch.join("Cargo.toml"), scratch.join("target"));
    let package = "[package]\nname = \"nothing\"\n[lib]\npath = \"nothing.rs\"\n[workspace]\n";
    fs::write(&manifest, package)?;
    fs::write(scratch.join("nothing.rs"), "")?;
    let wrapper = scratch.join("wrapper");
    fs::write(&wrapper, WRAPPER)?;
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755))?;
    let mut command = cargo();
    command.args(["build", "--release", "--quiet", CRATES, "--target", triple]);
    command.arg("--manifest-path").arg(manifest);
    command.arg("--target-dir").arg(&target);
    // The stable cargo takes `-Z` with it.
    command.env("RUSTC_BOOTSTRAP", "1");
    run_visible(command.env("RUSTC_WRAPPER", wrapper))?;
    Ok(target.join(triple).join("release/deps"))
}

/// Copies files of a folder and those below it: those that `name` has a name for.
fn copy(from: &Path, to: &Path, name: impl Fn(&str) -> Option<&str>) -> Result<()> {
    for file in run(Command::new("find").arg(from).args(["-type", "f"]))?.lines() {
        if let Some(name) = name(file.rsplit('/').next().unwrap_or(file)) {
            fs::copy(file, to.join(name)).with_context(|| format!("{file}: cannot copy"))?;
        }
    }
    Ok(())
}

//! `cargo xtask setup`: the tools that building, showing and testing need.
//!
//! Each part checks first and does nothing when it is satisfied, so that every
//! verb can call this as its first step.

mod debian;
mod go;
mod packages;
mod peers;
mod sysroot;
mod toolchain;
mod tools;
mod unpacked;

use anyhow::Result;

pub use go::nfpm;
pub use packages::laboratory;
pub use peers::Peer;
pub use toolchain::has_core;

/// One thing that must be there.
struct Part {
    /// Its name, for the line that reports it.
    name: String,
    /// Whether nothing has to be done.
    present: bool,
    /// Makes it present.
    install: Box<dyn FnOnce() -> Result<()>>,
}

/// Installs what is missing and reports every part.
pub fn run() -> Result<()> {
    // The parts depend on each other: the tools are built with the compiler.
    for make in [
        toolchain::parts,
        packages::parts,
        tools::parts,
        unpacked::parts,
        peers::real_parts,
        debian::parts,
    ] {
        for part in make() {
            if part.present {
                eprintln!("present   {}", part.name);
            } else {
                install(part)?;
            }
        }
    }
    // Without Go this machine can build xdptun, but not every package.
    try_install(go::nfpm_part());
    eprintln!("setup: everything is there");
    Ok(())
}

/// Installs what building needs, silent when nothing is missing.
pub fn ensure_build() -> Result<()> {
    install_missing(toolchain::parts())?;
    install_missing(tools::build_parts())
}

/// Installs what building for another machine needs.
pub fn ensure_target(target: &str) -> Result<()> {
    install_missing(vec![toolchain::target_part(target)])
}

/// Installs what demo, tests and benchmarks need, silent when nothing is
/// missing.
pub fn ensure() -> Result<()> {
    install_missing(toolchain::parts())?;
    install_missing(packages::required_parts())?;
    install_missing(unpacked::parts())?;
    install_missing(tools::parts())
}

/// Installs a program of others for a benchmark. A program that cannot be installed is absent
/// from the results, and no error here.
pub fn try_peer(peer: Peer) {
    try_install(peer.part());
}

/// Installs what the tests of `test/real` run, silent when nothing is missing.
pub fn ensure_real() -> Result<()> {
    install_missing(peers::real_parts())
}

/// Installs what trying packages needs, silent when nothing is missing.
pub fn ensure_packages() -> Result<()> {
    install_missing(packages::package_parts())?;
    install_missing(debian::parts())
}

/// Builds nfpm, silent when it is there.
pub fn ensure_nfpm() -> Result<()> {
    install_missing(vec![go::nfpm_part()])
}

/// Installs what emulating another machine needs, silent when nothing is
/// missing.
pub fn ensure_vm() -> Result<()> {
    install_missing(packages::vm_parts())
}

/// Installs what emulating an ARM machine needs besides.
pub fn ensure_arm_vm() -> Result<()> {
    install_missing(packages::arm_vm_parts())
}

/// Installs what building a kernel module needs, silent when nothing is missing.
pub fn ensure_modules() -> Result<()> {
    install_missing(packages::module_parts())
}

fn install_missing(parts: Vec<Part>) -> Result<()> {
    parts
        .into_iter()
        .filter(|part| !part.present)
        .try_for_each(install)
}

/// A part that cannot be installed is told to be absent, and no error.
fn try_install(part: Part) {
    let name = part.name.clone();
    if let Err(error) = install_missing(vec![part]) {
        eprintln!("absent    {name}: {error:#}");
    }
}

fn install(part: Part) -> Result<()> {
    eprintln!("missing   {}", part.name);
    (part.install)()?;
    eprintln!("installed {}", part.name);
    Ok(())
}

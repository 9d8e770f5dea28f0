//! Programs that cargo builds into `.tools`, the project's own folder.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use xdptun_lab::command::run;
use xdptun_lab::workspace;
use xdptun_test_wg::Implementation;

use super::Part;
use crate::shell::{self, cargo, find, run_visible};

/// A tool at one exact version.
struct Tool {
    name: &'static str,
    version: &'static str,
    purpose: &'static str,
}

const BPF_LINKER: Tool = Tool {
    name: "bpf-linker",
    version: "0.10.4",
    purpose: "links the eBPF object",
};

const BORINGTUN: Tool = Tool {
    name: "boringtun-cli",
    version: "0.7.1",
    purpose: "WireGuard in user space, because this kernel has none",
};

pub(super) fn parts() -> Vec<Part> {
    let mut parts = build_parts();
    if !kernel_has_wireguard() {
        parts.push(part(&BORINGTUN));
    }
    parts
}

pub(super) fn build_parts() -> Vec<Part> {
    vec![part(&BPF_LINKER)]
}

fn part(tool: &'static Tool) -> Part {
    Part {
        name: format!("{} {}, {}", tool.name, tool.version, tool.purpose),
        present: is_installed(tool),
        install: Box::new(|| install(tool)),
    }
}

fn install(tool: &Tool) -> Result<()> {
    cargo_install(tool.name, tool.version, &workspace::root().join(".tools"))
}

/// Builds the programs of a package into `bin` of a folder.
pub(super) fn cargo_install(package: &str, version: &str, folder: &Path) -> Result<()> {
    eprintln!("          building it takes a minute or two");
    run_visible(
        cargo()
            .args(["install", package, "--version", version, "--locked"])
            .arg("--force")
            .arg("--root")
            .arg(folder)
            .arg("--target-dir")
            .arg(workspace::target_dir().join("tools")),
    )
}

/// Asks the tool itself; a version of the past is replaced.
fn is_installed(tool: &Tool) -> bool {
    let answer = run(Command::new(workspace::tool(tool.name)).arg("--version"));
    answer.is_ok_and(|text| text.split_whitespace().nth(1) == Some(tool.version))
}

/// Root tries it. An ordinary user looks whether it is built in, loaded, or a
/// module that could be.
fn kernel_has_wireguard() -> bool {
    if shell::is_root() {
        return matches!(Implementation::probe(), Ok(Implementation::Kernel));
    }
    Path::new("/sys/module/wireguard").exists()
        || find("modinfo")
            .is_some_and(|modinfo| run(Command::new(modinfo).args(["-n", "wireguard"])).is_ok())
}

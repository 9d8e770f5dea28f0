//! Programs that benchmarks measure beside xdptun, as far as a registry offers them.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result};
use xdptun_lab::command::run;
use xdptun_lab::workspace;

use super::Part;
use super::tools::cargo_install;
use crate::debian::{Apt, Arch};
use crate::shell::{as_root, run_visible};

/// The version of phantun.
const PHANTUN: &str = "0.8.1";

pub(super) fn parts() -> Vec<Part> {
    vec![phantun(), wireguard_go(), haproxy()]
}

/// From crates.io.
fn phantun() -> Part {
    // Its programs have names that fit any project.
    let folder = workspace::root().join(".tools/phantun");
    let version = run(Command::new(folder.join("bin/client")).arg("--version"));
    Part {
        name: format!("phantun {PHANTUN}, to measure beside xdptun"),
        present: version.is_ok_and(|text| text.trim_end().ends_with(PHANTUN)),
        install: Box::new(move || cargo_install("phantun", PHANTUN, &folder)),
    }
}

/// From Debian's stable release: older ones know no GSO.
fn wireguard_go() -> Part {
    let folder = workspace::root().join(".tools/wireguard-go");
    Part {
        name: "wireguard-go, a WireGuard that sends many datagrams at once".into(),
        present: folder.is_dir(),
        install: Box::new(move || -> Result<()> {
            Apt::new(Arch::this()?).unpack(&["wireguard-go"], &folder, |_| Ok(()))
        }),
    }
}

/// From this distribution, whose libraries it uses. Unpacked, as an installed one would start a
/// service.
fn haproxy() -> Part {
    let folder = workspace::root().join(".tools/haproxy");
    Part {
        name: "haproxy, a proxy to measure beside forwarding".into(),
        present: folder.is_dir(),
        install: Box::new(move || -> Result<()> {
            let tools = folder.parent().context("a folder without a parent")?;
            let scratch = tempfile::tempdir_in(tools)?;
            let packages = [
                "haproxy",
                "liblua5.3-0",
                "libopentracing1",
                "libopentracing-c-wrapper0",
            ];
            let (archives, unpacked) = (scratch.path().join("a"), scratch.path().join("u"));
            fs::create_dir(&archives)?;
            run_visible(as_root("apt-get")?.args(["--quiet", "update"]))?;
            let mut download = Command::new("apt-get");
            download.args(["--quiet", "download"]).args(packages);
            run_visible(download.current_dir(&archives))?;
            for archive in fs::read_dir(&archives)? {
                let mut command = Command::new("dpkg-deb");
                run(command.arg("--extract").args([&archive?.path(), &unpacked]))?;
            }
            fs::rename(&unpacked, &folder)?;
            Ok(())
        }),
    }
}

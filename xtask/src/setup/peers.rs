//! Programs of others that benchmarks measure or measure with, as far as a registry offers them.

use std::process::Command;

use anyhow::Result;
use xdptun_lab::command::run;
use xdptun_lab::workspace;

use super::Part;
use super::tools::cargo_install;
use crate::debian::{Apt, Arch, unpack};
use crate::shell::{as_root, run_visible};

/// The version of phantun.
const PHANTUN: &str = "0.8.1";

/// A program that only benchmarks need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// A tunnel of xdptun's kind.
    Phantun,
    /// A WireGuard.
    WireguardGo,
    /// A proxy.
    Haproxy,
    /// A generator of load.
    Httperf,
    /// A NAT64 in user space, and a generator of load.
    Tayga,
    /// A measurement of TCP, and filters of the kernel to measure beside.
    Qperf,
}

impl Peer {
    pub(super) fn part(self) -> Part {
        match self {
            Self::Phantun => phantun(),
            Self::WireguardGo => wireguard_go(),
            Self::Haproxy => haproxy(),
            Self::Httperf => httperf(),
            Self::Tayga => tayga(),
            Self::Qperf => qperf(),
        }
    }
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
            run_visible(as_root("apt-get")?.args(["--quiet", "update"]))?;
            let packages = [
                "haproxy",
                "liblua5.3-0",
                "libopentracing1",
                "libopentracing-c-wrapper0",
            ];
            unpack(Command::new("apt-get"), &packages, &folder, |_| Ok(()))
        }),
    }
}

/// From this distribution, whose libraries it uses: curl needs the same.
fn httperf() -> Part {
    let folder = workspace::root().join(".tools/httperf");
    Part {
        name: "httperf, which opens connections at a rate".into(),
        present: folder.is_dir(),
        install: Box::new(move || -> Result<()> {
            run_visible(as_root("apt-get")?.args(["--quiet", "update"]))?;
            unpack(Command::new("apt-get"), &["httperf"], &folder, |_| Ok(()))
        }),
    }
}

/// From this distribution, whose libraries they use. Unpacked, as an installed one would start a
/// service.
fn tayga() -> Part {
    let folder = workspace::root().join(".tools/nat64");
    Part {
        name: "Tayga and ab, to measure beside NAT64".into(),
        present: folder.is_dir(),
        install: Box::new(move || -> Result<()> {
            run_visible(as_root("apt-get")?.args(["--quiet", "update"]))?;
            let packages = ["tayga", "apache2-utils", "libapr1", "libaprutil1"];
            unpack(Command::new("apt-get"), &packages, &folder, |_| Ok(()))
        }),
    }
}

/// From this distribution, whose libraries they use.
fn qperf() -> Part {
    let folder = workspace::root().join(".tools/qperf");
    Part {
        name: "qperf and iptables, to measure beside the policy".into(),
        present: folder.is_dir(),
        install: Box::new(move || -> Result<()> {
            run_visible(as_root("apt-get")?.args(["--quiet", "update"]))?;
            let packages = [
                "qperf",
                "libibverbs1",
                "librdmacm1",
                "libnl-3-200",
                "libnl-route-3-200",
                "iptables",
                "libip4tc2",
                "libip6tc2",
                "libxtables12",
                "libnetfilter-conntrack3",
                "libnfnetlink0",
            ];
            unpack(Command::new("apt-get"), &packages, &folder, |_| Ok(()))
        }),
    }
}

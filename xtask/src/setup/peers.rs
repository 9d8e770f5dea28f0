//! Programs of others that benchmarks measure or measure with, and that tests run over xdptun, as
//! far as a registry offers them.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use xdptun_lab::command::run;
use xdptun_lab::workspace;

use super::Part;
use super::go::go_build;
use super::tools::cargo_install;
use crate::debian::{Apt, Arch, unpack};
use crate::shell::{as_root, run_visible};

/// The version of phantun.
const PHANTUN: &str = "0.8.1";

/// The module of Caddy, and its version.
const CADDY: [&str; 2] = ["github.com/caddyserver/caddy/v2", "v2.11.9"];

/// What the linker of Go leaves out: symbols and debug information.
const STRIPPED: &str = "-ldflags=-s -w";

/// A program that only benchmarks and the tests of `test/real` need.
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
    /// A web server with HTTP/3.
    Caddy,
    /// The client of `test/real` for it.
    Http3,
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
            Self::Caddy => caddy(),
            Self::Http3 => http3(),
        }
    }
}

/// What `test/real` runs and [`super::unpacked`] does not bring.
pub(super) fn real_parts() -> Vec<Part> {
    [Peer::WireguardGo, Peer::Phantun, Peer::Caddy, Peer::Http3]
        .map(Peer::part)
        .into()
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

/// Built from its Go module. Its own list of modules says which it is built from.
fn caddy() -> Part {
    let folder = workspace::root().join(".tools/caddy/bin");
    let [module, version] = CADDY;
    let found = run(Command::new(folder.join("caddy")).arg("version"));
    Part {
        name: format!("caddy {version}, a web server with HTTP/3"),
        present: found.is_ok_and(|text| text.split_whitespace().next() == Some(version)),
        install: Box::new(move || {
            // Without it the program does not know its version.
            let linked = format!("{STRIPPED} -X {module}.CustomVersion={version}");
            let program = format!("{module}/cmd/caddy@{version}");
            go(|go| {
                go.args(["install", "-trimpath", &linked, &program])
                    .env("GOBIN", &folder)
            })
        }),
    }
}

/// Built from `test/real/http3`, again when that has changed.
fn http3() -> Part {
    let source = workspace::root().join("test/real/http3");
    let program = workspace::root().join(".tools/http3/bin/http3");
    Part {
        name: "http3, a client on quic-go for caddy".into(),
        present: is_newer(&program, &source),
        install: Box::new(move || {
            go(|go| {
                go.args(["build", "-trimpath", STRIPPED, "-o"])
                    .arg(&program)
                    .current_dir(&source)
            })
        }),
    }
}

/// Whether a file is newer than all files of a folder.
fn is_newer(file: &Path, folder: &Path) -> bool {
    let changed = |path: &Path| fs::metadata(path).and_then(|found| found.modified());
    let (Ok(made), Ok(entries)) = (changed(file), fs::read_dir(folder)) else {
        return false;
    };
    entries
        .flatten()
        .all(|entry| changed(&entry.path()).is_ok_and(|change| change < made))
}

/// Runs Go. Only the suite `http3` of `test/real` depends on what it builds, so a failure is told
/// and no error.
fn go(configure: impl FnOnce(&mut Command) -> &mut Command) -> Result<()> {
    if let Err(error) = go_build(configure) {
        eprintln!("{error:#}; nothing else depends on it");
    }
    Ok(())
}

//! Programs of the distribution that tests run, unpacked into `.tools` and not installed: an
//! installed one would start a service or make a user.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use xdptun_lab::command::run;
use xdptun_lab::workspace;

use super::Part;
use crate::debian::unpack;
use crate::shell::{as_root, run_visible};

/// A package.
struct Unpacked {
    package: &'static str,
    /// Where its program is below `/`.
    program: &'static str,
    purpose: &'static str,
}

const ALL: [Unpacked; 8] = [
    Unpacked {
        package: "coturn",
        program: "usr/bin/turnserver",
        purpose: "tells the kind of a NAT",
    },
    Unpacked {
        package: "openssh-server",
        program: "usr/sbin/sshd",
        purpose: "runs commands of clients",
    },
    Unpacked {
        package: "dnsmasq-base",
        program: "usr/sbin/dnsmasq",
        purpose: "answers DNS queries",
    },
    Unpacked {
        package: "unbound",
        program: "usr/sbin/unbound",
        purpose: "gives names IPv6 addresses",
    },
    Unpacked {
        package: "iperf3",
        program: "usr/bin/iperf3",
        purpose: "measures throughput",
    },
    Unpacked {
        package: "openvpn",
        program: "usr/sbin/openvpn",
        purpose: "makes tunnels over UDP",
    },
    Unpacked {
        package: "prometheus",
        program: "usr/bin/prometheus",
        purpose: "collects metrics",
    },
    Unpacked {
        package: "libndpi-bin",
        program: "usr/bin/ndpiReader",
        purpose: "recognises protocols by their first datagrams",
    },
];

/// Those that this machine has need not be unpacked.
pub(super) fn parts() -> Vec<Part> {
    ALL.iter().map(part).collect()
}

fn part(unpacked: &'static Unpacked) -> Part {
    let Unpacked {
        package,
        program,
        purpose,
    } = unpacked;
    let folder = workspace::root().join(".tools").join(package);
    Part {
        name: format!("{package}, which {purpose}"),
        present: folder.is_dir() || Path::new("/").join(program).is_file(),
        install: Box::new(move || -> Result<()> {
            run_visible(as_root("apt-get")?.args(["--quiet", "update"]))?;
            // With the libraries that this machine lacks.
            let simulate = ["--simulate", "--no-install-recommends", "install", package];
            let plan = run(Command::new("apt-get").args(simulate))?;
            let packages: Vec<&str> = plan.lines().filter_map(installed).collect();
            unpack(Command::new("apt-get"), &packages, &folder, |_| Ok(()))
        }),
    }
}

/// The package in a line of `apt-get --simulate`. `Conf ...` repeats each.
fn installed(line: &str) -> Option<&str> {
    line.strip_prefix("Inst ")?.split_whitespace().next()
}

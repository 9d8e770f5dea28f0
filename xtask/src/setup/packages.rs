//! Programs of the distribution.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail, ensure};

use super::Part;
use crate::shell::{self, as_root, find, run_visible};

/// A program, the Debian package that has it, and who needs it.
struct Program {
    name: &'static str,
    package: &'static str,
    /// Whether demo, tests or benchmarks fail without it; the others are for a
    /// person who looks around in the namespaces.
    required: bool,
}

const fn required(name: &'static str, package: &'static str) -> Program {
    Program {
        name,
        package,
        required: true,
    }
}

const fn handy(name: &'static str, package: &'static str) -> Program {
    Program {
        name,
        package,
        required: false,
    }
}

const PROGRAMS: [Program; 12] = [
    required("ip", "iproute2"),
    required("tc", "iproute2"),
    required("nft", "nftables"),
    required("conntrack", "conntrack"),
    required("ethtool", "ethtool"),
    required("wg", "wireguard-tools"),
    required("ping", "iputils-ping"),
    required("curl", "curl"),
    required("python3", "python3"),
    handy("sysctl", "procps"),
    handy("tshark", "tshark"),
    handy("iperf3", "iperf3"),
];

pub(super) fn parts() -> Vec<Part> {
    let mut parts = required_parts();
    parts.push(part("handy to look around", &|program| !program.required));
    parts
}

pub(super) fn required_parts() -> Vec<Part> {
    vec![part("for demo, tests and benchmarks", &|program| {
        program.required
    })]
}

fn part(purpose: &str, belongs: &dyn Fn(&Program) -> bool) -> Part {
    let programs: Vec<&Program> = PROGRAMS.iter().filter(|p| belongs(p)).collect();
    let missing: Vec<&Program> = programs
        .iter()
        .copied()
        .filter(|program| find(program.name).is_none())
        .collect();
    let shown = if missing.is_empty() {
        &programs
    } else {
        &missing
    };
    let names: Vec<&str> = shown.iter().map(|program| program.name).collect();
    let mut packages: Vec<&'static str> = missing.iter().map(|program| program.package).collect();
    packages.dedup();
    let needed = missing.iter().any(|program| program.required);
    Part {
        name: format!("programs {purpose}: {}", names.join(", ")),
        present: missing.is_empty(),
        install: Box::new(move || match install_debian(&packages) {
            Err(error) if !needed => {
                eprintln!("{error:#}\nnothing depends on it, going on");
                Ok(())
            }
            result => result,
        }),
    }
}

/// Installs Debian packages; says what to do where that is not possible.
pub(super) fn install_debian(packages: &[&str]) -> Result<()> {
    let list = packages.join(" ");
    ensure!(
        Path::new("/etc/debian_version").exists() && find("apt-get").is_some(),
        "this is not Debian: install what these Debian packages hold with your own \
         package manager: {list}"
    );
    if !shell::is_root() && find("sudo").is_none() {
        bail!("as root, run: apt-get install --no-install-recommends {list}");
    }
    run_visible(apt_get()?.arg("update"))?;
    run_visible(
        apt_get()?
            .args(["install", "--yes", "--no-install-recommends"])
            .args(packages),
    )
}

fn apt_get() -> Result<Command> {
    let mut command = as_root("apt-get")?;
    command.env("DEBIAN_FRONTEND", "noninteractive");
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_present_when_all_its_programs_are() {
        let part = required_parts().pop().unwrap();
        let missing: Vec<_> = PROGRAMS
            .iter()
            .filter(|program| program.required && find(program.name).is_none())
            .map(|program| program.name)
            .collect();
        assert_eq!(part.present, missing.is_empty(), "{missing:?}");
        assert!(missing.iter().all(|name| part.name.contains(name)));
    }
}

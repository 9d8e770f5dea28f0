//! Programs of the distribution.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail, ensure};

use super::Part;
use crate::shell::{self, as_root, find, run_visible};

/// A program and the Debian package that has it.
type Program = (&'static str, &'static str);

/// Programs that belong together.
struct Group {
    purpose: &'static str,
    programs: &'static [Program],
    /// Whether something fails without them; the other programs
    /// help a developer to look around in the namespaces.
    required: bool,
}

const LABORATORY: Group = Group {
    purpose: "for demo, tests and benchmarks",
    required: true,
    programs: &[
        ("ip", "iproute2"),
        ("tc", "iproute2"),
        ("nft", "nftables"),
        ("iptables-legacy", "iptables"),
        ("conntrack", "conntrack"),
        ("ethtool", "ethtool"),
        ("wg", "wireguard-tools"),
        ("ping", "iputils-ping"),
        ("sysctl", "procps"),
        ("curl", "curl"),
        ("dig", "bind9-dnsutils"),
        ("ssh", "openssh-client"),
        ("python3", "python3"),
    ],
};

const GUESTS: Group = Group {
    purpose: "for guests with other kernels",
    required: true,
    programs: &[
        ("qemu-system-x86_64", "qemu-system-x86"),
        ("modprobe", "kmod"),
        ("depmod", "kmod"),
        ("xz", "xz-utils"),
    ],
};

const ARM_GUESTS: Group = Group {
    purpose: "for guests with an ARM processor",
    required: true,
    programs: &[
        ("qemu-system-aarch64", "qemu-system-arm"),
        ("qemu-system-arm", "qemu-system-arm"),
    ],
};

const MODULES: Group = Group {
    purpose: "to build kernel modules",
    required: true,
    programs: &[("make", "make"), ("gcc", "gcc"), ("strip", "binutils")],
};

const PACKAGES: Group = Group {
    purpose: "to try packages",
    required: true,
    programs: &[
        ("debootstrap", "debootstrap"),
        ("dpkg-deb", "dpkg"),
        ("lintian", "lintian"),
        ("rpm", "rpm"),
        ("pacman", "pacman-package-manager"),
        ("bsdtar", "libarchive-tools"),
        ("busybox", "busybox"),
        ("skopeo", "skopeo"),
    ],
};

const HANDY: Group = Group {
    purpose: "handy to look around",
    required: false,
    programs: &[("tshark", "tshark"), ("iperf3", "iperf3")],
};

pub(super) fn parts() -> Vec<Part> {
    vec![
        part(&LABORATORY),
        part(&GUESTS),
        part(&PACKAGES),
        part(&HANDY),
    ]
}

pub(super) fn required_parts() -> Vec<Part> {
    vec![part(&LABORATORY)]
}

pub(super) fn vm_parts() -> Vec<Part> {
    vec![part(&GUESTS)]
}

pub(super) fn package_parts() -> Vec<Part> {
    vec![part(&PACKAGES)]
}

/// Not among [`parts`]: only a guest with an ARM processor needs them.
pub(super) fn arm_vm_parts() -> Vec<Part> {
    vec![part(&ARM_GUESTS)]
}

/// Not among [`parts`]: only a comparison with Jool needs them.
pub(super) fn module_parts() -> Vec<Part> {
    vec![part(&MODULES)]
}

/// The Debian packages of the programs that demo, tests and benchmarks run.
pub fn laboratory() -> Vec<&'static str> {
    let mut packages: Vec<_> = LABORATORY
        .programs
        .iter()
        .map(|(_, package)| *package)
        .collect();
    packages.dedup();
    packages
}

fn part(group: &'static Group) -> Part {
    let missing: Vec<Program> = group
        .programs
        .iter()
        .copied()
        .filter(|(name, _)| find(name).is_none())
        .collect();
    let shown = if missing.is_empty() {
        group.programs
    } else {
        &missing
    };
    let names: Vec<&str> = shown.iter().map(|(name, _)| *name).collect();
    let name = format!("programs {}: {}", group.purpose, names.join(", "));
    let mut packages: Vec<&'static str> = missing.iter().map(|(_, package)| *package).collect();
    packages.dedup();
    Part {
        name,
        present: missing.is_empty(),
        install: Box::new(move || match install_debian(&packages) {
            Err(error) if !group.required => {
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
        let part = part(&LABORATORY);
        let missing: Vec<_> = LABORATORY
            .programs
            .iter()
            .filter(|(name, _)| find(name).is_none())
            .map(|(name, _)| *name)
            .collect();
        assert_eq!(part.present, missing.is_empty(), "{missing:?}");
        assert!(missing.iter().all(|name| part.name.contains(name)));
    }
}

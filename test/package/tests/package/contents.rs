//! The contents of packages and archives.

use std::process::Command;

use xdptun_lab::command::run;
use xdptun_lab::scratch::Scratch;
use xdptun_test_package::{made, package};

/// Every file with its mode; directories have 0755.
const FILES: [(&str, &str); 51] = [
    ("-rw-r--r--", "./etc/xdptun/config.toml"),
    ("-rwxr-xr-x", "./usr/bin/xdptun"),
    ("-rw-r--r--", "./usr/lib/sysusers.d/xdptun.conf"),
    ("-rw-r--r--", "./usr/lib/tmpfiles.d/xdptun.conf"),
    ("-rw-r--r--", "./usr/lib/systemd/system/xdptun.service"),
    (
        "-rw-r--r--",
        "./usr/lib/systemd/system/xdptun.service.d/10-common.conf",
    ),
    ("-rw-r--r--", "./usr/lib/systemd/system/xdptun@.service"),
    (
        "-rw-r--r--",
        "./usr/lib/systemd/system/xdptun@.service.d/10-common.conf",
    ),
    (
        "-rw-r--r--",
        "./usr/share/bash-completion/completions/xdptun",
    ),
    ("-rw-r--r--", "./usr/share/doc/xdptun/architecture.md"),
    ("-rw-r--r--", "./usr/share/doc/xdptun/capture.md"),
    ("-rw-r--r--", "./usr/share/doc/xdptun/changelog.Debian.gz"),
    ("-rw-r--r--", "./usr/share/doc/xdptun/configuration.md"),
    ("-rw-r--r--", "./usr/share/doc/xdptun/copyright"),
    ("-rw-r--r--", "./usr/share/doc/xdptun/examples/eth0.env"),
    ("-rw-r--r--", "./usr/share/doc/xdptun/forward.md"),
    (
        "-rw-r--r--",
        "./usr/share/doc/xdptun/grafana-dashboard.json",
    ),
    ("-rw-r--r--", "./usr/share/doc/xdptun/json.md"),
    ("-rw-r--r--", "./usr/share/doc/xdptun/kernels.md"),
    ("-rw-r--r--", "./usr/share/doc/xdptun/limits.md"),
    ("-rw-r--r--", "./usr/share/doc/xdptun/nat.md"),
    ("-rw-r--r--", "./usr/share/doc/xdptun/nat64.md"),
    ("-rw-r--r--", "./usr/share/doc/xdptun/operating.md"),
    ("-rw-r--r--", "./usr/share/doc/xdptun/packages.md"),
    ("-rw-r--r--", "./usr/share/doc/xdptun/phantun.md"),
    ("-rw-r--r--", "./usr/share/doc/xdptun/policy.md"),
    ("-rw-r--r--", "./usr/share/doc/xdptun/security.md"),
    ("-rw-r--r--", "./usr/share/doc/xdptun/third-party.txt.gz"),
    ("-rw-r--r--", "./usr/share/doc/xdptun/troubleshooting.md"),
    ("-rw-r--r--", "./usr/share/doc/xdptun/veil.md"),
    (
        "-rw-r--r--",
        "./usr/share/fish/vendor_completions.d/xdptun.fish",
    ),
    ("-rw-r--r--", "./usr/share/zsh/vendor-completions/_xdptun"),
    ("-rw-r--r--", "./usr/share/man/man8/xdptun.8.gz"),
    ("-rw-r--r--", "./usr/share/man/man8/xdptun-attach.8.gz"),
    ("-rw-r--r--", "./usr/share/man/man8/xdptun-capture.8.gz"),
    ("-rw-r--r--", "./usr/share/man/man8/xdptun-check.8.gz"),
    ("-rw-r--r--", "./usr/share/man/man8/xdptun-detach.8.gz"),
    ("-rw-r--r--", "./usr/share/man/man8/xdptun-doctor.8.gz"),
    ("-rw-r--r--", "./usr/share/man/man8/xdptun-explain.8.gz"),
    ("-rw-r--r--", "./usr/share/man/man8/xdptun-flows.8.gz"),
    ("-rw-r--r--", "./usr/share/man/man8/xdptun-forward.8.gz"),
    ("-rw-r--r--", "./usr/share/man/man8/xdptun-nat.8.gz"),
    ("-rw-r--r--", "./usr/share/man/man8/xdptun-nat64.8.gz"),
    ("-rw-r--r--", "./usr/share/man/man8/xdptun-policy.8.gz"),
    ("-rw-r--r--", "./usr/share/man/man8/xdptun-reload.8.gz"),
    ("-rw-r--r--", "./usr/share/man/man8/xdptun-run.8.gz"),
    ("-rw-r--r--", "./usr/share/man/man8/xdptun-sessions.8.gz"),
    ("-rw-r--r--", "./usr/share/man/man8/xdptun-status.8.gz"),
    ("-rw-r--r--", "./usr/share/man/man8/xdptun-watch.8.gz"),
    ("d", "./etc/xdptun/"),
    ("d", "./usr/share/man/man8/"),
];

/// Debian's name of each processor, Rust's, and how an ELF header calls it
/// (`e_machine`).
const MACHINES: [(&str, &str, u16); 2] = [
    ("amd64", "x86_64-unknown-linux-musl", 62),
    ("arm64", "aarch64-unknown-linux-musl", 183),
];

/// Compares the mode, owner and path that `tar -tv` shows of each entry.
fn assert_listing(listing: &str, prefix: &str) {
    let entries: Vec<Vec<&str>> = listing
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    for entry in &entries {
        assert_eq!(entry[1], "root/root", "{entry:?}");
        assert!(
            ["-rw-r--r--", "-rwxr-xr-x", "drwxr-xr-x"].contains(&entry[0]),
            "{entry:?}"
        );
    }
    for (mode, path) in FILES {
        let path = path.replacen("./", prefix, 1);
        let found = entries
            .iter()
            .any(|entry| entry[0].starts_with(mode) && entry[5] == path);
        assert!(found, "no {mode} {path} in\n{listing}");
    }
}

/// Requires a small, static program for a processor: no `PT_INTERP`, which names the
/// loader of dynamic ones.
fn assert_static(elf: &[u8], machine: u16) {
    const PT_INTERP: u32 = 3;
    const MOST: usize = 5_000_000;
    assert!(elf.len() <= MOST, "{} bytes", elf.len());
    let number = |at: usize, length: usize| {
        let mut bytes = [0; 8];
        bytes[..length].copy_from_slice(&elf[at..at + length]);
        u64::from_le_bytes(bytes)
    };
    assert_eq!(elf[..4], *b"\x7fELF");
    assert_eq!(number(18, 2), u64::from(machine));
    let (table, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    for index in 0..count {
        let kind = number((table + index * size) as usize, 4);
        assert_ne!(kind, u64::from(PT_INTERP), "it needs a loader");
    }
}

#[test]
fn packages_hold_everything_and_belong_to_root() {
    for (machine, _, elf) in MACHINES {
        let package = package(machine).unwrap();
        let ask = |option: &str| run(Command::new("dpkg-deb").arg(option).arg(&package)).unwrap();
        assert_listing(&ask("--contents"), "./");
        let fields = ask("--field");
        let version = concat!("Version: ", env!("CARGO_PKG_VERSION"), "-1\n");
        for field in [
            "Package: xdptun\n",
            "Maintainer: xdptun maintainers\n",
            version,
            &format!("Architecture: {machine}\n"),
        ] {
            assert!(fields.contains(field), "no {field} in\n{fields}");
        }
        assert!(!fields.contains("Depends:"), "{fields}");
        let scratch = Scratch::new().unwrap();
        let mut unpack = Command::new("dpkg-deb");
        unpack
            .arg("--raw-extract")
            .arg(&package)
            .arg(scratch.path());
        run(&mut unpack).unwrap();
        let read = |path: &str| std::fs::read(scratch.path().join(path)).unwrap();
        assert_static(&read("usr/bin/xdptun"), elf);
        let notices = scratch
            .path()
            .join("usr/share/doc/xdptun/third-party.txt.gz");
        let notices = run(Command::new("gzip").args(["-dc"]).arg(notices)).unwrap();
        // Of the program, of the programs inside it, and of nothing else.
        for words in ["\ntokio v", "\naya-ebpf v", "Permission is hereby granted"] {
            assert!(notices.contains(words), "no {words} in\n{notices}");
        }
        assert!(!notices.contains("\nproptest v"), "{notices}");
        assert_eq!(read("DEBIAN/conffiles"), b"/etc/xdptun/config.toml\n");
    }
}

#[test]
fn archives_hold_the_same() {
    for (_, triple, elf) in MACHINES {
        let name = concat!("xdptun-", env!("CARGO_PKG_VERSION"));
        let archive = made(&format!("{name}-{triple}.tar.gz")).unwrap();
        let listing = run(Command::new("tar").arg("-tvzf").arg(&archive)).unwrap();
        assert_listing(&listing, &format!("{name}-{triple}/"));
        let scratch = Scratch::new().unwrap();
        let mut unpack = Command::new("tar");
        unpack
            .arg("-xzf")
            .arg(&archive)
            .arg("-C")
            .arg(scratch.path());
        run(unpack.arg("--strip-components=1")).unwrap();
        assert_static(
            &std::fs::read(scratch.path().join("usr/bin/xdptun")).unwrap(),
            elf,
        );
    }
}

//! The contents of packages and archives.

use std::process::Command;

use xdptun_lab::command::run;
use xdptun_lab::scratch::Scratch;
use xdptun_test_package::files::{self, DEBIAN, DOCUMENTS, EVERYWHERE, SYSTEMD};
use xdptun_test_package::{PROCESSORS, made, package};

/// How many bytes the program has at most.
const MOST: usize = 5_250_000;

/// What Debian's package and the archive hold.
const FILES: [&[files::File]; 4] = [&EVERYWHERE, &DOCUMENTS, &SYSTEMD, &DEBIAN];

#[test]
fn packages_hold_everything_and_belong_to_root() {
    for processor in PROCESSORS {
        let machine = processor.debian;
        let package = package(machine).unwrap();
        let ask = |option: &str| run(Command::new("dpkg-deb").arg(option).arg(&package)).unwrap();
        files::check(&ask("--contents"), "./", &FILES).unwrap();
        let fields = ask("--field");
        let version = concat!("Version: ", env!("CARGO_PKG_VERSION"), "-1\n");
        for field in [
            "Package: xdptun\n",
            "Maintainer: xdptun maintainers <",
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
        let program = read("usr/bin/xdptun");
        processor.check(&program).unwrap();
        assert!(program.len() <= MOST, "{} bytes", program.len());
        let unzip = |path: &str| {
            let mut gzip = Command::new("gzip");
            run(gzip.arg("-dc").arg(scratch.path().join(path))).unwrap()
        };
        let page = unzip("usr/share/man/man5/xdptun.toml.5.gz");
        for words in ["\n.TP\n\\fBkeepalive\\fR\n", "\ndefault: \\fB25\\fR\n"] {
            assert!(page.contains(words), "no {words} in\n{page}");
        }
        let notices = unzip("usr/share/doc/xdptun/third-party.txt.gz");
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
    for processor in PROCESSORS {
        let triple = processor.triple;
        let name = concat!("xdptun-", env!("CARGO_PKG_VERSION"));
        let archive = made(&format!("{name}-{triple}.tar.gz")).unwrap();
        let listing = run(Command::new("tar").arg("-tvzf").arg(&archive)).unwrap();
        files::check(&listing, &format!("{name}-{triple}/"), &FILES).unwrap();
        let scratch = Scratch::new().unwrap();
        let mut unpack = Command::new("tar");
        unpack
            .arg("-xzf")
            .arg(&archive)
            .arg("-C")
            .arg(scratch.path());
        run(unpack.arg("--strip-components=1")).unwrap();
        let program = std::fs::read(scratch.path().join("usr/bin/xdptun")).unwrap();
        processor.check(&program).unwrap();
    }
}

/// Debian's own checks find nothing but what `xdptun/package/debian/overrides` gives reasons for.
#[test]
fn the_package_follows_the_policy_of_debian() {
    for processor in PROCESSORS {
        let mut lintian = Command::new("lintian");
        lintian.args(["--allow-root", "--fail-on", "error,warning"]);
        run(lintian.arg(package(processor.debian).unwrap())).unwrap();
    }
}

//! The package for Arch Linux.

use std::path::PathBuf;
use std::process::Command;

use xdptun_lab::command::run;
use xdptun_lab::scratch::Scratch;
use xdptun_test_package::files::{self, DOCUMENTS, EVERYWHERE, LICENCES, OTHERS, SYSTEMD};
use xdptun_test_package::life::{self, Manager};
use xdptun_test_package::root::Root;
use xdptun_test_package::{Processor, made, with_all_formats};

fn package(processor: Processor) -> PathBuf {
    let name = concat!("xdptun-", env!("CARGO_PKG_VERSION"), "-1");
    made(&format!("{name}-{}.pkg.tar.zst", processor.name)).unwrap()
}

/// Only packages from this machine, which nobody has signed.
const SETTINGS: &str = "[options]\nArchitecture = auto\nLocalFileSigLevel = Never\n";

#[test]
fn it_holds_everything_and_belongs_to_root() {
    let expected: [&[files::File]; 5] = [&EVERYWHERE, &DOCUMENTS, &SYSTEMD, &OTHERS, &LICENCES];
    for processor in with_all_formats() {
        let package = package(processor);
        files::check(&files::listing(&package).unwrap(), "", &expected).unwrap();
        let said = files::file(&package, ".PKGINFO").unwrap();
        for line in [
            "pkgname = xdptun",
            concat!("pkgver = ", env!("CARGO_PKG_VERSION"), "-1"),
            &format!("arch = {}", processor.name),
            "license = MIT OR Apache-2.0",
            "backup = etc/xdptun/config.toml",
        ] {
            assert!(
                said.lines().any(|found| found == line),
                "no {line} in\n{said}"
            );
        }
        assert!(!said.contains("depend = "), "{said}");
        let scratch = Scratch::new().unwrap();
        files::unpack(&package, scratch.path()).unwrap();
        let program = std::fs::read(scratch.path().join("usr/bin/xdptun")).unwrap();
        processor.check(&program).unwrap();
    }
}

#[test]
fn it_comes_is_replaced_and_goes() {
    let package = package(Processor::own().unwrap());
    let scratch = Scratch::new().unwrap();
    let settings = scratch.path().join("pacman.conf");
    std::fs::write(&settings, SETTINGS).unwrap();
    let pacman = |root: &Root| {
        // Arch's pacman runs scripts by bash, Debian's by `sh`.
        let shell = root.inside("/usr/bin/sh");
        std::fs::remove_file(&shell)?;
        std::os::unix::fs::symlink("bash", shell)?;
        // It makes its own folders only below another root than `/`.
        std::fs::create_dir_all(root.inside("/var/lib/pacman"))?;
        std::fs::create_dir_all(root.inside("/var/cache/pacman/pkg"))?;
        let mut command = Command::new("pacman");
        command.arg("--noconfirm").arg("--config").arg(&settings);
        command.arg("--root").arg(root.path());
        anyhow::Ok(command)
    };
    life::check(&Manager {
        install: &|root| run(pacman(root)?.arg("--upgrade").arg(&package)),
        remove: &|root| run(pacman(root)?.args(["--remove", "xdptun"])),
        kept_as: "/etc/xdptun/config.toml.pacsave",
    })
    .unwrap();
}

//! The package for Fedora, openSUSE and others.

use std::path::PathBuf;
use std::process::Command;

use xdptun_lab::command::run;
use xdptun_lab::scratch::Scratch;
use xdptun_test_package::files::{self, DOCUMENTS, EVERYWHERE, LICENCES, OTHERS, SYSTEMD};
use xdptun_test_package::life::{self, Manager};
use xdptun_test_package::{Processor, made, with_all_formats};

fn package(processor: Processor) -> PathBuf {
    let name = concat!("xdptun-", env!("CARGO_PKG_VERSION"), "-1");
    made(&format!("{name}.{}.rpm", processor.name)).unwrap()
}

#[test]
fn it_holds_everything_and_belongs_to_root() {
    let expected: [&[files::File]; 5] = [&EVERYWHERE, &DOCUMENTS, &SYSTEMD, &OTHERS, &LICENCES];
    for processor in with_all_formats() {
        let package = package(processor);
        files::check(&files::listing(&package).unwrap(), "/", &expected).unwrap();
        let scratch = Scratch::new().unwrap();
        files::unpack(&package, scratch.path()).unwrap();
        let program = std::fs::read(scratch.path().join("usr/bin/xdptun")).unwrap();
        processor.check(&program).unwrap();
    }
}

#[test]
fn rpm_can_read_what_it_says_of_itself() {
    for processor in with_all_formats() {
        let package = package(processor);
        let ask =
            |arguments: &[&str]| run(Command::new("rpm").args(arguments).arg(&package)).unwrap();
        ask(&["--checksig", "--nosignature"]);
        let format = "%{NAME} %{VERSION}-%{RELEASE} %{ARCH}\n%{LICENSE}\n%{SUMMARY}\n%{PACKAGER}\n";
        let said = ask(&["--query", "--package", "--queryformat", format]);
        let expected = format!(
            "xdptun {}-1 {}\nMIT OR Apache-2.0\ncarries UDP through networks that pass only TCP\n\
             xdptun maintainers <",
            env!("CARGO_PKG_VERSION"),
            processor.name
        );
        assert!(said.starts_with(&expected), "{said}");
        // Both flags: a setting, and one that an upgrade does not replace.
        let flags = "[%{FILEFLAGS:fflags} %{FILENAMES}\n]";
        let flags = ask(&["--query", "--package", "--queryformat", flags]);
        let settings: Vec<&str> = flags
            .lines()
            .filter(|line| !line.starts_with(' '))
            .collect();
        assert_eq!(settings, ["cn /etc/xdptun/config.toml"]);
        // Only rpm's own marks of the format.
        let needs = ask(&["--query", "--package", "--requires"]);
        let others = needs.lines().find(|need| !need.starts_with("rpmlib("));
        assert_eq!(others, None);
    }
}

#[test]
fn it_comes_is_replaced_and_goes() {
    let package = package(Processor::own().unwrap());
    life::check(&Manager {
        install: &|root| {
            let mut rpm = Command::new("rpm");
            rpm.arg("--root").arg(root.path());
            run(rpm.args(["--upgrade", "--force"]).arg(&package))
        },
        remove: &|root| {
            let mut rpm = Command::new("rpm");
            run(rpm
                .arg("--root")
                .arg(root.path())
                .args(["--erase", "xdptun"]))
        },
        kept_as: "/etc/xdptun/config.toml.rpmsave",
    })
    .unwrap();
}

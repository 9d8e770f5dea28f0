//! The Debian system that packages are tried on.

use xdptun_lab::workspace;

use super::Part;
use crate::debian::{Apt, Arch, system};

/// OpenRC and its libraries: they start services on Alpine.
const OPENRC: [&str; 3] = ["openrc", "librc1", "libeinfo1"];

pub(super) fn parts() -> Vec<Part> {
    vec![
        Part {
            name: format!("a Debian system ({}) to try packages on", system::RELEASE),
            present: system::folder().is_dir(),
            install: Box::new(system::make),
        },
        openrc(),
    ]
}

/// For that system. Unpacked: it would take the place of systemd.
fn openrc() -> Part {
    let folder = workspace::root().join(".tools/openrc");
    Part {
        name: "OpenRC, which starts services on Alpine".into(),
        present: folder.is_dir(),
        install: Box::new(move || {
            let packages = OPENRC.map(|name| format!("{name}/{}", system::RELEASE));
            let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
            Apt::new(Arch::this()?).unpack(&packages, &folder, |_| Ok(()))
        }),
    }
}

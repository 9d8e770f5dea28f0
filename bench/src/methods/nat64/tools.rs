//! Programs of others, from packages of Debian that `cargo xtask bench nat64` unpacks.

use std::path::PathBuf;
use std::process::Command;

use xdptun_lab::workspace;

fn folder() -> PathBuf {
    workspace::root().join(".tools/nat64")
}

/// The program that asks for pages.
pub fn ab() -> PathBuf {
    folder().join("usr/bin/ab")
}

/// The NAT64 in user space.
pub fn tayga() -> PathBuf {
    folder().join("usr/sbin/tayga")
}

/// Why they cannot be used, if they cannot.
pub fn missing() -> Option<String> {
    let folder = folder();
    (!folder.is_dir()).then(|| {
        let path = folder.display();
        format!("{path}: no such folder; `cargo xtask bench nat64` unpacks Debian's packages")
    })
}

/// Lets `ab` use the libraries beside it.
pub fn with_libraries(command: &mut Command) -> &mut Command {
    let libraries = format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    command.env("LD_LIBRARY_PATH", folder().join(libraries))
}

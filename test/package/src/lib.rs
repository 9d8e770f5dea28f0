//! Code that the tests of packages share.
//!
//! | module | what it gives |
//! |---|---|
//! | [`apk`] | packages of apk |
//! | [`files`] | what packages hold |
//! | [`life`] | a package comes, is replaced and goes |
//! | [`processor`] | what packages are made for |
//! | [`shell`] | scripts for busybox |
//! | [`root`] | a Debian system to change at will |
//! | [`machine`] | the same, running |

pub mod apk;
pub mod files;
pub mod life;
pub mod machine;
pub mod processor;
pub mod root;
pub mod shell;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use xdptun_lab::workspace;

pub use processor::{PROCESSORS, Processor, with_all_formats};

/// How long anything may take that happens at once on an idle machine.
pub const LIMIT: Duration = Duration::from_secs(20);

/// A file that `cargo xtask package` made, by its name.
pub fn made(name: &str) -> Result<PathBuf> {
    let path = workspace::target_dir().join("package").join(name);
    ensure!(
        path.is_file(),
        "{}: no such file; `cargo xtask package` makes it",
        path.display()
    );
    Ok(path)
}

/// The package for this machine's processor.
pub fn own_package() -> Result<PathBuf> {
    package(Processor::own()?.debian)
}

/// The package for processors that Debian calls so.
pub fn package(machine: &str) -> Result<PathBuf> {
    made(&format!(
        "xdptun_{}-1_{machine}.deb",
        env!("CARGO_PKG_VERSION")
    ))
}

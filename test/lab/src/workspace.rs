//! Where the workspace keeps its tools and build products.

use std::path::PathBuf;

/// The root folder of the workspace this crate was built in.
pub fn root() -> PathBuf {
    let mut path = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    path.pop();
    path.pop();
    path
}

/// The build folder of cargo, `CARGO_TARGET_DIR` honoured.
pub fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// The kernel side of a function as a file, which `cargo xtask test datapath` and
/// `cargo xtask fuzz` build.
pub fn object(function: &str) -> PathBuf {
    target_dir().join(format!("release/{function}.o"))
}

/// A program that `cargo xtask setup` installs into the project's own folder.
pub fn tool(name: &str) -> PathBuf {
    root().join(".tools/bin").join(name)
}

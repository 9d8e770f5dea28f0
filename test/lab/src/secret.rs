//! Files with secrets, for `--secret`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Result;

/// Writes a secret that only its owner may read; returns the path as an argument.
pub fn write(directory: &Path, name: &str, secret: &str) -> Result<String> {
    let path = directory.join(name);
    fs::write(&path, secret)?;
    fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    Ok(path.to_string_lossy().into_owned())
}

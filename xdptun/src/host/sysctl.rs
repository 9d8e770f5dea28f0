//! Kernel parameters of this network namespace.

use std::fs;
use std::io;
use std::path::Path;

use crate::error::{Context as _, Result};

/// A number below `/proc/sys/net`; `None` if the kernel has no such parameter.
///
/// # Errors
///
/// If it cannot be read, or is no number.
pub fn number(name: &str) -> Result<Option<u64>> {
    let path = Path::new("/proc/sys/net").join(name);
    match fs::read_to_string(&path) {
        Ok(text) => {
            let number = text.trim().parse();
            let number = number.with_context(|| format!("{}: {text:?}", path.display()));
            number.map(Some)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

/// An interface within the name of a parameter, where sysctl(8) takes a dot for a separator.
#[must_use]
pub fn interface(name: &str) -> String {
    name.replace('.', "/")
}

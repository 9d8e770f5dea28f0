//! Temporary directories that do not survive an interrupted run.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::Builder;

use crate::cleanup::{Guard, guarded};

/// A directory that is removed with all it holds, on drop and on a signal.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    _guard: Guard,
}

impl Scratch {
    /// Makes a fresh directory under the system's temporary directory.
    pub fn new() -> Result<Self> {
        let (path, guard) = guarded(|| {
            let path = Builder::new()
                .prefix("xdptun-")
                .tempdir()
                .context("cannot make a temporary directory")?
                .keep();
            let undo = {
                let path = path.clone();
                move || {
                    if let Err(error) = std::fs::remove_dir_all(&path) {
                        eprintln!("{}: cannot remove: {error}", path.display());
                    }
                }
            };
            Ok((path, undo))
        })?;
        Ok(Self {
            path,
            _guard: guard,
        })
    }

    /// Where the directory is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vanishes_with_its_content() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_owned();
        std::fs::write(path.join("file"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }
}

//! Packages of apk, version 2: streams of gzip, the first of which tells about the package and the
//! second of which is its files.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use flate2::bufread::GzDecoder;
use sha2::{Digest as _, Sha256};

use crate::files;
use xdptun_lab::scratch::Scratch;

/// A package, unpacked.
#[derive(Debug)]
pub struct Apk {
    path: PathBuf,
    /// As bsdtar lists it.
    pub listing: String,
    unpacked: Scratch,
}

impl Apk {
    /// Reads and unpacks it.
    pub fn read(path: &Path) -> Result<Self> {
        let unpacked = Scratch::new()?;
        files::unpack(path, unpacked.path())?;
        let listing = files::listing(path)?;
        Ok(Self {
            path: path.to_owned(),
            listing,
            unpacked,
        })
    }

    /// Where its files are.
    pub fn folder(&self) -> &Path {
        self.unpacked.path()
    }

    /// One of its files, or what tells about it.
    pub fn file(&self, path: &str) -> Result<Vec<u8>> {
        fs::read(self.unpacked.path().join(path)).with_context(|| path.to_owned())
    }

    /// One that is text.
    pub fn text(&self, path: &str) -> Result<String> {
        Ok(String::from_utf8(self.file(path)?)?)
    }

    /// The names of its scripts.
    pub fn scripts(&self) -> BTreeSet<&str> {
        let paths = self
            .listing
            .lines()
            .filter_map(|line| line.split_whitespace().last());
        paths
            .filter(|path| path.starts_with('.') && *path != ".PKGINFO")
            .collect()
    }

    /// Requires what apk does: a name, a version, a processor, dependencies, and the digest of the
    /// files.
    pub fn check(&self, arch: &str, depends: &[&str]) -> Result<()> {
        let said = self.text(".PKGINFO")?;
        let value = |key: &str| -> Vec<&str> {
            let pairs = said.lines().filter_map(|line| line.split_once(" = "));
            pairs
                .filter(|(name, _)| *name == key)
                .map(|(_, value)| value)
                .collect()
        };
        let version = concat!(env!("CARGO_PKG_VERSION"), "-r1");
        let digest = self.digest()?;
        for (key, expected) in [
            ("pkgname", &["xdptun"][..]),
            ("pkgver", &[version]),
            ("arch", &[arch]),
            ("license", &["MIT OR Apache-2.0"]),
            (
                "pkgdesc",
                &["carries UDP through networks that pass only TCP"],
            ),
            ("depend", depends),
            ("datahash", &[&digest]),
        ] {
            ensure!(value(key) == expected, "{key} is not {expected:?}:\n{said}");
        }
        Ok(())
    }

    /// Of the second stream, as it is in the file.
    fn digest(&self) -> Result<String> {
        let data = fs::read(&self.path)?;
        let mut rest = &data[..];
        GzDecoder::new(&mut rest).read_to_end(&mut Vec::new())?;
        Ok(format!("{:x}", Sha256::digest(rest)))
    }
}

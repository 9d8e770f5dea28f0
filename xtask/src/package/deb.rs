//! The format of Debian packages (deb(5)).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use ar::{Builder, Header};

use super::archive::{Entry, tar_gz};
use super::contents::Contents;

/// What dpkg runs.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Below it dpkg leaves alone what the operator has changed.
const SETTINGS: &str = "etc/";

/// Makes a package of `contents`, with the control file and the scripts of
/// `debian`, and one time (seconds since 1970) for all.
pub fn build(
    contents: &Contents,
    debian: &Path,
    version: &str,
    machine: &str,
    time: u64,
) -> Result<Vec<u8>> {
    let read = |name: &str| {
        let path = debian.join(name);
        fs::read_to_string(&path).with_context(|| format!("{}: cannot read", path.display()))
    };
    let bytes: usize = contents.files().map(|(_, data)| data.len()).sum();
    let (mut control, mut settings, mut sums) = (String::new(), String::new(), String::new());
    for line in read("control")?.lines() {
        writeln!(control, "{line}")?;
        if line.starts_with("Package:") {
            writeln!(control, "Version: {version}\nArchitecture: {machine}")?;
            writeln!(control, "Installed-Size: {}", bytes.div_ceil(1024))?;
            writeln!(control, "Maintainer: {}", env!("CARGO_PKG_AUTHORS"))?;
        }
    }
    for (path, data) in contents.files() {
        writeln!(sums, "{:x}  {path}", md5::compute(data))?;
        if path.starts_with(SETTINGS) {
            writeln!(settings, "/{path}")?;
        }
    }
    let texts = [
        ("control", control),
        ("conffiles", settings),
        ("md5sums", sums),
    ];
    let mut about: BTreeMap<String, Entry> = texts
        .into_iter()
        .map(|(name, text)| (name.to_owned(), Entry::file(text.into_bytes())))
        .collect();
    for script in SCRIPTS {
        let entry = Entry::program(read(script)?.into_bytes());
        about.insert(script.to_owned(), entry);
    }
    let mut package = Builder::new(Vec::new());
    for (name, data) in [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", tar_gz(&about, "./", time)?),
        ("data.tar.gz", tar_gz(&contents.entries(), "./", time)?),
    ] {
        let mut header = Header::new(name.into(), data.len() as u64);
        header.set_mode(0o100_644);
        header.set_mtime(time);
        package.append(&header, &data[..])?;
    }
    Ok(package.into_inner()?)
}

//! The format of Debian packages (deb(5)).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use ar::{Builder, Header};

use super::archive::{Entry, tar_gz};
use super::contents::Contents;

/// The scripts that dpkg runs.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// The folder of files that dpkg keeps if the operator has changed them.
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
    let mut control = BTreeMap::new();
    let texts = [
        ("control", control_file(contents, debian, version, machine)?),
        ("conffiles", settings(contents)?),
        ("md5sums", sums(contents)?),
    ];
    for (name, text) in texts {
        control.insert(name.to_owned(), Entry::file(text.into_bytes()));
    }
    for script in SCRIPTS {
        let entry = Entry::program(read(debian, script)?.into_bytes());
        control.insert(script.to_owned(), entry);
    }
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", tar_gz(&control, "./", time)?),
        ("data.tar.gz", tar_gz(&contents.entries(), "./", time)?),
    ];
    let mut package = Builder::new(Vec::new());
    for (name, data) in members {
        let mut header = Header::new(name.into(), data.len() as u64);
        header.set_mode(0o100_644);
        header.set_mtime(time);
        package.append(&header, &data[..])?;
    }
    Ok(package.into_inner()?)
}

/// The control file of `debian` with the fields that depend on the build.
fn control_file(
    contents: &Contents,
    debian: &Path,
    version: &str,
    machine: &str,
) -> Result<String> {
    let bytes: usize = contents.files().map(|(_, data)| data.len()).sum();
    let mut control = String::new();
    for line in read(debian, "control")?.lines() {
        writeln!(control, "{line}")?;
        if line.starts_with("Package:") {
            writeln!(control, "Version: {version}\nArchitecture: {machine}")?;
            writeln!(control, "Installed-Size: {}", bytes.div_ceil(1024))?;
            writeln!(control, "Maintainer: {}", env!("CARGO_PKG_AUTHORS"))?;
        }
    }
    Ok(control)
}

/// The list of files that the operator may change.
fn settings(contents: &Contents) -> Result<String> {
    let mut settings = String::new();
    for (path, _) in contents.files() {
        if path.starts_with(SETTINGS) {
            writeln!(settings, "/{path}")?;
        }
    }
    Ok(settings)
}

/// The MD5 sums of all files, as `md5sum` prints them.
fn sums(contents: &Contents) -> Result<String> {
    let mut sums = String::new();
    for (path, data) in contents.files() {
        writeln!(sums, "{:x}  {path}", md5::compute(data))?;
    }
    Ok(sums)
}

fn read(debian: &Path, name: &str) -> Result<String> {
    let path = debian.join(name);
    fs::read_to_string(&path).with_context(|| format!("{}: cannot read", path.display()))
}

//! The format of Debian packages (deb(5)).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;
use ar::{Builder, Header};

use super::about::{About, NAME, PRIORITY, SECTION, SUMMARY, TEXT};
use super::archive::{Entry, tar_gz};
use super::contents::Contents;
use super::scripts::Scripts;

/// Makes a package, with one time (seconds since 1970) for all.
pub fn build(
    contents: &Contents,
    scripts: &Scripts,
    about: &About,
    machine: &str,
    time: u64,
) -> Result<Vec<u8>> {
    let mut control = BTreeMap::new();
    let texts = [
        ("control", control_file(contents, about, machine)?),
        ("conffiles", settings(contents)?),
        ("md5sums", sums(contents)?),
    ];
    for (name, text) in texts {
        control.insert(name.to_owned(), Entry::file(text.into_bytes()));
    }
    let scripts = [
        ("postinst", &scripts.after_install),
        ("prerm", &scripts.before_remove),
        ("postrm", &scripts.after_remove),
    ];
    for (name, text) in scripts {
        if let Some(text) = text {
            let entry = Entry::program(text.clone().into_bytes());
            control.insert(name.to_owned(), entry);
        }
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

fn control_file(contents: &Contents, about: &About, machine: &str) -> Result<String> {
    let About {
        version, release, ..
    } = about;
    let bytes: usize = contents.files().map(|(_, data)| data.len()).sum();
    let mut control = format!("Package: {NAME}\nVersion: {version}-{release}\n");
    writeln!(control, "Architecture: {machine}")?;
    writeln!(control, "Installed-Size: {}", bytes.div_ceil(1024))?;
    writeln!(control, "Maintainer: {}", about.maintainer)?;
    if let Some(homepage) = &about.homepage {
        writeln!(control, "Homepage: {homepage}")?;
    }
    writeln!(control, "Section: {SECTION}\nPriority: {PRIORITY}")?;
    writeln!(control, "Suggests: wireguard-tools")?;
    writeln!(control, "Description: {SUMMARY}")?;
    for line in TEXT.lines() {
        writeln!(control, " {line}")?;
    }
    Ok(control)
}

/// The list of files that the operator may change.
fn settings(contents: &Contents) -> Result<String> {
    let mut settings = String::new();
    for path in contents.settings() {
        writeln!(settings, "/{path}")?;
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

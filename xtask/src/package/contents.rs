//! The files of a package, and where they go on a host.

use std::collections::BTreeMap;
use std::fs::{self, DirEntry};
use std::io;
use std::path::Path;

use anyhow::{Context, Result};

use super::archive::{Entry, gzip};

/// The files by their path without the leading `/`.
#[derive(Debug, Default)]
pub struct Contents {
    files: BTreeMap<String, Entry>,
}

/// Where systemd looks for units of packages.
const UNITS: &str = "usr/lib/systemd/system";
const DOCUMENTATION: &str = "usr/share/doc/xdptun";

impl Contents {
    /// Collects the binary, the files of `sources` and `docs`, the generated ones of
    /// `manual`, and the licences of the linked crates.
    pub fn collect(
        sources: &Path,
        docs: &Path,
        binary: &Path,
        manual: &Path,
        notices: &str,
    ) -> Result<Self> {
        let mut contents = Self::default();
        contents.add("usr/bin/xdptun", Entry::program(read(binary)?));
        let copies = [
            ("config.toml", "etc/xdptun/config.toml".to_owned()),
            ("xdptun.service", format!("{UNITS}/xdptun.service")),
            ("xdptun@.service", format!("{UNITS}/xdptun@.service")),
            // Settings that both units share.
            (
                "common.conf",
                format!("{UNITS}/xdptun.service.d/10-common.conf"),
            ),
            (
                "common.conf",
                format!("{UNITS}/xdptun@.service.d/10-common.conf"),
            ),
            ("sysusers.conf", "usr/lib/sysusers.d/xdptun.conf".to_owned()),
            ("tmpfiles.conf", "usr/lib/tmpfiles.d/xdptun.conf".to_owned()),
            ("eth0.env", format!("{DOCUMENTATION}/examples/eth0.env")),
            ("debian/copyright", format!("{DOCUMENTATION}/copyright")),
        ];
        for (source, path) in copies {
            contents.add(&path, Entry::file(read(&sources.join(source))?));
        }
        let changelog = gzip(&read(&sources.join("debian/changelog"))?)?;
        let path = format!("{DOCUMENTATION}/changelog.Debian.gz");
        contents.add(&path, Entry::file(changelog));
        let path = format!("{DOCUMENTATION}/third-party.txt.gz");
        contents.add(&path, Entry::file(gzip(notices.as_bytes())?));
        for (name, data) in read_all(docs)? {
            contents.add(&format!("{DOCUMENTATION}/{name}"), Entry::file(data));
        }
        for (name, data) in read_all(manual)? {
            if name.ends_with(".8") {
                let path = format!("usr/share/man/man8/{name}.gz");
                contents.add(&path, Entry::file(gzip(&data)?));
            } else {
                let path = completion(&name).with_context(|| format!("{name}: what is it?"))?;
                contents.add(path, Entry::file(data));
            }
        }
        Ok(contents)
    }

    fn add(&mut self, path: &str, entry: Entry) {
        self.files.insert(path.to_owned(), entry);
    }

    /// The files by path.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let data = |(path, entry)| -> Option<(&str, &[u8])> {
            let (path, entry): (&String, &Entry) = (path, entry);
            Some((path.as_str(), entry.data()?))
        };
        self.files.iter().filter_map(data)
    }

    /// The files and every directory above one, which comes first.
    pub fn entries(&self) -> BTreeMap<String, Entry> {
        let mut entries = self.files.clone();
        for path in self.files.keys() {
            for (end, _) in path.match_indices('/') {
                entries.insert(path[..=end].to_owned(), Entry::Directory);
            }
        }
        entries
    }
}

/// Where Debian's shells look for completions of packages.
fn completion(name: &str) -> Option<&'static str> {
    match name {
        "xdptun.bash" => Some("usr/share/bash-completion/completions/xdptun"),
        "_xdptun" => Some("usr/share/zsh/vendor-completions/_xdptun"),
        "xdptun.fish" => Some("usr/share/fish/vendor_completions.d/xdptun.fish"),
        _ => None,
    }
}

/// The files of a directory by their names.
fn read_all(directory: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let files =
        fs::read_dir(directory).with_context(|| format!("{}: cannot read", directory.display()))?;
    let read = |file: io::Result<DirEntry>| {
        let file = file?;
        let name = file.file_name().into_string().ok();
        let name = name.with_context(|| format!("{}: its name", file.path().display()))?;
        Ok((name, read(&file.path())?))
    };
    files.map(read).collect()
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("{}: cannot read", path.display()))
}

//! The files of a package, and where they go on a host.

use std::collections::BTreeMap;
use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::archive::{Entry, gzip};
use super::system::{LICENCES, System};

/// The folders of files that a package manager keeps if the operator has changed them.
const SETTINGS: [&str; 2] = ["etc/xdptun/", "etc/config/"];

const DOCUMENTATION: &str = "usr/share/doc/xdptun";

/// What packages are made of.
#[derive(Debug, Clone, Copy)]
pub struct Sources<'a> {
    /// The tree.
    pub root: &'a Path,
    /// The generated man pages and completions.
    pub manual: &'a Path,
    /// The program.
    pub binary: &'a Path,
    /// The licences of the crates in it.
    pub notices: &'a str,
}

impl Sources<'_> {
    /// The folder of the files that only packages need.
    pub fn package(&self) -> PathBuf {
        self.root.join("xdptun/package")
    }
}

/// The files by their path without the leading `/`.
#[derive(Debug, Default)]
pub struct Contents {
    files: BTreeMap<String, Entry>,
}

impl Contents {
    /// Collects what a package for a system holds.
    pub fn collect(sources: &Sources<'_>, system: System) -> Result<Self> {
        let mut contents = Self::default();
        contents.add("usr/bin/xdptun", Entry::program(read(sources.binary)?));
        let package = sources.package();
        for &(source, path, mode) in system.service_files() {
            let data = read(&package.join(source))?;
            contents.add(path, Entry::File { mode, data });
        }
        contents.add_licences(sources, system)?;
        if system.has_room() {
            for (name, data) in read_all(&sources.root.join("docs"))? {
                contents.add(&format!("{DOCUMENTATION}/{name}"), Entry::file(data));
            }
            contents.add_manual(sources.manual, system)?;
        }
        Ok(contents)
    }

    fn add_licences(&mut self, sources: &Sources<'_>, system: System) -> Result<()> {
        let folder = if system == System::Debian {
            let debian = sources.package().join("debian");
            let copyright = Entry::file(read(&debian.join("copyright"))?);
            self.add(&format!("{DOCUMENTATION}/copyright"), copyright);
            let overrides = Entry::file(read(&debian.join("overrides"))?);
            self.add("usr/share/lintian/overrides/xdptun", overrides);
            let changelog = Entry::file(gzip(&read(&debian.join("changelog"))?)?);
            self.add(&format!("{DOCUMENTATION}/changelog.Debian.gz"), changelog);
            DOCUMENTATION
        } else {
            for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
                let licence = Entry::file(read(&sources.root.join(name))?);
                self.add(&format!("{LICENCES}/{name}"), licence);
            }
            LICENCES
        };
        let notices = Entry::file(gzip(sources.notices.as_bytes())?);
        self.add(&format!("{folder}/third-party.txt.gz"), notices);
        Ok(())
    }

    fn add_manual(&mut self, manual: &Path, system: System) -> Result<()> {
        for (name, data) in read_all(manual)? {
            let section = ["5", "8"].into_iter();
            let mut section = section.filter(|section| name.ends_with(&format!(".{section}")));
            if let Some(section) = section.next() {
                let path = format!("usr/share/man/man{section}/{name}.gz");
                self.add(&path, Entry::file(gzip(&data)?));
            } else {
                let path = system.completion(&name);
                let path = path.with_context(|| format!("{name}: what is it?"))?;
                self.add(path, Entry::file(data));
            }
        }
        Ok(())
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

    /// The paths of the files that the operator may change.
    pub fn settings(&self) -> impl Iterator<Item = &str> {
        self.files
            .keys()
            .map(String::as_str)
            .filter(|path| is_setting(path))
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

/// Whether the operator may change a file.
pub fn is_setting(path: &str) -> bool {
    SETTINGS.iter().any(|folder| path.starts_with(folder))
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

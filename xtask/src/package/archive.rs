//! Archives whose bytes depend on nothing but their content.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::Result;
use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

/// One entry of an archive.
#[derive(Debug, Clone)]
pub enum Entry {
    /// A directory; its name ends with `/`.
    Directory,
    /// A file.
    File {
        /// Its permissions.
        mode: u32,
        /// Its content.
        data: Vec<u8>,
    },
}

impl Entry {
    /// A file that everybody may read.
    pub fn file(data: Vec<u8>) -> Self {
        Self::File { mode: 0o644, data }
    }

    /// A file that everybody may run.
    pub fn program(data: Vec<u8>) -> Self {
        Self::File { mode: 0o755, data }
    }

    /// The content of a file.
    pub fn data(&self) -> Option<&[u8]> {
        match self {
            Self::Directory => None,
            Self::File { data, .. } => Some(data),
        }
    }
}

/// Packs entries as [`tar`] and compresses them.
pub fn tar_gz(entries: &BTreeMap<String, Entry>, prefix: &str, time: u64) -> Result<Vec<u8>> {
    gzip(&tar(entries, prefix, time)?)
}

/// Packs entries in order below `prefix`, if there is one, with one time (seconds since 1970) and
/// root as the owner of all.
pub fn tar(entries: &BTreeMap<String, Entry>, prefix: &str, time: u64) -> Result<Vec<u8>> {
    let mut tar = Builder::new(Vec::new());
    let top = (!prefix.is_empty()).then(|| (prefix.to_owned(), &Entry::Directory));
    let entries = entries
        .iter()
        .map(|(path, entry)| (format!("{prefix}{path}"), entry));
    for (path, entry) in top.into_iter().chain(entries) {
        let mut header = Header::new_gnu();
        header.set_mtime(time);
        header.set_uid(0);
        header.set_gid(0);
        header.set_username("root")?;
        header.set_groupname("root")?;
        let (kind, mode) = match entry {
            Entry::Directory => (EntryType::Directory, 0o755),
            Entry::File { mode, .. } => (EntryType::Regular, *mode),
        };
        header.set_entry_type(kind);
        header.set_mode(mode);
        let data = entry.data().unwrap_or_default();
        header.set_size(data.len() as u64);
        // Debian's names begin with `./`, which `append_data` would cut off.
        let field = &mut header.as_old_mut().name;
        anyhow::ensure!(path.len() < field.len(), "{path}: too long a name");
        field[..path.len()].copy_from_slice(path.as_bytes());
        header.set_cksum();
        tar.append(&header, data)?;
    }
    Ok(tar.into_inner()?)
}

/// Compresses without a name and a time, which are the archive's.
pub fn gzip(data: &[u8]) -> Result<Vec<u8>> {
    let mut gzip = GzBuilder::new().write(Vec::new(), Compression::best());
    gzip.write_all(data)?;
    Ok(gzip.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn an_archive_holds_what_it_was_given_and_nothing_of_the_machine() {
        let entries = BTreeMap::from([
            ("usr/".to_owned(), Entry::Directory),
            ("usr/a".to_owned(), Entry::program(b"content".to_vec())),
        ]);
        let packed = tar_gz(&entries, "./", 1_700_000_000).unwrap();
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(&packed[..]));
        let mut found = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut data = String::new();
            entry.read_to_string(&mut data).unwrap();
            let header = entry.header();
            assert_eq!(header.mtime().unwrap(), 1_700_000_000);
            assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
            assert_eq!(header.mode().unwrap(), 0o755);
            let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
            found.push((path, data));
        }
        let expected = [("./", ""), ("./usr/", ""), ("./usr/a", "content")];
        assert_eq!(found, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
        assert_eq!(packed, tar_gz(&entries, "./", 1_700_000_000).unwrap());
    }
}

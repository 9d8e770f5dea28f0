//! The files of secrets.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::value::SeqAccessDeserializer;
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use xdptun_common::tunnel::proof::MAX_KEYS;

use crate::error::{Error, bail};

/// One file or a list. This host proves the secret of the first to its peers; those of all
/// files admit callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secrets(Vec<PathBuf>);

impl Secrets {
    /// The files.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(PathBuf::as_path)
    }

    /// Makes relative paths those of files in a directory.
    pub fn in_directory(&mut self, directory: &Path) {
        for file in &mut self.0 {
            *file = directory.join(&file);
        }
    }
}

impl TryFrom<Vec<PathBuf>> for Secrets {
    type Error = Error;

    fn try_from(files: Vec<PathBuf>) -> Result<Self, Error> {
        let mut all = BTreeSet::new();
        if let Some(twice) = files.iter().find(|file| !all.insert(*file)) {
            bail!(
                Invalid,
                "{}: the same secret twice; name it once",
                twice.display()
            );
        }
        match files.len() {
            0 => bail!(
                Invalid,
                "no file with a secret; remove the key `secret` instead"
            ),
            1..=MAX_KEYS => Ok(Self(files)),
            more => bail!(
                Invalid,
                "{more} secrets are too many, {MAX_KEYS} are allowed at once; remove those that \
                 no peer uses any more"
            ),
        }
    }
}

impl<'de> Deserialize<'de> for Secrets {
    fn deserialize<D: Deserializer<'de>>(file: D) -> Result<Self, D::Error> {
        struct OneOrSome;

        impl<'de> Visitor<'de> for OneOrSome {
            type Value = Secrets;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a file like \"/etc/xdptun/secret\" or a list of files")
            }

            fn visit_str<E: de::Error>(self, file: &str) -> Result<Secrets, E> {
                vec![file.into()].try_into().map_err(E::custom)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, files: A) -> Result<Secrets, A::Error> {
                let files: Vec<PathBuf> = Vec::deserialize(SeqAccessDeserializer::new(files))?;
                files.try_into().map_err(de::Error::custom)
            }
        }

        file.deserialize_any(OneOrSome)
    }
}

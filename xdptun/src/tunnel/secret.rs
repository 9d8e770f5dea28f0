//! The secrets that hosts share.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::unistd::Group;
use sha2::{Digest as _, Sha256};
use tracing::warn;
use xdptun_common::tunnel::proof::{KeySet, MAX_KEY_SETS, ProofKey};

use crate::config::{InterfaceConfig, Peer, Secrets};
use crate::error::{Context as _, Error, Kind, Result, bail};
use crate::tunnel::keys::too_many;

/// The user, and the group, that the service of the packages runs as.
const USER: &str = "xdptun";
/// The shortest secret, in bytes. An attacker who records a handshake can try shorter ones
/// until one fits.
const MIN_LEN: usize = 16;
/// The longest secret, in bytes. A longer file is probably not a secret.
const MAX_LEN: u64 = 4096;

/// The keys of an interface with a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceKeys {
    /// The keys of the interface itself.
    pub everyone: KeySet,
    /// The keys of its peers, if one of them has a secret of its own.
    pub peers: Vec<(Peer, KeySet)>,
}

/// Reads all secrets of an interface; `None` if it has none.
///
/// # Errors
///
/// [`Kind::Secret`] if a file cannot be read or is no secret, or if a secret is in two files
/// of a list; [`Kind::Invalid`] if there are too many.
pub fn read_all(config: &InterfaceConfig) -> Result<Option<InterfaceKeys>> {
    let mut files = Files::default();
    let Some(secret) = &config.secret else {
        return Ok(None);
    };
    let everyone = files.set(secret)?;
    let mut peers = Vec::new();
    if config.peers.iter().any(|one| one.secret.is_some()) {
        for one in &config.peers {
            let own = one.secret.as_ref().map(|own| files.set(own));
            let own = own
                .transpose()
                .with_context(|| format!("peer {}", one.peer))?;
            peers.push((one.peer.clone(), own.unwrap_or(everyone)));
        }
    }
    let mut sets = vec![everyone];
    for (_, set) in &peers {
        if !sets.contains(set) {
            sets.push(*set);
        }
    }
    if sets.len() > MAX_KEY_SETS as usize {
        return Err(Error::new(Kind::Invalid, too_many(sets.len())));
    }
    Ok(Some(InterfaceKeys { everyone, peers }))
}

/// Files that were read, each once.
#[derive(Default)]
struct Files(BTreeMap<PathBuf, ProofKey>);

impl Files {
    fn set(&mut self, secrets: &Secrets) -> Result<KeySet> {
        let mut keys: Vec<ProofKey> = Vec::new();
        for file in secrets.files() {
            let key = match self.0.get(file) {
                Some(key) => *key,
                None => read(file)?,
            };
            self.0.insert(file.to_owned(), key);
            let mut others = secrets.files().zip(&keys);
            if let Some((other, _)) = others.find(|(_, other)| **other == key) {
                bail!(
                    Secret,
                    "{} and {} hold the same secret; leave one of them out",
                    other.display(),
                    file.display()
                );
            }
            keys.push(key);
        }
        KeySet::new(&keys)
            .ok_or_else(|| Error::new(Kind::Secret, "no file with a secret, or too many"))
    }
}

/// Reads the key of the proofs from a file: any text or bytes; white space at
/// either end does not count, so that an editor's last line break changes nothing.
///
/// # Errors
///
/// If the file cannot be read, is too short, or too long.
fn read(path: &Path) -> Result<ProofKey> {
    let name = path.display();
    let unreadable = |error: io::Error| {
        let why = format!("cannot read the secret {name}");
        Error::caused_by(Kind::Secret, error).context(why)
    };
    let file = File::open(path).map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied => {
            let why = format!(
                "cannot read the secret {name}: {error}; `chgrp {USER} {name}` and \
                 `chmod 640 {name}` let the service read it"
            );
            Error::new(Kind::Secret, why)
        }
        _ => unreadable(error),
    })?;
    let metadata = file.metadata().map_err(unreadable)?;
    let others = match Group::from_name(USER) {
        Ok(Some(group)) if group.gid.as_raw() == metadata.gid() => 0o007,
        _ => 0o077,
    };
    if metadata.permissions().mode() & others != 0 {
        warn!("{name}: other users may read this secret; `chmod 600 {name}`");
    }
    let mut bytes = Vec::new();
    file.take(MAX_LEN + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() as u64 > MAX_LEN {
        bail!(
            Secret,
            "{name}: more than {MAX_LEN} bytes are no secret; `wg genkey` makes one"
        );
    }
    let secret = bytes.trim_ascii();
    if secret.len() < MIN_LEN {
        bail!(
            Secret,
            "{name}: a secret of {} bytes can be guessed, {MIN_LEN} bytes are needed; `wg genkey` makes one",
            secret.len()
        );
    }
    Ok(derive(secret))
}

fn derive(secret: &[u8]) -> ProofKey {
    let mut hash = Sha256::new();
    // Derived, so that other uses of the secret (WireGuard) have another key.
    hash.update(b"xdptun proof key 1\0");
    hash.update(secret);
    let digest: [u8; 32] = hash.finalize().into();
    let (words, _) = digest.as_chunks::<8>();
    ProofKey([0, 1].map(|word| u64::from_le_bytes(words[word])))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Both hosts must derive the same key, on any byte order, in this version and the
    /// next.
    #[test]
    fn the_key_is_the_hash_of_the_secret() {
        let by_hand = Sha256::digest(b"xdptun proof key 1\0correct horse battery");
        let ProofKey([first, second]) = derive(b"correct horse battery");
        let bytes = [first.to_le_bytes(), second.to_le_bytes()].concat();
        assert_eq!(bytes, by_hand[..16]);
    }

    #[test]
    fn white_space_at_the_ends_does_not_count() {
        let directory = std::env::temp_dir().join(format!("xdptun-secret-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("secret");
        let read_text = |text: &str| {
            fs::write(&path, text).unwrap();
            read(&path)
        };
        let key = read_text("correct horse battery").unwrap();
        assert_eq!(read_text("  correct horse battery\r\n").unwrap(), key);
        assert_ne!(read_text("correct horse batterY").unwrap(), key);
        for (text, complaint) in [("\n", "0 bytes"), ("fifteen bytes..\n", "15 bytes")] {
            let error = format!("{:#}", read_text(text).unwrap_err());
            assert!(error.contains(complaint), "{error}");
        }
        let error = read_text(&"x".repeat(4097)).unwrap_err();
        assert!(format!("{error:#}").contains("more than 4096"), "{error:#}");
        let copy = directory.join("copy");
        fs::write(&path, "correct horse battery").unwrap();
        fs::copy(&path, &copy).unwrap();
        let secrets = Secrets::try_from(vec![path.clone(), copy]).unwrap();
        let error = Files::default().set(&secrets).unwrap_err().to_string();
        assert!(
            error.ends_with("hold the same secret; leave one of them out"),
            "{error}"
        );
        fs::remove_dir_all(&directory).unwrap();
        let error = read(&path).unwrap_err();
        assert!(format!("{error:#}").contains("No such file"), "{error:#}");
    }
}

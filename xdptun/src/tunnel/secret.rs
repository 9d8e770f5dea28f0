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
use xdptun_common::tunnel::veil::VeilKey;

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
    let mut files = Files::new(config.veil.is_some());
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
struct Files {
    keys: BTreeMap<PathBuf, KeyPair>,
    /// Whether payloads are veiled.
    veils: bool,
}

/// What is derived from a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KeyPair {
    proof: ProofKey,
    veil: VeilKey,
}

impl Files {
    const fn new(veils: bool) -> Self {
        Self {
            keys: BTreeMap::new(),
            veils,
        }
    }

    fn set(&mut self, secrets: &Secrets) -> Result<KeySet> {
        let mut keys: Vec<KeyPair> = Vec::new();
        for file in secrets.files() {
            let key = match self.keys.get(file) {
                Some(key) => *key,
                None => read(file, self.veils)?,
            };
            self.keys.insert(file.to_owned(), key);
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
        let proofs: Vec<ProofKey> = keys.iter().map(|key| key.proof).collect();
        // A veil has one secret.
        let veil = keys.first().map(|key| key.veil).unwrap_or_default();
        KeySet::new(&proofs)
            .map(|set| set.with_veil(veil))
            .ok_or_else(|| Error::new(Kind::Secret, "no file with a secret, or too many"))
    }
}

/// Reads the keys from a file: any text or bytes; white space at
/// either end does not count, so that an editor's last line break changes nothing.
///
/// # Errors
///
/// If the file cannot be read, is too short, or too long.
fn read(path: &Path, veils: bool) -> Result<KeyPair> {
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
    // Neither a pipe nor `/dev/null` wants other permissions.
    if metadata.is_file() && metadata.permissions().mode() & others != 0 {
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
    Ok(KeyPair::of(secret, veils))
}

impl KeyPair {
    /// The keys of a secret. Hosts with a veil prove another key, so that one with and one without
    /// refuse each other instead of delivering noise.
    fn of(secret: &[u8], veils: bool) -> Self {
        if !veils {
            return Self {
                proof: ProofKey(derive(b"xdptun proof key 1\0", secret)),
                veil: VeilKey::default(),
            };
        }
        Self {
            proof: ProofKey(derive(b"xdptun veiled proof key 1\0", secret)),
            veil: VeilKey(derive(b"xdptun veil key 1\0", secret)),
        }
    }
}

/// A key for one purpose: another use of the same secret (WireGuard's, for example) has another key.
fn derive(purpose: &[u8], secret: &[u8]) -> [u64; 2] {
    let mut hash = Sha256::new();
    hash.update(purpose);
    hash.update(secret);
    let digest: [u8; 32] = hash.finalize().into();
    let (words, _) = digest.as_chunks::<8>();
    [0, 1].map(|word| u64::from_le_bytes(words[word]))
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
        let plain = KeyPair::of(b"correct horse battery", false);
        assert_eq!(bytes(plain.proof.0), by_hand[..16]);
        assert_eq!(plain.veil, VeilKey::default());
        let veiled = KeyPair::of(b"correct horse battery", true);
        let by_hand = Sha256::digest(b"xdptun veiled proof key 1\0correct horse battery");
        assert_eq!(bytes(veiled.proof.0), by_hand[..16]);
        let by_hand = Sha256::digest(b"xdptun veil key 1\0correct horse battery");
        assert_eq!(bytes(veiled.veil.0), by_hand[..16]);
    }

    fn bytes(key: [u64; 2]) -> Vec<u8> {
        key.map(u64::to_le_bytes).concat()
    }

    #[test]
    fn white_space_at_the_ends_does_not_count() {
        let directory = std::env::temp_dir().join(format!("xdptun-secret-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("secret");
        let read_text = |text: &str| {
            fs::write(&path, text).unwrap();
            read(&path, false)
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
        let error = Files::new(false).set(&secrets).unwrap_err().to_string();
        assert!(
            error.ends_with("hold the same secret; leave one of them out"),
            "{error}"
        );
        fs::remove_dir_all(&directory).unwrap();
        let error = read(&path, false).unwrap_err();
        assert!(format!("{error:#}").contains("No such file"), "{error:#}");
    }
}

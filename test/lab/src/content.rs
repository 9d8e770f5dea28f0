//! Files to download: large, the same in every run, and known by their digest.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

const MIB: usize = 1 << 20;

/// The content of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filling {
    /// Zeros, as in the reference measurement.
    Zeros,
    /// Pseudo-random bytes, the same in every run: a segment that is missing,
    /// doubled or at the wrong place changes the digest.
    Pattern,
}

/// Writes a file of `mib` MiB and returns its SHA-256 in hexadecimal.
pub fn write(path: &Path, mib: usize, filling: Filling) -> Result<String> {
    let describe = || format!("{}: cannot write", path.display());
    let mut file = BufWriter::new(File::create(path).with_context(describe)?);
    let mut digest = Sha256::new();
    let mut generator = Generator(0);
    let mut block = vec![0; MIB];
    for _ in 0..mib {
        if filling == Filling::Pattern {
            generator.fill(&mut block);
        }
        digest.update(&block);
        file.write_all(&block).with_context(describe)?;
    }
    file.flush().with_context(describe)?;
    Ok(hexadecimal(digest))
}

/// The SHA-256 of a file in hexadecimal.
pub fn digest(path: &Path) -> Result<String> {
    let describe = || format!("{}: cannot read", path.display());
    let mut file = File::open(path).with_context(describe)?;
    let mut digest = Sha256::new();
    let mut block = vec![0; MIB];
    loop {
        let length = file.read(&mut block).with_context(describe)?;
        if length == 0 {
            return Ok(hexadecimal(digest));
        }
        digest.update(&block[..length]);
    }
}

fn hexadecimal(digest: Sha256) -> String {
    let bytes = digest.finalize();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Fills bytes with what follows from a number.
pub fn fill(seed: u64, bytes: &mut [u8]) {
    let mut words = vec![0; bytes.len().next_multiple_of(8)];
    Generator(seed).fill(&mut words);
    bytes.copy_from_slice(&words[..bytes.len()]);
}

/// SplitMix64 (Steele, Lea and Flood, 2014): tiny and good enough to be unique
/// in every segment.
struct Generator(u64);

impl Generator {
    fn fill(&mut self, block: &mut [u8]) {
        let (words, _) = block.as_chunks_mut::<8>();
        for word in words {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            *word = (z ^ (z >> 31)).to_le_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn the_digest_is_that_of_the_bytes_on_disk() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().join("file");
        for filling in [Filling::Zeros, Filling::Pattern] {
            let written = write(&path, 2, filling).unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().len(), 2 << 20);
            assert_eq!(digest(&path).unwrap(), written);
        }
    }

    /// `head -c 1048576 /dev/zero | sha256sum`
    #[test]
    fn a_mebibyte_of_zeros_has_its_known_digest() {
        let scratch = Scratch::new().unwrap();
        let digest = write(&scratch.path().join("file"), 1, Filling::Zeros).unwrap();
        assert_eq!(
            digest,
            "30e14955ebf1352266dc2ff8067e68104607e750abb9d3b36582b8af909fcb58"
        );
    }

    /// The first output of SplitMix64 for seed 0, from its published test
    /// vectors.
    #[test]
    fn the_pattern_is_splitmix64() {
        let mut block = [0; 8];
        Generator(0).fill(&mut block);
        assert_eq!(u64::from_le_bytes(block), 0xe220_a839_7b1d_cdaf);
    }
}

//! Numbers that nobody can foretell.

use std::fs::File;
use std::io::Read as _;

use crate::error::{Context as _, Result};

/// Bytes that nobody can foretell.
///
/// # Errors
///
/// If the kernel has none.
pub fn bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.context("/dev/urandom")?;
    Ok(bytes)
}

/// A number that nobody can foretell.
///
/// # Errors
///
/// As [`bytes`].
pub fn number() -> Result<u32> {
    bytes().map(u32::from_ne_bytes)
}

/// A key of SipHash.
///
/// # Errors
///
/// As [`bytes`].
pub fn key() -> Result<[u64; 2]> {
    let key = u128::from_ne_bytes(bytes()?);
    Ok([key as u64, (key >> 64) as u64])
}

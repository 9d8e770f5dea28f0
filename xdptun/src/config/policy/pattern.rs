//! Literal patterns, as text or as bytes.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use serde::{Deserialize, Deserializer};
use xdptun_common::policy::table::MAX_PATTERN;

use super::PolicyError;
use crate::config::values::word;

/// How a pattern of bytes begins.
const HEX: &str = "hex:";

/// Bytes to look for: 1 to 128.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Vec<u8>);

impl Pattern {
    /// The pattern of these bytes.
    ///
    /// # Errors
    ///
    /// If they are none, or too many.
    pub fn new(bytes: Vec<u8>) -> Result<Self, PolicyError> {
        match bytes.len() {
            0 => Err(PolicyError::EmptyPattern),
            1..=MAX_PATTERN => Ok(Self(bytes)),
            long => Err(PolicyError::LongPattern(long)),
        }
    }

    /// As text, if all of it can be shown.
    fn text(&self) -> Option<&str> {
        let text = str::from_utf8(&self.0).ok()?;
        (!text.starts_with(HEX) && !text.contains(char::is_control)).then_some(text)
    }

    /// As the command line takes it.
    #[must_use]
    pub fn written(&self) -> String {
        match self.text() {
            Some(text) => text.to_owned(),
            None => self.0.iter().fold(HEX.to_owned(), |mut text, byte| {
                // Writing to a string does not fail.
                let _written = write!(text, "{byte:02x}");
                text
            }),
        }
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl FromStr for Pattern {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let bytes = match text.strip_prefix(HEX) {
            None => text.as_bytes().to_vec(),
            Some(digits) => from_hex(digits).ok_or_else(|| PolicyError::NotHex(text.to_owned()))?,
        };
        Self::new(bytes)
    }
}

/// The bytes of pairs of hexadecimal digits.
fn from_hex(digits: &str) -> Option<Vec<u8>> {
    if !digits.len().is_multiple_of(2) || !digits.bytes().all(|one| one.is_ascii_hexdigit()) {
        return None;
    }
    let pairs = (0..digits.len()).step_by(2);
    pairs
        .map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok())
        .collect()
}

/// For a person: text in quotes.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text() {
            Some(text) => write!(f, "`{text}`"),
            None => f.write_str(&self.written()),
        }
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(file: D) -> Result<Self, D::Error> {
        word(file, "a pattern like \"text\" or \"hex:00ff\"")
    }
}

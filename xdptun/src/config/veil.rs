//! The veil over payloads.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use xdptun_common::tunnel::veil::MOST_PADDED;

use crate::error::{Error, Result, bail};

/// That payloads are veiled, and the length in bytes that short datagrams are padded to at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(try_from = "u32")]
pub struct Veil(u32);

impl Veil {
    /// The most that datagrams can be padded to, in bytes.
    pub const MOST: u32 = MOST_PADDED as u32;
    /// What `--veil` without a value stands for.
    pub const WITHOUT_VALUE: &str = "256";

    /// The length in bytes that datagrams are padded to at most; 0 if none are.
    #[must_use]
    pub const fn pads_to(self) -> u32 {
        self.0
    }
}

impl TryFrom<u32> for Veil {
    type Error = Error;

    fn try_from(bytes: u32) -> Result<Self> {
        match bytes <= Self::MOST {
            true => Ok(Self(bytes)),
            false => bail!(
                Invalid,
                "datagrams cannot be padded to {bytes} bytes; give 0 to {}",
                Self::MOST
            ),
        }
    }
}

impl FromStr for Veil {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.parse::<u32>() {
            Ok(bytes) => bytes.try_into(),
            Err(_) => bail!(
                Invalid,
                "`{text}` is not a number of bytes from 0 to {}",
                Self::MOST
            ),
        }
    }
}

impl fmt::Display for Veil {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

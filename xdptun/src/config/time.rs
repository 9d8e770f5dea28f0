//! Times of the file and of the command line.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use xdptun_common::gateway::timer::Timers;

use super::values::word;
use crate::error::{Error, Result, bail};

/// A time in whole seconds, from one to `MOST`; `DEFAULT` if none is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(serde::Serialize))]
pub struct Time<const MOST: u32, const DEFAULT: u32>(u32);

/// A time of the tunnel or of the service.
pub type Seconds<const DEFAULT: u32> = Time<{ u32::MAX }, DEFAULT>;

/// How long a UDP session lives without a datagram.
pub type UdpTimeout = Time<{ Timers::MAX_SECONDS }, { Timers::UDP }>;

/// How long an open connection lives without a segment.
pub type TcpTimeout = Time<{ Timers::MAX_SECONDS }, { Timers::TCP_ESTABLISHED }>;

/// The same for one that is not open yet, or is closing.
pub type TcpTransitoryTimeout = Time<{ Timers::MAX_SECONDS }, { Timers::TCP_TRANSITORY }>;

/// The units and their seconds. A number alone counts seconds.
const UNITS: [(&str, u64); 6] = [
    ("", 1),
    ("s", 1),
    ("m", 60),
    ("min", 60),
    ("h", 3600),
    ("d", 86_400),
];

impl<const MOST: u32, const DEFAULT: u32> Time<MOST, DEFAULT> {
    /// The number of seconds.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl<const MOST: u32, const DEFAULT: u32> Default for Time<MOST, DEFAULT> {
    fn default() -> Self {
        const { assert!(DEFAULT != 0 && DEFAULT <= MOST) };
        Self(DEFAULT)
    }
}

impl<const MOST: u32, const DEFAULT: u32> From<Time<MOST, DEFAULT>> for Duration {
    fn from(time: Time<MOST, DEFAULT>) -> Self {
        Self::from_secs(time.0.into())
    }
}

impl<const MOST: u32, const DEFAULT: u32> FromStr for Time<MOST, DEFAULT> {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let unit = UNITS
            .into_iter()
            .find(|(name, _)| *name == unit.trim_start());
        let seconds =
            unit.and_then(|(_, seconds)| number.parse::<u64>().ok()?.checked_mul(seconds));
        let Some(seconds) = seconds else {
            bail!(
                Invalid,
                "`{text}` is no time; write 25, \"25s\", \"10m\", \"2h\" or \"1d\""
            );
        };
        match u32::try_from(seconds) {
            Ok(seconds @ 1..) if seconds <= MOST => Ok(Self(seconds)),
            _ => bail!(Invalid, "`{text}` is not possible; give 1 s to {MOST} s"),
        }
    }
}

impl<const MOST: u32, const DEFAULT: u32> fmt::Display for Time<MOST, DEFAULT> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de, const MOST: u32, const DEFAULT: u32> Deserialize<'de> for Time<MOST, DEFAULT> {
    fn deserialize<D: Deserializer<'de>>(file: D) -> Result<Self, D::Error> {
        word(file, "a time like 25 or \"25s\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Minutes = Time<3600, 60>;

    #[test]
    fn a_time_may_have_a_unit() {
        for (text, seconds) in [
            ("25", 25),
            ("25s", 25),
            ("25 s", 25),
            ("10m", 600),
            ("10min", 600),
            ("1h", 3600),
        ] {
            assert_eq!(text.parse::<Minutes>().unwrap().get(), seconds, "{text}");
        }
        assert_eq!("2d".parse::<Seconds<1>>().unwrap().get(), 172_800);
    }

    #[test]
    fn what_is_no_time_says_how_to_write_one() {
        for text in [
            "",
            "-1",
            "s",
            "1.5",
            "10x",
            "100ms",
            "99999999999999999999d",
        ] {
            let error = text.parse::<Minutes>().unwrap_err().to_string();
            let expected =
                format!("`{text}` is no time; write 25, \"25s\", \"10m\", \"2h\" or \"1d\"");
            assert_eq!(error, expected);
        }
        for text in ["0", "0s", "2h", "99999999999d"] {
            let error = text.parse::<Minutes>().unwrap_err().to_string();
            assert_eq!(
                error,
                format!("`{text}` is not possible; give 1 s to 3600 s")
            );
        }
    }
}

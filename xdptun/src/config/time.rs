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

/// The units and their milliseconds. A number alone counts seconds.
const UNITS: [(&str, u64); 7] = [
    ("", 1000),
    ("ms", 1),
    ("s", 1000),
    ("m", 60_000),
    ("min", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];

/// The milliseconds of a time: a number, perhaps with up to three decimals, and perhaps a unit.
fn milliseconds(text: &str) -> Option<u128> {
    let is_of_number = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    let length = text.bytes().take_while(is_of_number).count();
    let (number, unit) = text.split_at(length);
    let mut units = UNITS.into_iter();
    let (_, unit) = units.find(|(name, _)| *name == unit.trim_start())?;
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    if !(1..=3).contains(&decimals.len()) {
        return None;
    }
    let thousandths = format!("{decimals:0<3}").parse::<u64>().ok()?;
    let thousandths = u128::from(whole.parse::<u64>().ok()?) * 1000 + u128::from(thousandths);
    let product = thousandths * u128::from(unit);
    product.is_multiple_of(1000).then_some(product / 1000)
}

/// Reads a time of the command line, from a tenth of a second to a year.
///
/// # Errors
///
/// If the text is no time, or the time is shorter or longer than that.
pub fn parse_duration(text: &str) -> Result<Duration> {
    const LEAST: Duration = Duration::from_millis(100);
    const YEAR: Duration = Duration::from_hours(365 * 24);
    let time =
        milliseconds(text).map(|time| Duration::from_millis(time.try_into().unwrap_or(u64::MAX)));
    match time {
        Some(time) if (LEAST..=YEAR).contains(&time) => Ok(time),
        Some(_) => bail!(Invalid, "out of range; give 100ms to 365d"),
        None => bail!(Invalid, "not a time; write 1, 0.5, 10s, 5m or 1h"),
    }
}

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
        let seconds = milliseconds(text).filter(|time| time.is_multiple_of(1000));
        let Some(seconds) = seconds.map(|time| time / 1000) else {
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
            ("1.5m", 90),
            ("2000ms", 2),
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
            ".5m",
            "1.m",
            "1.2.3s",
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

    #[test]
    fn a_time_of_the_command_line_may_be_a_part_of_a_second() {
        for (text, milliseconds) in [
            ("2", 2000),
            ("0.5", 500),
            ("0.5s", 500),
            ("250ms", 250),
            ("10 s", 10_000),
            ("1.125m", 67_500),
            ("1h", 3_600_000),
        ] {
            let expected = Duration::from_millis(milliseconds);
            assert_eq!(parse_duration(text).unwrap(), expected, "{text}");
        }
        for (text, says) in [
            ("", "not a time; write"),
            ("s", "not a time; write"),
            ("-1s", "not a time; write"),
            ("1e9", "not a time; write"),
            ("inf", "not a time; write"),
            ("10x", "not a time; write"),
            ("1m30s", "not a time; write"),
            ("0.0001s", "not a time; write"),
            ("0", "give 100ms to 365d"),
            ("0.01s", "give 100ms to 365d"),
            ("9000h", "give 100ms to 365d"),
        ] {
            let error = parse_duration(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}

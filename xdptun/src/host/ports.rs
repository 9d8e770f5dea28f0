//! Sets of ports, as given on the command line.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use xdptun_common::ports::{PORT_WORDS, port_bit};

use crate::error::{Error, Kind};

/// A port or an inclusive range of ports; in a file, a number or a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "NumberOrText")]
pub struct PortRange {
    first: u16,
    last: u16,
}

/// The ports that a translated source gets, unless the configuration says otherwise: below the
/// default of `net.ipv4.ip_local_port_range`, from which this host's own sockets get theirs.
pub const SOURCE_PORTS: PortRange = PortRange {
    first: 1024,
    last: 32767,
};

/// Why a port argument was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PortError {
    /// Not a number between 1 and 65535.
    #[error("`{0}` is not a port; ports are 1 to 65535, ranges are written 8000-8010")]
    NotAPort(String),
    /// The end of the range is below its start.
    #[error("the range {0}-{1} runs backwards; write {1}-{0}")]
    Backwards(u16, u16),
}

impl From<PortError> for Error {
    fn from(cause: PortError) -> Self {
        Self::caused_by(Kind::Invalid, cause)
    }
}

impl FromStr for PortRange {
    type Err = PortError;

    fn from_str(text: &str) -> Result<Self, PortError> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |part: &str| match part.parse::<u16>() {
            Ok(port) if port != 0 => Ok(port),
            _ if part.is_empty() => Err(PortError::NotAPort(text.to_owned())),
            _ => Err(PortError::NotAPort(part.to_owned())),
        };
        Self::new(port(first)?, port(last)?)
    }
}

/// The two forms of a port in a file.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected a port like 51820 or a range like \"8000-8010\""
)]
enum NumberOrText {
    Number(i64),
    Text(String),
}

impl TryFrom<NumberOrText> for PortRange {
    type Error = PortError;

    fn try_from(port: NumberOrText) -> Result<Self, PortError> {
        match port {
            NumberOrText::Number(number) => number.to_string().parse(),
            NumberOrText::Text(text) => text.parse(),
        }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

impl PortRange {
    /// The ports from the first to the last.
    ///
    /// # Errors
    ///
    /// If the last comes before the first.
    pub const fn new(first: u16, last: u16) -> Result<Self, PortError> {
        if first > last {
            return Err(PortError::Backwards(first, last));
        }
        Ok(Self { first, last })
    }

    /// The first and the last port.
    #[must_use]
    pub const fn bounds(&self) -> (u16, u16) {
        (self.first, self.last)
    }

    /// How many ports there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::from(self.last - self.first) + 1
    }

    /// Whether a port is in both ranges.
    #[must_use]
    pub const fn overlaps(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Whether a port is in the range.
    #[must_use]
    pub const fn contains(&self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }
}

/// "eth0 carries UDP ports 443, 8000-8010 as TCP".
#[must_use]
pub fn carries(interface: &str, ports: &[PortRange]) -> String {
    let plural = match ports {
        [single] if single.first == single.last => "",
        _ => "s",
    };
    let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
    format!(
        "{interface} carries UDP port{plural} {} as TCP",
        ports.join(", ")
    )
}

/// The words of the `PORTS` map for a list of ranges.
#[must_use]
pub fn to_words(ranges: &[PortRange]) -> Vec<u64> {
    let mut words = vec![0; PORT_WORDS as usize];
    for port in ranges.iter().flat_map(|range| range.first..=range.last) {
        let (word, mask) = port_bit(port);
        words[word as usize] |= mask;
    }
    words
}

/// The ranges that the words of the `PORTS` map stand for, in order and joined.
#[must_use]
pub fn from_words(words: &[u64]) -> Vec<PortRange> {
    let mut ranges: Vec<PortRange> = Vec::new();
    let owned = (0..=u16::MAX).filter(|port| {
        let (word, mask) = port_bit(*port);
        words
            .get(word as usize)
            .is_some_and(|bits| bits & mask != 0)
    });
    for port in owned {
        match ranges.last_mut() {
            Some(range) if range.last.checked_add(1) == Some(port) => range.last = port,
            _ => ranges.push(PortRange {
                first: port,
                last: port,
            }),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_and_a_range() {
        assert_eq!(
            "8000".parse(),
            Ok(PortRange {
                first: 8000,
                last: 8000
            })
        );
        assert_eq!(
            "1-65535".parse(),
            Ok(PortRange {
                first: 1,
                last: 65535
            })
        );
    }

    #[test]
    fn what_is_no_port_is_named() {
        for text in [
            "0", "65536", "", "-", "80-", "http", "-1", "1-2-3", "0-5", "+",
        ] {
            let error = text.parse::<PortRange>().expect_err(text);
            assert!(matches!(error, PortError::NotAPort(_)), "{text}: {error}");
        }
        assert_eq!("9-8".parse::<PortRange>(), Err(PortError::Backwards(9, 8)));
    }

    #[test]
    fn words_keep_ranges_and_join_neighbours() {
        let ranges = ["443", "8000-8010", "8011", "1", "65535"].map(|text| text.parse().unwrap());
        let back: Vec<String> = from_words(&to_words(&ranges))
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(back, ["1", "443", "8000-8011", "65535"]);
    }

    #[test]
    fn every_port_at_once() {
        let all = ["1-65535".parse().unwrap()];
        assert_eq!(from_words(&to_words(&all)), all);
    }
}

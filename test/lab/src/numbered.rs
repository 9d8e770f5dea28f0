//! Datagrams that hold their number, so that a changed or doubled one shows.

use std::collections::BTreeMap;

use crate::udp;
use anyhow::{Context, Result, ensure};

/// Lengths from a few bytes to what fits an MTU of 1280.
const LENGTHS: u32 = 1200;

/// The datagram of a number: its length and every byte follow from it.
pub fn datagram(number: u32) -> Vec<u8> {
    let length = 4 + number.wrapping_mul(37) % LENGTHS;
    let mut bytes = udp::pattern(length as usize, number.to_le_bytes()[0]);
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// The number of a datagram that is exactly as it was made.
pub fn number(bytes: &[u8]) -> Result<u32> {
    let head = bytes.first_chunk().context("a datagram is cut short")?;
    let number = u32::from_be_bytes(*head);
    ensure!(
        bytes == datagram(number),
        "datagram {number} was changed: {} bytes",
        bytes.len()
    );
    Ok(number)
}

/// How often each number was seen.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Tally(BTreeMap<u32, u32>);

impl Tally {
    /// Counts one.
    pub fn add(&mut self, number: u32) {
        *self.0.entry(number).or_default() += 1;
    }

    /// Counts all that another one did.
    pub fn add_all(&mut self, other: &Self) {
        for (number, count) in &other.0 {
            *self.0.entry(*number).or_default() += count;
        }
    }

    /// How many different numbers were seen.
    pub fn distinct(&self) -> usize {
        self.0.len()
    }

    /// The numbers seen more often than in `other`.
    pub fn beyond(&self, other: &Self) -> Vec<u32> {
        let more = |(number, count): (&u32, &u32)| {
            let allowed = other.0.get(number).copied().unwrap_or(0);
            (*count > allowed).then_some(*number)
        };
        self.0.iter().filter_map(more).collect()
    }
}

impl FromIterator<u32> for Tally {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        let mut tally = Self::default();
        numbers.into_iter().for_each(|number| tally.add(number));
        tally
    }
}

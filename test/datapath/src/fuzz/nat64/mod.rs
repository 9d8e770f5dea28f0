//! Random packets through the program of NAT64.
//!
//! | module | what it holds |
//! |---|---|
//! | [`generate`] | a packet of a client or for one, mostly damaged |
//! | [`judge`] | the rules: a dropped packet is left alone, a translated one is valid, and translated back it is the same |
//! | [`compare`] | a packet beside its translation |
//! | [`message`] | an ICMP error beside its translation |

mod compare;
mod generate;
mod judge;
mod message;

use std::fmt;

use xdptun_common::nat64::translator::Translator;
use xdptun_lab::seeded::Random;

use super::judge::Violation;
use crate::nat64::{Nat64, translator};

/// The name on the command line, beside those of the programs.
pub const NAME: &str = "nat64";

/// Keeps the random numbers apart from those of the other programs.
const STREAM: u64 = 0x64;

/// Where an iteration is: the same two always make the same packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The seed of the run.
    pub seed: u64,
    /// The number of the iteration.
    pub iteration: u64,
}

/// The program, and clients that have an address for ever.
///
/// # Panics
///
/// If the kernel refuses.
#[must_use]
pub fn program() -> Nat64 {
    let mut nat64 = Nat64::new(Translator {
        only_global: 1,
        ..translator()
    });
    for number in generate::FIXED {
        nat64.fix(generate::address(number), generate::client(number));
    }
    nat64
}

impl Position {
    /// Runs the iteration: what was counted, and whether the packet was translated back.
    ///
    /// # Errors
    ///
    /// The rule that it breaks.
    pub fn run(self, nat64: &mut Nat64) -> Result<Vec<&'static str>, Box<Failure>> {
        let mut random = Random::new(self.seed, STREAM, self.iteration);
        let frame = generate::frame(&mut random);
        judge::examine(nat64, &frame).map_err(|violation| {
            Box::new(Failure {
                position: self,
                frame,
                violation,
            })
        })
    }
}

/// A broken rule, with all that is needed to see it again.
pub struct Failure {
    position: Position,
    frame: Vec<u8>,
    violation: Violation,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { seed, iteration } = self.position;
        writeln!(f, "nat64 breaks a rule: {}", self.violation.rule)?;
        writeln!(f, "{}", self.violation.detail.trim_end())?;
        writeln!(
            f,
            "again: cargo xtask fuzz --seed {seed} --only {iteration} --program {NAME}\n"
        )?;
        write!(f, "the packet: {}", super::hex(&self.frame))
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

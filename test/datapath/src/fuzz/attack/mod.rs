//! An attacker off the path: knows the addresses and ports of an open flow and none of
//! its numbers, and sends whatever it likes from wherever it likes.
//!
//! An attack is an established flow, a burst of forged packets, then an honest datagram
//! each way and an honest end. Nothing of the burst may be delivered, change the flow
//! beyond what docs/security.md allows, or be answered with more than the flow's own
//! challenge; and what is honest has to fare as it does without the burst, which is tried
//! first.
//!
//! | module | what it holds |
//! |---|---|
//! | [`generate`] | flows and bursts |
//! | [`forge`] | one forged packet |
//! | [`guess`] | the guesses that count, as docs/security.md has them |
//! | [`arrive`] | the way of a packet through XDP and tc |
//! | [`judge`] | the rules |

mod arrive;
mod forge;
mod generate;
mod guess;
mod judge;

use std::fmt;
use std::time::Duration;

use xdptun_common::tunnel::sent::SentSegment;
use xdptun_common::tunnel::state::Flow;
use xdptun_lab::seeded::Random;

use self::forge::Call;
use super::judge::{Ended, Violation};
use super::rig::Rig;
use super::scene::Setup;
use crate::moment::Moment;
use crate::path::Path;
use crate::program::Program;

/// The name on the command line, beside those of the programs.
pub const NAME: &str = "attack";

/// Keeps the random numbers of attacks apart from those of the programs.
const STREAM: u64 = 0x61;

/// How long an attack may take. The times of a flow are so far from every limit of the
/// programs that none is crossed meanwhile.
const AT_ONCE: Duration = Duration::from_millis(55);

/// Attacks take a millisecond or two; so many slow ones mean that the machine stands
/// still.
const ATTEMPTS: usize = 1000;

/// Where an attack is: the same two always make the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The seed of the run.
    pub seed: u64,
    /// The number of the attack.
    pub iteration: u64,
}

/// An attack on an established flow.
#[derive(Clone)]
pub struct Attack {
    setup: Setup,
    /// The XDP program, where there is one.
    xdp: Program,
    /// Whether answers may be sent.
    may_reply: bool,
    path: Path,
    flow: Flow,
    /// The segments that the flow sent lately.
    sent: Vec<SentSegment>,
    /// The recorded SYN that the attacker has.
    call: Option<Call>,
    /// The packets that the attacker sends.
    burst: Vec<Vec<u8>>,
    honest: Honest,
}

/// The packets that peer and host send afterwards.
#[derive(Clone)]
struct Honest {
    /// The peer's datagram.
    inbound: Vec<u8>,
    /// The host's.
    outbound: Vec<u8>,
    /// The peer's last segment.
    end: Vec<u8>,
}

/// The result of a forged packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was sent, and changed nothing.
    Futile(Ended),
    /// It was not sent: a guess that counts.
    Guessed,
}

impl Position {
    fn attack(self, at: Moment) -> Attack {
        let mut random = Random::new(self.seed, STREAM, self.iteration);
        generate::attack(&mut random, at)
    }

    /// Runs the attack.
    ///
    /// # Errors
    ///
    /// The rule that is broken, with as few of the packets as break it.
    ///
    /// # Panics
    ///
    /// If the machine is too slow to say anything.
    pub fn run(self, rig: &mut Rig) -> Result<Vec<Fate>, Box<Failure>> {
        for _ in 0..ATTEMPTS {
            let at = Moment::now();
            let attack = self.attack(at);
            let result = judge::examine(rig, &attack);
            if !is_over(at) {
                return result.map_err(|violation| self.failure(rig, &violation));
            }
        }
        panic!("{self:?} never ran within {AT_ONCE:?}");
    }

    /// The same attack with as little as breaks the rule.
    fn failure(self, rig: &mut Rig, violation: &Violation) -> Box<Failure> {
        let mut smallest = (self.attack(Moment::now()), violation.clone());
        let mut at = 0;
        while at < smallest.0.burst.len() {
            // Built again, so that its times are right.
            let mut shorter = self.attack(Moment::now());
            shorter.burst.clone_from(&smallest.0.burst);
            shorter.burst.remove(at);
            match judge::examine(rig, &shorter) {
                Err(again) if again.rule == violation.rule => smallest = (shorter, again),
                _ => at += 1,
            }
        }
        let (attack, violation) = smallest;
        Box::new(Failure {
            position: self,
            attack,
            violation,
        })
    }
}

/// Whether too much time has passed to know what the programs should have done.
fn is_over(since: Moment) -> bool {
    Moment::now().ns() - since.ns() > AT_ONCE.as_nanos() as u64
}

/// A broken rule, with all that is needed to see it again.
pub struct Failure {
    position: Position,
    attack: Attack,
    violation: Violation,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { seed, iteration } = self.position;
        writeln!(f, "an attack breaks a rule: {}", self.violation.rule)?;
        writeln!(f, "{}", self.violation.detail.trim_end())?;
        writeln!(
            f,
            "again: cargo xtask fuzz --seed {seed} --only {iteration} --program {NAME}\n"
        )?;
        write!(f, "{}", self.attack)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Attack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            setup, xdp, path, ..
        } = self;
        writeln!(f, "setup {setup:?}, {xdp:?}, {path:?}: {:?}", self.flow)?;
        for segment in &self.sent {
            writeln!(f, "has sent {segment:?}")?;
        }
        if let Some(call) = &self.call {
            writeln!(f, "recorded {call:x?}")?;
        }
        for frame in &self.burst {
            writeln!(f, "forged: {}", super::hex(frame))?;
        }
        write!(f, "honest end: {}", super::hex(&self.honest.end))
    }
}

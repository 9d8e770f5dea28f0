//! Random packets through every program.
//!
//! Each iteration makes a scene from a seed (a flow table, and a packet that
//! has to do with it, mostly damaged), runs a program on it and holds what
//! comes of it against the rules in [`judge`]. The rules know packets only by
//! [`reading`], which shares no code with the programs' own parser.
//!
//! | module | what it holds |
//! |---|---|
//! | [`attack`] | bursts of an attacker off the path against an open flow |
//! | [`generate`] | scenes |
//! | [`nat64`] | the program of NAT64: packets, rules |
//! | [`reading`] | what a packet is to a strict receiver |
//! | [`rig`] | the programs, loaded, and what one run brings |
//! | [`judge`] | the rules, a file for each part of the datapath |
//! | [`minimise`] | the smallest packet that breaks a rule |
//! | [`tally`] | how often each outcome was reached |

pub mod attack;
pub mod generate;
pub mod judge;
pub mod minimise;
pub mod nat64;
pub mod reading;
pub mod rig;
pub mod scene;
pub mod tally;

use std::fmt::{self, Write as _};

use xdptun_lab::seeded::Random;

use crate::moment::Moment;
use crate::program::Program;
use judge::{Ended, Violation};
use rig::Rig;
use scene::Scene;

/// The programs that are fuzzed, and their names on the command line.
pub const PROGRAMS: [(Program, &str); 5] = [
    (Program::Egress, "egress"),
    (Program::Ingress, "ingress"),
    (Program::Xdp, "xdp"),
    (Program::XdpFrags, "xdp_frags"),
    (Program::Splitter, "splitter"),
];

/// Where an iteration is: the same three always make the same packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The program.
    pub program: Program,
    /// The seed of the run.
    pub seed: u64,
    /// The number of the iteration.
    pub iteration: u64,
}

impl Position {
    /// The scene there.
    #[must_use]
    pub fn scene(self) -> Scene {
        let mut random = Random::new(self.seed, self.program as u64, self.iteration);
        generate::scene(self.program, &mut random, Moment::now())
    }

    /// Runs the iteration.
    ///
    /// # Errors
    ///
    /// The rule that it breaks, with the smallest packet that does.
    pub fn run(self, rig: &mut Rig) -> Result<Ended, Box<Failure>> {
        let scene = self.scene();
        judge::examine(rig, &scene).map_err(|violation| {
            let smallest = minimise::minimise(rig, &scene, &violation);
            Box::new(Failure {
                position: self,
                scene,
                violation,
                smallest,
            })
        })
    }
}

/// A broken rule, with all that is needed to see it again.
pub struct Failure {
    position: Position,
    scene: Scene,
    violation: Violation,
    smallest: (Scene, Violation),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position {
            program,
            seed,
            iteration,
        } = self.position;
        writeln!(f, "{program:?} breaks a rule: {}", self.violation.rule)?;
        writeln!(f, "{}", self.violation.detail.trim_end())?;
        let name = PROGRAMS.iter().find(|(other, _)| *other == program);
        let name = name.map_or("", |(_, name)| name);
        writeln!(
            f,
            "again: cargo xtask fuzz --seed {seed} --only {iteration} --program {name}\n"
        )?;
        writeln!(f, "as it came: {}", self.scene)?;
        writeln!(f, "before damage: {}\n", hex(&self.scene.intact))?;
        let (scene, violation) = &self.smallest;
        writeln!(f, "the smallest that does the same: {scene}")?;
        write!(f, "{}", violation.detail.trim_end())
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Bytes for people and for other tools.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string");
        text
    })
}

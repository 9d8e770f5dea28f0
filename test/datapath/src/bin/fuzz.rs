//! The long run of the fuzzer; `cargo xtask fuzz` starts it as root.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use xdptun_lab::privilege::require_root;
use xdptun_lab::{Direct, Host, link};
use xdptun_test_datapath::Program;
use xdptun_test_datapath::fuzz::attack;
use xdptun_test_datapath::fuzz::nat64;
use xdptun_test_datapath::fuzz::rig::Rig;
use xdptun_test_datapath::fuzz::tally::Tally;
use xdptun_test_datapath::fuzz::{PROGRAMS, Position};

/// Random packets through the kernel programs, against rules that must always hold.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask fuzz")]
struct Args {
    /// Packets for each program, and forged ones
    #[arg(long, default_value_t = 1_000_000)]
    packets: u64,
    /// Where the random numbers start; a new one each time if not given
    #[arg(long)]
    seed: Option<u64>,
    /// Run only the iteration of this number, and show it
    #[arg(long, value_name = "ITERATION", requires = "seed")]
    only: Option<u64>,
    /// Fuzz only this program (of the tunnel, or nat64), or only attack open flows
    #[arg(long, value_parser = names())]
    program: Option<String>,
}

/// The names of programs that can be fuzzed alone.
fn names() -> Vec<&'static str> {
    let programs = PROGRAMS.iter().map(|(_, name)| *name);
    programs.chain([nat64::NAME, attack::NAME]).collect()
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    require_root()?;
    let net = Direct::new()?;
    let narrow = link::index(&net.a.netns, Host::DEV)?;
    net.a.netns.enter(|| args.run(narrow))?
}

impl Args {
    fn run(&self, narrow: u32) -> Result<()> {
        let seed = match self.seed {
            Some(seed) => seed,
            None => Self::new_seed()?,
        };
        println!("seed {seed}");
        let mut rig = Rig::new(narrow);
        for (program, name) in PROGRAMS {
            if !self.is_wanted(name) {
                continue;
            }
            match self.only {
                Some(iteration) => show(
                    &mut rig,
                    Position {
                        program,
                        seed,
                        iteration,
                    },
                )?,
                None => self.fuzz(&mut rig, program, name, seed)?,
            }
        }
        if self.is_wanted(nat64::NAME) {
            match self.only {
                Some(iteration) => show_nat64(nat64::Position { seed, iteration })?,
                None => self.nat64(seed)?,
            }
        }
        if !self.is_wanted(attack::NAME) {
            return Ok(());
        }
        match self.only {
            Some(iteration) => show_attack(&mut rig, attack::Position { seed, iteration }),
            None => self.attack(&mut rig, seed),
        }
    }

    fn is_wanted(&self, name: &str) -> bool {
        self.program.as_deref().is_none_or(|only| only == name)
    }

    /// Short enough to type.
    fn new_seed() -> Result<u64> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.context("the clock is before 1970; set it, or give --seed")?;
        Ok(now.as_millis() as u64 % 1_000_000_000)
    }

    fn fuzz(&self, rig: &mut Rig, program: Program, name: &str, seed: u64) -> Result<()> {
        rig.load(program);
        let started = Instant::now();
        let bar = bar(name, self.packets);
        let mut tally = Tally::default();
        for iteration in bar.wrap_iter(0..self.packets) {
            let position = Position {
                program,
                seed,
                iteration,
            };
            match position.run(rig) {
                Ok(ended) => tally.add(&ended),
                Err(failure) => {
                    bar.abandon();
                    bail!("{failure}");
                }
            }
        }
        bar.finish_and_clear();
        conclude(name, started, &tally);
        Ok(())
    }

    fn nat64(&self, seed: u64) -> Result<()> {
        let mut program = nat64::program();
        let started = Instant::now();
        let bar = bar(nat64::NAME, self.packets);
        let mut tally = Tally::default();
        for iteration in bar.wrap_iter(0..self.packets) {
            match (nat64::Position { seed, iteration }).run(&mut program) {
                Ok(ends) => tally.add_ends(&ends),
                Err(failure) => {
                    bar.abandon();
                    bail!("{failure}");
                }
            }
        }
        bar.finish_and_clear();
        conclude(nat64::NAME, started, &tally);
        Ok(())
    }

    /// Attacks open flows until as many packets were forged.
    fn attack(&self, rig: &mut Rig, seed: u64) -> Result<()> {
        let started = Instant::now();
        let bar = bar(attack::NAME, self.packets);
        let mut tally = Tally::default();
        for iteration in 0.. {
            if tally.packets() >= self.packets {
                break;
            }
            match (attack::Position { seed, iteration }).run(rig) {
                Ok(fates) => fates.iter().for_each(|fate| tally.add_forged(fate)),
                Err(failure) => {
                    bar.abandon();
                    bail!("{failure}");
                }
            }
            bar.set_position(tally.packets());
        }
        bar.finish_and_clear();
        conclude(attack::NAME, started, &tally);
        Ok(())
    }
}

fn conclude(name: &str, started: Instant, tally: &Tally) {
    let seconds = started.elapsed().as_secs_f64();
    let packets = tally.packets();
    println!("{name}: {packets} packets in {seconds:.0} s, no rule broken");
    print!("{tally}");
}

/// The same for a packet through NAT64.
fn show_nat64(position: nat64::Position) -> Result<()> {
    match position.run(&mut nat64::program()) {
        Ok(ends) => println!("no rule broken: {ends:?}"),
        Err(failure) => bail!("{failure}"),
    }
    Ok(())
}

/// The same for an attack.
fn show_attack(rig: &mut Rig, position: attack::Position) -> Result<()> {
    match position.run(rig) {
        Ok(fates) => println!("no rule broken: {fates:#?}"),
        Err(failure) => bail!("{failure}"),
    }
    Ok(())
}

/// Runs one iteration and tells all about it.
fn show(rig: &mut Rig, position: Position) -> Result<()> {
    println!("{}", position.scene());
    match position.run(rig) {
        Ok(ended) => println!("no rule broken: {ended:?}\n"),
        Err(failure) => bail!("{failure}"),
    }
    Ok(())
}

/// Shown on a terminal only.
fn bar(name: &str, packets: u64) -> ProgressBar {
    let template = "{prefix:>10} {bar:40} {human_pos:>10} of {human_len}, {per_sec}, {eta} left";
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(packets)
        .with_style(style)
        .with_prefix(name.to_owned())
}

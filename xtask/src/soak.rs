//! `cargo xtask soak`: traffic for as long as wanted, with random disturbances.

use std::os::unix::process::CommandExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use xdptun_lab::command::line_of;
use xdptun_test_soak::{Kind, Length, Pace, Plan};

use crate::progress::Progress;
use crate::{build, setup, worker};

/// Options of `cargo xtask soak`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How long disturbances go on
    #[arg(long, default_value_t = 10.0, value_parser = minutes)]
    minutes: f64,
    /// Which disturbances, and in which order; a new one each time if not given
    #[arg(long)]
    seed: Option<u64>,
    /// Only these kinds of disturbances, as a report names them, to look closer at
    /// a finding
    #[arg(long, value_delimiter = ',', value_name = "KIND", value_parser = kind)]
    only: Vec<Kind>,
    /// Print one JSON object on standard output and nothing else there
    #[arg(long)]
    json: bool,
}

/// A week at most.
fn minutes(text: &str) -> Result<f64, String> {
    let minutes = text.parse().ok();
    let minutes = minutes.filter(|minutes| (0.0..=10_080.0).contains(minutes));
    minutes.ok_or_else(|| "not a number from 0 to 10080".to_owned())
}

fn kind(name: &str) -> Result<Kind, String> {
    Kind::named(name).ok_or_else(|| {
        let names = Kind::ALL.map(Kind::name).join(", ");
        format!("no such kind; there are {names}")
    })
}

/// Prepares everything as the user, then becomes the worker.
pub fn run(args: &Args) -> Result<()> {
    setup::ensure()?;
    build::for_worker(None)?;
    let mut command = worker::command("soak")?;
    command.args(["--minutes", &args.minutes.to_string()]);
    if let Some(seed) = args.seed {
        command.args(["--seed", &seed.to_string()]);
    }
    for kind in &args.only {
        command.args(["--only", kind.name()]);
    }
    if args.json {
        command.arg("--json");
    }
    // Returns only when it fails.
    let error = command.exec();
    Err(error).with_context(|| format!("cannot start `{}`", line_of(&command)))
}

/// The run itself, as root.
pub fn work(args: &Args) -> Result<()> {
    let progress = Progress::start();
    let seed = match args.seed {
        Some(seed) => seed,
        None => new_seed()?,
    };
    let plan = Plan {
        length: Length::Time(Duration::from_secs_f64(args.minutes * 60.0)),
        pace: Pace::Natural,
        seed,
        only: args.only.clone(),
    };
    let report = xdptun_test_soak::run(plan, Box::new(move |text| progress.say(text)))?;
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{report}");
    }
    let findings = report.findings();
    let only: String = args
        .only
        .iter()
        .map(|kind| format!(" --only {}", kind.name()))
        .collect();
    ensure!(
        findings == 0,
        "{findings} findings; `cargo xtask soak --seed {seed}{only}` repeats the disturbances"
    );
    Ok(())
}

/// Short enough to type.
fn new_seed() -> Result<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.context("the clock is before 1970; set it, or give --seed")?;
    Ok(now.as_millis() as u64 % 1_000_000_000)
}

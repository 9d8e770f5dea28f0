//! `cargo xtask soak`: traffic for as long as wanted, with random disturbances.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
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

impl Args {
    /// The options as the user would type them.
    fn words(&self) -> Vec<String> {
        let mut words = vec!["--minutes".to_owned(), self.minutes.to_string()];
        if let Some(seed) = self.seed {
            words.extend(["--seed".to_owned(), seed.to_string()]);
        }
        for kind in &self.only {
            words.extend(["--only".to_owned(), kind.name().to_owned()]);
        }
        words.extend(self.json.then(|| "--json".to_owned()));
        words
    }
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
    build::for_worker()?;
    worker::become_root("soak", &args.words())
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

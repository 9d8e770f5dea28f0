//! `xdptun-bench`: the cost of xdptun, measured between two hosts of the
//! laboratory, beside the same traffic without it.
//!
//! `cargo xtask bench` builds it and runs it twice: as root to measure, and as
//! the user to write the results.
//!
//! | module | what it holds |
//! |---|---|
//! | [`methods`] | what is measured, a file for each method |
//! | [`harness`] | rounds, interleaved, after a warm-up |
//! | [`route`] | ways for datagrams from one host to another |
//! | [`forwarded`] | datagrams with room before their headers |
//! | [`phantun`] | a way by another program |
//! | [`floor`] | programs that do the least that a tunnel must |
//! | [`kernel`] | run times of programs, and programs that price helpers |
//! | [`load`] | the load generator |
//! | [`cpu`] | processor time of the machine |
//! | [`sizes`] | how large the programs are: a guard, not a measurement of time |
//! | [`results`], [`statistics`] | every value, medians, spread and ratios |
//! | [`table`], [`plot`], [`document`] | what BENCHMARKS.md shows |
//! | [`glance`] | its first section, of the results of several methods |

mod cpu;
mod document;
mod floor;
mod forwarded;
mod glance;
mod harness;
mod kernel;
mod load;
mod methods;
mod phantun;
mod plot;
mod results;
mod route;
mod sizes;
mod statistics;
mod table;

use std::io::{read_to_string, stdin};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use serde::de::DeserializeOwned;
use xdptun_lab::machine::Machine;
use xdptun_lab::privilege::require_root;

use crate::document::{Section, write_results, write_sections};
use crate::harness::Extent;
use crate::methods::Method;
use crate::results::{Results, SCHEMA};
use crate::sizes::Sizes;

/// Measure what xdptun costs
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    job: Job,
}

#[derive(Debug, Subcommand)]
enum Job {
    /// Measure as root, and print the values as JSON
    Measure {
        method: Method,
        /// Little traffic and one counted round: is something broken?
        #[arg(long)]
        quick: bool,
    },
    /// Load the programs as root, and print their sizes as JSON
    Sizes,
    /// Compare sizes (standard input) with the baseline
    CheckSizes,
    /// Make sizes (standard input) the baseline
    SaveBaseline,
    /// Be one process of many connections (`xdptun_lab::crowd`)
    #[command(hide = true)]
    Crowd { role: String, address: String },
    /// Show the tables of values that were measured (standard input)
    Show { method: Method },
    /// Show them, and write them to bench/results and BENCHMARKS.md
    Write { method: Method },
}

fn main() -> ExitCode {
    match run(Cli::parse().job) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(job: Job) -> Result<()> {
    match job {
        Job::Measure { method, quick } => {
            require_root()?;
            let extent = if quick { Extent::Quick } else { Extent::Full };
            let measured = method.measure(extent)?;
            println!("{}", serde_json::to_string(&measured)?);
            Ok(())
        }
        Job::Sizes => {
            require_root()?;
            println!("{}", serde_json::to_string(&Sizes::measure()?)?);
            Ok(())
        }
        Job::Crowd { role, address } => xdptun_lab::crowd::work(&role, &address),
        Job::CheckSizes => input::<Sizes>()?.check(),
        Job::SaveBaseline => input::<Sizes>()?.save(),
        Job::Show { method } => show(method, false),
        Job::Write { method } => show(method, true),
    }
}

/// The JSON that another run of this program printed.
fn input<T: DeserializeOwned>() -> Result<T> {
    let text = read_to_string(stdin()).context("standard input")?;
    serde_json::from_str(&text).context("standard input is not what it should be")
}

/// Shows the values on standard input, and writes them with `keep`.
fn show(method: Method, keep: bool) -> Result<()> {
    let results = Results {
        schema: SCHEMA,
        machine: Machine::this()?,
        measured: input()?,
    };
    let sections = method.sections(&results.measured)?;
    let sections: Vec<_> = sections
        .into_iter()
        .map(|section| section.signed(&results))
        .collect();
    for section in &sections {
        println!("{}", section.text());
    }
    ensure!(
        sections.iter().all(Section::is_complete),
        "not all was measured that the tables are to show"
    );
    if keep {
        write_results(&method.to_string(), &results)?;
        write_sections(&sections)?;
        write_sections(&[glance::section()?])?;
    }
    Ok(())
}

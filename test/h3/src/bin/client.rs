//! `client`: downloads over HTTP/3 and says how fast.

use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::{ArgGroup, Parser};
use xdptun_test_h3::cli;
use xdptun_test_h3::client::{Job, download};
use xdptun_test_h3::target::Targets;
use xdptun_test_h3::tls::Trust;

/// Downloads over HTTP/3 and says how fast; all URLs over one connection
#[derive(Debug, Parser)]
#[command(group = ArgGroup::new("trust").required(true))]
struct Args {
    /// What to download: https://HOST:PORT/PATH
    #[arg(required = true, value_name = "URL")]
    urls: Vec<String>,
    /// Accept any certificate, like curl
    #[arg(short = 'k', long, group = "trust")]
    insecure: bool,
    /// Accept a certificate that one in this file has signed, or that is in it
    #[arg(long, value_name = "FILE", group = "trust")]
    cacert: Option<PathBuf>,
    /// Send from this UDP port
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 0,
        hide_default_value = true
    )]
    local_port: u16,
    /// Requests under way at once
    #[arg(long, value_name = "N", default_value = "1")]
    parallel: NonZero<usize>,
    /// Write the content to a file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    cli::end(run(Args::parse()).await)
}

async fn run(args: Args) -> Result<()> {
    cli::start_log();
    ensure!(
        args.output.is_none() || args.urls.len() == 1,
        "--output takes the content of one URL, not of {}",
        args.urls.len()
    );
    let job = Job {
        targets: Targets::parse(&args.urls)?,
        trust: args.cacert.map_or(Trust::Anyone, Trust::Issuers),
        local_port: args.local_port,
        parallel: args.parallel.get(),
        output: args.output.as_deref(),
    };
    let report = download(job).await?;
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        println!("{report}");
    }
    Ok(())
}

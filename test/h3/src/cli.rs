//! What the programs say: results on standard output, all else on standard
//! error.

use std::io::{IsTerminal, stderr};
use std::process::ExitCode;

use anyhow::Result;
use tracing_subscriber::EnvFilter;

/// Starts the log; `RUST_LOG` asks for more or less than the requests served.
pub fn start_log() {
    let usual = || EnvFilter::new("warn,xdptun_test_h3=info");
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| usual());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal())
        .with_target(false)
        .init();
}

/// Ends a program; an error is told in one line.
pub fn end(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

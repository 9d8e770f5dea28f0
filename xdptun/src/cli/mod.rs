//! The command line: a file for each verb.

mod attach;
mod detach;
mod explain;
mod status;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Carry UDP (WireGuard, QUIC) through networks that only let TCP live.
///
/// Run it on both hosts, on the interface that leads to the other one. Every
/// UDP datagram from or to the given ports leaves as a TCP segment and arrives
/// as the same datagram.
#[derive(Parser)]
#[command(version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

const EXAMPLES: &str = "\
Examples:
  xdptun attach --iface eth0 --port 51820        WireGuard's port, until Ctrl-C
  xdptun attach --iface eth0 --port 443 --peer 203.0.113.7
  xdptun status                                  what is attached, and its flows
  xdptun explain rx_drop_no_flow                 what a counter means
  xdptun detach --iface eth0                     clean up after a killed process";

#[derive(Subcommand)]
enum Verb {
    Attach(attach::Arguments),
    Detach(detach::Arguments),
    Status(status::Arguments),
    Explain(explain::Arguments),
}

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let result = match Arguments::parse().verb {
        Verb::Attach(arguments) => attach::run(arguments),
        Verb::Detach(arguments) => detach::run(&arguments),
        Verb::Status(arguments) => status::run(&arguments),
        Verb::Explain(arguments) => explain::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xdptun: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A runtime for one verb. One thread: nothing here is on the path of packets.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?)
}

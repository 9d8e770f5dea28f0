//! The command line: a file for each verb.

mod announce;
mod attach;
mod capture;
mod check;
pub mod completions;
mod detach;
mod doctor;
mod explain;
mod flow_log;
mod flows;
mod forward;
mod gateway;
mod limit;
mod nat;
mod nat64;
mod once;
mod output;
mod peers;
mod policy;
#[cfg(test)]
mod reference;
mod reload;
mod report;
mod run;
mod sessions;
mod status;
mod terminal;
mod toward;
mod watch;

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{CommandFactory as _, Parser, Subcommand};
use tokio::task::LocalSet;

use crate::error::Error;
use crate::group::Incumbent;

/// Carry UDP (WireGuard, QUIC) through networks that pass only TCP.
///
/// Run it on both hosts, on the interface that leads to the other host. Every UDP
/// datagram from or to the given ports leaves as a TCP segment and arrives as the same
/// datagram. On one host alone, xdptun also forwards ports, translates (NAT44, NAT64) and searches
/// payloads.
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
  xdptun forward --iface eth0 --listen 7000 --to 10.0.0.5:7000
  xdptun nat --iface eth0 --inside 192.168.7.0/24
  xdptun policy -i eth0 --direction in --contains EVIL --action drop
  xdptun nat64 --iface eth0 --inside fd00:6::/64
  xdptun status                                  what is attached, and its flows
  xdptun flows --sort sent                       flows alone, most sent first
  xdptun watch                                   flows and rates, live
  xdptun doctor                                  problems on this host, fixes
  xdptun capture --iface eth0 -w tunnel.pcapng   packets, for Wireshark
  xdptun explain rx_drop_no_flow                 what a counter means
  xdptun detach --iface eth0                     clean up after a killed process
  xdptun run                                     carry as the file says
  xdptun reload                                  apply a change of the file";

#[derive(Subcommand)]
enum Verb {
    Attach(attach::Arguments),
    Forward(forward::Arguments),
    Nat(nat::Arguments),
    Policy(policy::Arguments),
    Nat64(nat64::Arguments),
    Detach(detach::Arguments),
    Status(status::Arguments),
    Flows(flows::Arguments),
    Sessions(sessions::Arguments),
    Watch(watch::Arguments),
    Capture(capture::Arguments),
    Explain(explain::Arguments),
    Run(run::Arguments),
    Check(check::Arguments),
    Reload(reload::Arguments),
    Doctor(doctor::Arguments),
    Completions(completions::Arguments),
}

/// The command line as clap knows it, for man pages and completions.
#[must_use]
pub fn command() -> clap::Command {
    completions::with_candidates(Arguments::command())
}

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    completions::answer(command);
    let result = match Arguments::parse().verb {
        Verb::Attach(arguments) => attach::run(arguments),
        Verb::Forward(arguments) => forward::run(arguments),
        Verb::Nat(arguments) => nat::run(&arguments),
        Verb::Policy(arguments) => policy::run(&arguments),
        Verb::Nat64(arguments) => nat64::run(&arguments),
        Verb::Detach(arguments) => detach::run(&arguments),
        Verb::Status(arguments) => status::run(&arguments),
        Verb::Sessions(arguments) => sessions::run(&arguments),
        Verb::Flows(arguments) => flows::run(&arguments),
        Verb::Watch(arguments) => watch::run(&arguments),
        Verb::Capture(arguments) => capture::run(arguments),
        Verb::Explain(arguments) => explain::run(&arguments),
        Verb::Run(arguments) => run::run(arguments),
        Verb::Check(arguments) => check::run(&arguments),
        Verb::Reload(arguments) => reload::run(&arguments),
        Verb::Completions(arguments) => completions::run(&arguments),
        Verb::Doctor(arguments) => match doctor::run(&arguments) {
            Ok(false) => return ExitCode::FAILURE,
            result => result.map(|_| ()),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the pipe has closed it.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // If nobody reads it, the exit status says enough.
            let _unread = writeln!(output::error_output(), "xdptun: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What `--take-over` asks for.
fn incumbent(take_over: bool) -> Incumbent {
    match take_over {
        true => Incumbent::TakeOver,
        false => Incumbent::Respect,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| {
        let io = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        io.or_else(|| cause.downcast_ref::<Error>()?.io_kind())
            .or_else(|| cause.downcast_ref::<serde_json::Error>()?.io_error_kind())
    });
    causes.any(|kind| kind == io::ErrorKind::BrokenPipe)
}

/// Runs one verb to its end. One thread: nothing here is on the path of packets.
fn block_on(verb: impl Future<Output = Result<()>>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // Threads that looked a name up still have the privileges of that time.
        .thread_keep_alive(Duration::from_millis(100))
        .build()?;
    let result = LocalSet::new().block_on(&runtime, verb);
    // Do not wait for a name server that does not answer.
    runtime.shutdown_background();
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_has_seen_enough_is_found_below_any_message() {
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        let of_library = Error::from(broken()).context("cannot write").into();
        let errors = [broken().into(), Error::from(broken()).into(), of_library];
        assert!(errors.iter().all(is_broken_pipe));
        let other = io::Error::from(io::ErrorKind::NotFound);
        assert!(!is_broken_pipe(&Error::from(other).into()));
    }
}

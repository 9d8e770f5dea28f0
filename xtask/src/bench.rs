//! `cargo xtask bench`: measurements that anyone can repeat.
//!
//! The program in `bench/` does it: as root to measure, as the user to write
//! `bench/results` and BENCHMARKS.md.

use std::io::{Seek as _, Write as _, read_to_string};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use crate::setup::Peer;
use crate::shell::{Supervised, as_root};
use crate::{build, setup};

/// Options of `cargo xtask bench`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which measurement
    what: What,
    /// Little traffic and nothing written: is something broken?
    #[arg(long)]
    quick: bool,
    /// With `programs`: make their sizes the baseline
    #[arg(long, conflicts_with = "quick")]
    save_baseline: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// A download: direct, over WireGuard, over WireGuard over xdptun
    Wg,
    /// A download over HTTP/3, with and without xdptun
    H3,
    /// Nanoseconds of each program for a packet, and of its parts
    Datapath,
    /// Bare UDP: rates, CPU time, round trips, first datagrams
    Udp,
    /// One flow to 60,000: rates, time of the programs, memory
    Flows,
    /// How long it takes to attach and to detach
    Start,
    /// Bare UDP, by xdptun and by other programs of its kind
    Peers,
    /// Forwarded TCP connections, one and many, by xdptun and by others
    Forward,
    /// TCP connections through a NAT: xdptun's, the kernel's, none
    Nat,
    /// IPv6-only clients of an IPv4 server: by xdptun, by Tayga, beside NAT of IPv4
    Nat64,
    /// TCP whose payload is searched: by the policy, by xt_string, behind NFQUEUE
    Policy,
    /// Sizes of the programs against the baseline; measures no time
    Programs,
    /// All of them, one after the other
    All,
}

impl What {
    /// The methods that are meant.
    fn methods(self) -> Vec<Self> {
        let all = Self::value_variants().iter().copied();
        all.filter(|method| match self {
            Self::All => *method != Self::All,
            one => *method == one,
        })
        .collect()
    }

    /// The program of others that it measures, or measures with, if there is one.
    fn peer(self) -> Option<Peer> {
        match self {
            Self::Wg => Some(Peer::WireguardGo),
            Self::Peers => Some(Peer::Phantun),
            Self::Forward => Some(Peer::Haproxy),
            Self::Nat => Some(Peer::Httperf),
            Self::Nat64 => Some(Peer::Tayga),
            Self::Policy => Some(Peer::Qperf),
            _ => None,
        }
    }
}

/// Builds, lets root measure, and writes the results as the user.
pub fn run(args: &Args) -> Result<()> {
    ensure!(
        !args.save_baseline || args.what == What::Programs,
        "--save-baseline goes with `bench programs`; the others keep their results anyway"
    );
    setup::ensure()?;
    build::for_bench()?;
    // A quick run measures only the peers that are installed.
    if !args.quick {
        for peer in args.what.methods().into_iter().filter_map(What::peer) {
            setup::try_peer(peer);
        }
    }
    for method in args.what.methods() {
        let value = method.to_possible_value().context("a hidden method")?;
        let name = value.get_name();
        let (measure, then) = match method {
            What::Programs if args.save_baseline => (vec!["sizes"], vec!["save-baseline"]),
            What::Programs => (vec!["sizes"], vec!["check-sizes"]),
            _ if args.quick => (vec!["measure", name, "--quick"], vec!["show", name]),
            _ => (vec!["measure", name], vec!["write", name]),
        };
        pipe(&measure, &then).with_context(|| format!("bench {name}"))?;
    }
    Ok(())
}

/// Lets root run one job of the program, and the user another one on its results.
fn pipe(measure: &[&str], then: &[&str]) -> Result<()> {
    let program = build::bench_program();
    let mut command = as_root(&program)?;
    command.args(measure).stdout(Stdio::piped());
    let mut child = Supervised::spawn(&mut command)?;
    let output = child.child().stdout.take().context("no output")?;
    let measured = read_to_string(output)?;
    let status = child.wait()?;
    ensure!(status.success(), "the measurement failed: {status}");
    // A file, so that neither side waits for the other.
    let mut file = tempfile::tempfile().context("no temporary file")?;
    file.write_all(measured.as_bytes())?;
    file.rewind()?;
    let mut command = Command::new(&program);
    let status = Supervised::spawn(command.args(then).stdin(file))?.wait()?;
    ensure!(
        status.success(),
        "the results are not what they should be: {status}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_every_other() {
        assert_eq!(What::Udp.methods(), [What::Udp]);
        let all = What::All.methods();
        assert_eq!(all.len(), What::value_variants().len() - 1);
        assert!(!all.contains(&What::All));
    }
}

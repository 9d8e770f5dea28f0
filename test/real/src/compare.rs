//! Speeds with xdptun and without, and how they are reported.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use xdptun_lab::extent::Extent;
use xdptun_lab::{Netns, wait};

/// What a line of [`Comparison::report`] begins with; `cargo xtask test` makes a table of them.
const PREFIX: &str = "ratio: ";

/// How long nothing may arrive.
const PATIENCE: Duration = Duration::from_secs(30);

/// How fast bytes go through a TCP connection from one host to an address of another, in MiB/s.
pub fn speed(from: &Netns, to: &Netns, at: SocketAddr, bytes: usize) -> Result<f64> {
    let limit = wait::stretched(PATIENCE)?;
    let listener = to
        .enter(|| TcpListener::bind(at))?
        .with_context(|| format!("cannot listen on {at}"))?;
    let connect = || TcpStream::connect_timeout(&at, limit);
    let mut near = from
        .enter(connect)?
        .with_context(|| format!("cannot connect to {at}"))?;
    let (mut far, _) = listener.accept()?;
    near.set_write_timeout(Some(limit))?;
    far.set_read_timeout(Some(limit))?;
    let started = Instant::now();
    let sender = thread::spawn(move || near.write_all(&vec![7; bytes]));
    let mut received = 0;
    let mut buffer = vec![0; 1 << 16];
    while received < bytes {
        let len = far
            .read(&mut buffer)
            .with_context(|| format!("nothing more arrives after {received} bytes"))?;
        ensure!(len > 0, "the connection ended after {received} bytes");
        received += len;
    }
    let seconds = started.elapsed().as_secs_f64();
    let sent = sender.join().map_err(|_| anyhow!("the sender panicked"))?;
    sent.context("cannot send")?;
    Ok(mib(bytes) / seconds)
}

/// Bytes in MiB.
#[must_use]
pub fn mib(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Up to the server, down from it.
pub type Speeds = [f64; 2];

/// Speeds of one kind and those they are compared with, in rounds.
#[derive(Debug)]
pub struct Comparison {
    /// The program; no comma in it.
    program: &'static str,
    /// What the two kinds are called.
    names: [&'static str; 2],
    rounds: Vec<[Speeds; 2]>,
}

impl Comparison {
    /// Nothing has been measured yet.
    #[must_use]
    pub fn new(program: &'static str, names: [&'static str; 2]) -> Self {
        Self {
            program,
            names,
            rounds: Vec::new(),
        }
    }

    /// Measures both kinds, as often as the extent of the run asks for. Which comes first
    /// changes from round to round.
    pub fn measure(
        mut self,
        mut one: impl FnMut() -> Result<Speeds>,
        mut other: impl FnMut() -> Result<Speeds>,
    ) -> Result<Self> {
        for round in 0..Extent::here().pick(1, 5) {
            let [first, second] = self.names;
            let mut one = || one().with_context(|| first);
            let mut other = || other().with_context(|| second);
            let pair = if round % 2 == 0 {
                let other = other()?;
                [one()?, other]
            } else {
                [one()?, other()?]
            };
            self.rounds.push(pair);
        }
        Ok(self)
    }

    /// Prints a line for each way, with the medians.
    pub fn report(&self) {
        for (way, name) in ["up", "down"].iter().enumerate() {
            let of = |kind: usize| -> Vec<f64> {
                let rounds = self.rounds.iter();
                rounds.map(|round| round[kind][way]).collect()
            };
            let (one, other) = (of(0), of(1));
            let ratios = one.iter().zip(&other).map(|(one, other)| one / other);
            let ratios: Vec<f64> = ratios.collect();
            let [first, second] = self.names;
            println!(
                "{PREFIX}{}, {name}, {:.0} MiB/s {first}, {:.0} MiB/s {second}, ratio {}",
                self.program,
                median(&one),
                median(&other),
                spread(&ratios),
            );
        }
    }
}

/// The one in the middle, or the upper of two.
fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The median, and the extremes where there are several.
fn spread(values: &[f64]) -> String {
    let middle = median(values);
    if values.len() < 2 {
        return format!("{middle:.2}");
    }
    let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = values.iter().copied().fold(0.0, f64::max);
    format!("{middle:.2} ({lowest:.2} to {highest:.2})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_round_has_no_spread() {
        assert_eq!(spread(&[0.5]), "0.50");
        assert_eq!(spread(&[0.5, 0.25, 1.0]), "0.50 (0.25 to 1.00)");
    }
}

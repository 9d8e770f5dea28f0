//! The highest rate that a path carries.

use std::net::UdpSocket;
use std::time::Duration;

use anyhow::Result;

use super::flood::{Load, Pace, Throughput, Wait, carry};

/// The share of datagrams that may be lost.
const ALLOWED_LOSS: f64 = 0.005;

/// Halvings of the range: an answer within 2 % of it.
const STEPS: u32 = 6;

/// Looks for the highest rate with less than 0.5 % loss, below and somewhat
/// above `saturated`, the datagrams received in a second when there is no pace.
/// `None` if even the lowest rate loses more.
pub fn highest_lossless(
    sender: &UdpSocket,
    receiver: &UdpSocket,
    length: usize,
    saturated: f64,
    time: Duration,
) -> Result<Option<Throughput>> {
    halve(saturated * 0.2, saturated * 1.4, |rate| {
        let load = Load {
            length,
            pace: Pace::PerSecond(rate),
            wait: Wait::Sleep,
            time,
            count: u64::MAX,
        };
        carry(sender, receiver, load)
    })
}

/// Narrows a range of rates down; returns the best that lost little enough.
fn halve(
    mut low: f64,
    mut high: f64,
    mut probe: impl FnMut(f64) -> Result<Throughput>,
) -> Result<Option<Throughput>> {
    let mut best: Option<Throughput> = None;
    for _ in 0..STEPS {
        let rate = f64::midpoint(low, high);
        let carried = probe(rate)?;
        if carried.loss() >= ALLOWED_LOSS {
            high = rate;
            continue;
        }
        low = rate;
        if best.is_none_or(|best| carried.per_second() > best.per_second()) {
            best = Some(carried);
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path that carries 1000 in a second.
    fn path(rate: f64) -> Throughput {
        let received = rate.min(1000.0) as u64;
        Throughput {
            sent: rate as u64,
            received,
            received_meanwhile: received,
            seconds: 1.0,
            cpu_seconds: 0.5,
        }
    }

    #[test]
    fn finds_what_a_path_carries() {
        let best = halve(200.0, 1400.0, |rate| Ok(path(rate)))
            .unwrap()
            .unwrap();
        assert!((980..=1000).contains(&best.received), "{best:?}");
        assert!(best.loss() < ALLOWED_LOSS);
    }

    #[test]
    fn a_path_that_always_loses_has_no_rate() {
        let lossy = |rate| {
            Ok(Throughput {
                received: 0,
                ..path(rate)
            })
        };
        assert_eq!(halve(1.0, 9.0, lossy).unwrap(), None);
    }
}

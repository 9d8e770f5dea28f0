//! Counters of packets that end here, which grow while the doctor looks: a ping works, and a
//! download hangs.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::Finding;
use crate::error::Result;
use crate::group::counter::{Counts, PacketEnd};

const CHECK: &str = "drops";

/// The shortest time between the two readings.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Fewer inbound packets may be of any stranger: scans come to every host.
const FEW: u64 = 10;

/// The counters of each function of an interface at the first reading.
pub struct Before {
    counts: Vec<Counts>,
    at: Instant,
}

impl Before {
    pub fn new(counts: Vec<Counts>) -> Self {
        Self {
            counts,
            at: Instant::now(),
        }
    }

    /// Waits for the end of the time, and judges by what they have counted then.
    pub fn check(
        &self,
        interface: &str,
        after: impl FnOnce() -> Result<Vec<Counts>>,
    ) -> Result<Vec<Finding>> {
        if self.counts.is_empty() {
            return Ok(Vec::new());
        }
        sleep(MIN_INTERVAL.saturating_sub(self.at.elapsed()));
        let after = after()?;
        Ok(judge(interface, &self.counts, &after, self.at.elapsed()))
    }
}

fn judge(interface: &str, before: &[Counts], after: &[Counts], time: Duration) -> Vec<Finding> {
    let seconds = time.as_secs_f64();
    let (mut growing, mut counted) = (Vec::new(), 0);
    let pairs = before.iter().zip(after).flat_map(|(before, after)| {
        let value = |name| before.get(name).unwrap_or_default();
        after
            .iter()
            .map(move |(counter, after)| (counter, value(counter.name), after))
    });
    for (counter, before, after) in pairs {
        if !counter.end.is_loss() && counter.end != PacketEnd::Returned {
            continue;
        }
        counted += u32::from(after > 0);
        let grown = after.saturating_sub(before);
        if grown > 0 {
            let what = format!(
                "{interface}: `{}` grew by {grown} in {seconds:.1} s: {} {}",
                counter.name, counter.meaning, counter.advice
            );
            let finding = match grown < FEW && counter.name.starts_with("rx_") {
                true => Finding::ok,
                false => Finding::warn,
            };
            growing.push(finding(CHECK, what.trim_end().to_owned()));
        }
    }
    if growing.is_empty() {
        let before = match counted {
            0 => "nor before, since it was attached".to_owned(),
            more => format!(
                "{more} did before: `xdptun status --iface {interface} --no-flows` shows them"
            ),
        };
        let what = format!(
            "{interface}: no counter of drops or of packets that are too big grew in {seconds:.1} s; \
             {before}"
        );
        growing.push(Finding::ok(CHECK, what));
    }
    growing
}

#[cfg(test)]
mod tests {
    use xdptun_common::tunnel::outcome::Outcome;

    use super::super::Level;
    use super::*;
    use crate::tunnel::counters::with_values;

    fn counts(values: &[(Outcome, u64)]) -> Counts {
        let named: Vec<_> = values
            .iter()
            .map(|(outcome, value)| (outcome.name(), *value))
            .collect();
        with_values(&named)
    }

    #[test]
    fn what_grows_is_told_with_its_advice() {
        let before = counts(&[(Outcome::TxTooBig, 5), (Outcome::RxDropChecksum, 7)]);
        let before = [before];
        let said = |after| judge("eth0", &before, &[after], MIN_INTERVAL);
        let grown = said(counts(&[
            (Outcome::TxTooBig, 6),
            (Outcome::RxDropChecksum, 7),
            (Outcome::RxRestored, 9),
        ]));
        let [finding] = &grown[..] else {
            panic!("{grown:?}");
        };
        assert_eq!(finding.level, Level::Warn);
        for words in ["`tx_too_big` grew by 1 in 1.0 s", "lower the MTU"] {
            assert!(finding.what.contains(words), "{}", finding.what);
        }
        let stays = said(counts(&[
            (Outcome::TxTooBig, 5),
            (Outcome::RxDropChecksum, 7),
        ]));
        assert_eq!((stays.len(), stays[0].level), (1, Level::Ok));
        assert!(stays[0].what.contains("2 did before"), "{}", stays[0].what);
        let scanned = [counts(&[(Outcome::RxDropNoFlow, FEW - 1)])];
        let none = [counts(&[])];
        assert_eq!(
            judge("eth0", &none, &scanned, MIN_INTERVAL)[0].level,
            Level::Ok
        );
        let flooded = [counts(&[(Outcome::RxDropNoFlow, FEW)])];
        assert_eq!(
            judge("eth0", &none, &flooded, MIN_INTERVAL)[0].level,
            Level::Warn
        );
        let none = judge("eth0", &[counts(&[])], &[counts(&[])], MIN_INTERVAL);
        assert!(
            none[0].what.ends_with("nor before, since it was attached"),
            "{}",
            none[0].what
        );
    }
}

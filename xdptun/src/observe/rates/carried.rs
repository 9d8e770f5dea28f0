//! What flows carried in an interval, and how much that is in a second.

use std::time::Duration;

use serde::Serialize;

use crate::observe::status::FlowStatus;

/// Datagrams and their payload, each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Traffic {
    /// Datagrams disguised, per second.
    pub tx_packets_per_s: f64,
    /// Their payload in bits per second. For an interface, the sum over the flows that
    /// exist at the end of the interval.
    pub tx_bits_per_s: f64,
    /// Datagrams restored, per second.
    pub rx_packets_per_s: f64,
    /// Their payload in bits per second.
    pub rx_bits_per_s: f64,
}

/// Datagrams and bytes that a flow carried in an interval.
#[derive(Clone, Copy, Default, PartialEq)]
pub struct Carried {
    pub tx_packets: u64,
    pub tx_bytes: u64,
    pub rx_packets: u64,
    pub rx_bytes: u64,
}

impl Carried {
    pub fn between(then: Option<&FlowStatus>, now: &FlowStatus) -> Self {
        Self {
            tx_packets: growth(then.map(|flow| flow.tx_packets), now.tx_packets),
            tx_bytes: growth(then.map(|flow| flow.tx_bytes), now.tx_bytes),
            rx_packets: growth(then.map(|flow| flow.rx_packets), now.rx_packets),
            rx_bytes: growth(then.map(|flow| flow.rx_bytes), now.rx_bytes),
        }
    }

    pub fn over(self, interval: Duration) -> Traffic {
        Traffic {
            tx_packets_per_s: per_second(self.tx_packets, interval),
            tx_bits_per_s: per_second(self.tx_bytes, interval) * 8.0,
            rx_packets_per_s: per_second(self.rx_packets, interval),
            rx_bits_per_s: per_second(self.rx_bytes, interval) * 8.0,
        }
    }
}

/// How much a counter grew. A counter that is smaller than before began anew.
pub fn growth(before: Option<u64>, now: u64) -> u64 {
    now.checked_sub(before.unwrap_or_default()).unwrap_or(now)
}

/// Zero for an empty interval.
pub fn per_second(amount: u64, interval: Duration) -> f64 {
    if interval.is_zero() {
        return 0.0;
    }
    amount as f64 / interval.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_is_no_rate() {
        assert_eq!(per_second(5, Duration::ZERO), 0.0);
    }
}

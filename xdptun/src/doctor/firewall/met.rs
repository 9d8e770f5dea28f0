//! What is known of a condition.

use serde_json::Value;

use crate::doctor::nftables::port_range;
use crate::host::ports::PortRange;

/// Whether a condition is met.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Met {
    Yes,
    No,
    Unknown,
}

impl Met {
    pub const fn from_bool(met: bool) -> Self {
        if met { Self::Yes } else { Self::No }
    }

    pub const fn not(self) -> Self {
        match self {
            Self::Yes => Self::No,
            Self::No => Self::Yes,
            Self::Unknown => Self::Unknown,
        }
    }

    /// Whether all of the owned ports are among values.
    pub fn by_ports(values: &[&Value], owned: PortRange) -> Self {
        let (first, last) = owned.bounds();
        let mut overlaps = false;
        for value in values {
            let Some(range) = port_range(value) else {
                return Self::Unknown;
            };
            if range.contains(first) && range.contains(last) {
                return Self::Yes;
            }
            overlaps |= range.overlaps(&owned);
        }
        if overlaps { Self::Unknown } else { Self::No }
    }
}

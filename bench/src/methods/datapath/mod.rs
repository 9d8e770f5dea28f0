//! The time that each program takes for a packet, by the kernel's own count.

mod foreign;
mod measure;
mod rig;
mod tables;
mod veil;

use xdptun_lab::Family;

use crate::table::Bar;

pub use measure::measure;
pub use tables::sections;

/// Payload bytes.
const LENGTHS: [usize; 3] = [64, 512, 1400];

/// Datagrams of a super-packet.
const PIECES: usize = 10;

/// The only metric: run time divided by runs, counting included.
const METRIC: &str = "ns";

/// For super-packets, which a program meets as well: its runs by datagrams.
const RUNS: &str = "runs";

/// Programs as the results name them.
const EGRESS: &str = "egress, tc";
const SPLITTER: &str = "splitter, tc";
const INGRESS_TC: &str = "ingress, tc";
const INGRESS_XDP: &str = "ingress, XDP";
const BEHIND_XDP: &str = "ingress, tc behind XDP";
const HELPER: &str = "helper";
/// The same programs of the floor.
const FLOOR_EGRESS: &str = "floor, egress, tc";
const FLOOR_INGRESS_TC: &str = "floor, ingress, tc";
const FLOOR_INGRESS_XDP: &str = "floor, ingress, XDP";
/// The same programs with the veil.
const VEIL_EGRESS: &str = "veil, egress, tc";
const VEIL_INGRESS_TC: &str = "veil, ingress, tc";
const VEIL_INGRESS_XDP: &str = "veil, ingress, XDP";
const VEIL_BEHIND_XDP: &str = "veil, ingress, tc behind XDP";

/// What a restoring program may take, in times of the floor.
const INGRESS_BAR: Bar = Bar::at_most(1.7, 1.4);

/// How a datagram reaches the egress program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Input {
    Complete,
    Partial,
    /// Forwarded, with room before the headers.
    CompleteWithRoom,
    PartialWithRoom,
    /// In super-packets of [`PIECES`].
    Gso,
}

impl Input {
    const ALL: [Self; 5] = [
        Self::Complete,
        Self::Partial,
        Self::CompleteWithRoom,
        Self::PartialWithRoom,
        Self::Gso,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete, from a socket",
            Self::Partial => "PARTIAL, from a socket",
            Self::CompleteWithRoom => "complete, with headroom",
            Self::PartialWithRoom => "PARTIAL, with headroom",
            Self::Gso => "GSO, each of 10",
        }
    }

    /// What egress may take, in times of the floor.
    const fn bar(self) -> Bar {
        match self.is_partial() {
            true => Bar::at_most(1.25, 1.15),
            false => Bar::at_most(2.0, 1.5),
        }
    }

    /// Whether the floor is measured with it.
    const fn has_floor(self) -> bool {
        matches!(self, Self::Complete | Self::Partial)
    }

    const fn has_room(self) -> bool {
        matches!(self, Self::CompleteWithRoom | Self::PartialWithRoom)
    }

    const fn is_partial(self) -> bool {
        matches!(self, Self::Partial | Self::PartialWithRoom | Self::Gso)
    }
}

fn case(family: Family, length: usize, input: Input) -> String {
    format!("{family}, {length} bytes, {}", input.name())
}

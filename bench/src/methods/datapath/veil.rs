//! The programs with the veil (`--veil`) and without, by what payloads start with.

use anyhow::Result;
use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Family, secret};

use super::rig::Rig;
use super::{
    BEHIND_XDP, EGRESS, INGRESS_TC, INGRESS_XDP, METRIC, VEIL_BEHIND_XDP, VEIL_EGRESS,
    VEIL_INGRESS_TC, VEIL_INGRESS_XDP,
};
use crate::harness::Round;
use crate::table::Goal;

/// What the veil may add to a program for data of WireGuard, in nanoseconds.
const GOAL: Goal = Goal::AtMost(60.0);

/// Each program as the results name it, without the veil and with it.
const PROGRAMS: [[&str; 2]; 4] = [
    [EGRESS, VEIL_EGRESS],
    [INGRESS_TC, VEIL_INGRESS_TC],
    [INGRESS_XDP, VEIL_INGRESS_XDP],
    [BEHIND_XDP, VEIL_BEHIND_XDP],
];

/// What a payload looks like: the veil covers more of some than of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Payload {
    WireGuard,
    Quic,
    Other,
}

impl Payload {
    const ALL: [Self; 3] = [Self::WireGuard, Self::Quic, Self::Other];

    const fn name(self) -> &'static str {
        match self {
            Self::WireGuard => "WireGuard data",
            Self::Quic => "QUIC data",
            Self::Other => "other",
        }
    }

    /// Its first bytes.
    const fn first(self) -> &'static [u8] {
        match self {
            Self::WireGuard => &[4, 0, 0, 0],
            Self::Quic => &[0x40],
            // A handshake of QUIC.
            Self::Other => &[0xc0],
        }
    }
}

/// One kind of datagrams.
#[derive(Debug, Clone, Copy)]
pub struct Datagram {
    family: Family,
    length: usize,
    payload: Payload,
    is_padded: bool,
}

impl Datagram {
    /// Its name in the results.
    pub fn case(self) -> String {
        let Self { family, length, .. } = self;
        let padded = if self.is_padded { ", padded" } else { "" };
        let payload = self.payload.name();
        format!("{family}, {length} bytes, {payload}{padded}")
    }

    /// What the veil may add to each program.
    pub fn goal(self) -> Option<Goal> {
        let is_usual = self.payload == Payload::WireGuard && !self.is_padded;
        is_usual.then_some(GOAL)
    }

    /// The programs whose time the veil changes, without the veil and with it.
    pub fn programs(self) -> &'static [[&'static str; 2]] {
        // XDP leaves padded datagrams to tc.
        let count = if self.is_padded { 4 } else { 3 };
        &PROGRAMS[..count]
    }
}

/// All kinds of a family.
pub fn datagrams(family: Family) -> Vec<Datagram> {
    let of = |(length, payload, is_padded)| Datagram {
        family,
        length,
        payload,
        is_padded,
    };
    let lengths = [64, 1400].into_iter();
    let plain = lengths.flat_map(|length| Payload::ALL.map(|payload| (length, payload, false)));
    let padded = [(64, Payload::WireGuard, true)];
    plain.chain(padded).map(of).collect()
}

/// Paths with the veil; each pair restores by tc and by XDP.
pub struct Veil {
    unpadded: [Rig; 2],
    padded: [Rig; 2],
    /// Has the secret.
    _scratch: Scratch,
}

impl Veil {
    pub fn new() -> Result<Self> {
        let scratch = Scratch::new()?;
        let secret = secret::write(scratch.path(), "secret", "correct horse battery")?;
        let rig = |name, ingress, veil| {
            Rig::with(name, &["--ingress", ingress, "--secret", &secret, veil])
        };
        Ok(Self {
            unpadded: [
                rig("veil, tc", "tc", "--veil=0")?,
                rig("veil, XDP", "xdp", "--veil=0")?,
            ],
            padded: [
                rig("veil with padding, tc", "tc", "--veil=256")?,
                rig("veil with padding, XDP", "xdp", "--veil=256")?,
            ],
            _scratch: scratch,
        })
    }

    /// One kind of datagrams through all programs, on `plain` paths and on those with the veil.
    pub fn programs(
        &self,
        round: &mut Round<'_>,
        plain: [&Rig; 2],
        datagram: Datagram,
        count: u64,
    ) -> Result<()> {
        let [tc, xdp] = match datagram.is_padded {
            true => &self.padded,
            false => &self.unpadded,
        };
        for (veiled, rigs) in [plain, [tc, xdp]].into_iter().enumerate() {
            let times = times(rigs, datagram, count)?;
            for (paths, ns) in PROGRAMS.into_iter().zip(times) {
                round.keep(&datagram.case(), paths[veiled], &[(METRIC, ns)]);
            }
        }
        Ok(())
    }
}

/// Nanoseconds of each of [`PROGRAMS`].
fn times([tc, xdp]: [&Rig; 2], datagram: Datagram, count: u64) -> Result<[f64; 4]> {
    let Datagram { family, length, .. } = datagram;
    let first = datagram.payload.first();
    let [before, after] = tc.send_starting_with(family, length, first, count)?;
    let egress = after[0].since(&before[0], "xdptun_egress")?;
    let ingress = after[1].since(&before[1], "xdptun_ingress")?;
    let [[_, before], [_, after]] = xdp.send_starting_with(family, length, first, count)?;
    let restored = after.since(&before, "xdptun_xdp")?;
    let behind = after.since(&before, "xdptun_ingress")?;
    Ok([
        egress.each()?,
        ingress.each()?,
        restored.each()?,
        behind.each()?,
    ])
}

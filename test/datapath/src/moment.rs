//! The kernel's coarse clock.
//!
//! The programs take the time from `bpf_ktime_get_coarse_ns`, which stands still
//! between two ticks. So a row that starts and ends within one tick knows the
//! program's clock to the nanosecond, and with it the initial sequence number,
//! the window of a control segment and every time stamp of a flow.
//! The programs keep a reading for a tick; a run takes a new one ([`Remembered`]).

use std::time::Duration;

use std::sync::LazyLock;

use aya::maps::{Array, MapData};
use aya::{Ebpf, Pod};
use nix::time::{ClockId, clock_gettime};
use xdptun_common::flow::key::FlowKey;
use xdptun_common::flow::tick::Tick;
use xdptun_common::tunnel::isn::{EPOCH_NS, Secret, label_of};
use xdptun_common::tunnel::proof::{ProofKey, proof_epoch};
use xdptun_common::tunnel::veil::VeilKey;

use crate::kernel::take;

/// The key that all tests load the programs with.
pub static SECRET: LazyLock<Secret> =
    LazyLock::new(|| Secret::new([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]));

/// The key of the proofs that all tests load the programs with.
pub const PROOF_KEY: ProofKey = ProofKey([0x1716_1514_1312_1110, 0x1f1e_1d1c_1b1a_1918]);

/// Another key that admits callers.
pub const SECOND_KEY: ProofKey = ProofKey([0x2726_2524_2322_2120, 0x2f2e_2d2c_2b2a_2928]);

/// The key of a peer that has one of its own.
pub const OWN_KEY: ProofKey = ProofKey([0x3736_3534_3332_3130, 0x3f3e_3d3c_3b3a_3938]);

/// The key of the veil.
pub const VEIL_KEY: VeilKey = VeilKey([0x4746_4544_4342_4140, 0x4f4e_4d4c_4b4a_4948]);

/// That of a peer with a secret of its own.
pub const OWN_VEIL_KEY: VeilKey = VeilKey([0x5756_5554_5352_5150, 0x5f5e_5d5c_5b5a_5958]);

/// One value of the coarse clock, in nanoseconds of `CLOCK_MONOTONIC`, and the
/// proof epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment(u64, u64);

impl Moment {
    /// The present.
    ///
    /// # Panics
    ///
    /// If the kernel has no such clock.
    #[must_use]
    pub fn now() -> Self {
        let read = |clock| {
            let time = clock_gettime(clock).expect("every Linux has it");
            u64::try_from(Duration::from(time).as_nanos()).expect("584 years")
        };
        let tai = read(ClockId::CLOCK_TAI);
        Self(read(ClockId::CLOCK_MONOTONIC_COARSE), proof_epoch(tai))
    }

    /// In nanoseconds.
    #[must_use]
    pub const fn ns(self) -> u64 {
        self.0
    }

    /// In ticks, as flows keep short times.
    #[must_use]
    pub const fn tick(self) -> u32 {
        Tick::at(self.0).0
    }

    /// Some nanoseconds ago; zero at the earliest.
    #[must_use]
    pub const fn before(self, ns: u64) -> u64 {
        self.0.saturating_sub(ns)
    }

    /// Some milliseconds ago; zero at the earliest.
    #[must_use]
    pub const fn before_ms(self, ms: u64) -> u64 {
        self.before(ms * 1_000_000)
    }

    /// The initial sequence number, and SYN cookie, of a flow.
    #[must_use]
    pub fn isn(self, flow: &FlowKey) -> u32 {
        SECRET.isn(flow, self.0)
    }

    /// The one that was given so many epochs ago.
    #[must_use]
    pub fn earlier_isn(self, flow: &FlowKey, epochs: u64) -> u32 {
        SECRET.isn_of_epoch(flow, (self.0 / EPOCH_NS).wrapping_sub(epochs))
    }

    /// The flow label of segments of a flow that a peer opened.
    #[must_use]
    pub fn label(self, flow: &FlowKey) -> u32 {
        label_of(SECRET.isn_of_epoch(flow, Secret::LABEL_EPOCH))
    }

    /// Where the IPv4 identifications of a flow with this initial number begin.
    #[must_use]
    pub fn identification(self, flow: &FlowKey, iss: u32) -> u16 {
        SECRET.isn_of_epoch(flow, iss.into()) as u16
    }

    /// The proof of a flow's SYN with this number in an epoch, counted from the present one.
    #[must_use]
    pub fn proof(self, isn: u32, count: u16, epochs: i64) -> u32 {
        PROOF_KEY.proof(isn, count, self.1.wrapping_add_signed(epochs))
    }

    /// The proof of a SYN by another key now.
    #[must_use]
    pub fn proof_by(self, key: ProofKey, isn: u32, count: u16) -> u32 {
        key.proof(isn, count, self.1)
    }

    /// The proof of a SYN by another key in an epoch, counted from the present one.
    #[must_use]
    pub fn proof_in(self, key: ProofKey, isn: u32, count: u16, epochs: i64) -> u32 {
        key.proof(isn, count, self.1.wrapping_add_signed(epochs))
    }
}

/// What the programs of an object remember for a while, in so many words: their last reading of
/// the clock, what fits the interface, and when they last sent a datagram through GRO, or a segment to
/// the splitter. They have no other variables that change.
pub struct Remembered<const WORDS: usize>(Array<MapData, [u64; WORDS]>)
where
    [u64; WORDS]: Pod;

impl<const WORDS: usize> Remembered<WORDS>
where
    [u64; WORDS]: Pod,
{
    /// That of an object.
    ///
    /// # Panics
    ///
    /// If it has none.
    pub fn take(ebpf: &mut Ebpf) -> Self {
        Self(take(ebpf, ".bss"))
    }

    /// Makes the next run read the clock: the kernel counts a tick a moment before its clock
    /// moves, and what was read meanwhile would be that of the tick before.
    ///
    /// # Panics
    ///
    /// If the words cannot be written.
    pub fn forget(&mut self) {
        self.0.set(0, [0; WORDS], 0).expect("they can be written");
    }
}

/// The bit of a window that says that the sender of a segment without data takes fragments.
const TAKES_FRAGMENTS: u16 = 0x0100;

/// The window of a segment with data: its low byte is the highest of the acknowledgement number.
#[must_use]
pub const fn window(acknowledgment: u32) -> u16 {
    let [high, ..] = acknowledgment.to_be_bytes();
    u16::from_be_bytes([0xf0, high])
}

/// The window of a segment without data.
#[must_use]
pub(crate) const fn control_window(acknowledgment: u32) -> u16 {
    TAKES_FRAGMENTS | window(acknowledgment)
}

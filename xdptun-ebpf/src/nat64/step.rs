//! What comes of a packet. Global functions (the verifier's word) return it, so it is a number.

use xdptun_common::nat64::outcome::Outcome;

use crate::machine::opaque;
use crate::packet::error::PacketError;

/// What comes of a packet.
#[derive(Clone, Copy)]
pub enum Step {
    /// It ended.
    Done(Outcome),
    /// It is an ICMP error, and not looked at yet.
    Message,
    /// It is a fragment that IPv6's headers would make too long, and not cut yet.
    TooLong,
}

/// The number of [`Step::Message`].
pub const MESSAGE: u32 = 0x100;
/// The number of [`Step::TooLong`].
pub const TOO_LONG: u32 = 0x101;

/// A [`Step`] as a number: the index of its outcome, or one of these.
#[inline(always)]
pub fn number(step: Result<Step, PacketError>, refused: impl Fn(PacketError) -> Outcome) -> u32 {
    match step {
        Ok(Step::Message) => MESSAGE,
        Ok(Step::TooLong) => TOO_LONG,
        Ok(Step::Done(outcome)) => outcome.index(),
        Err(error) => refused(error).index(),
    }
}

/// The outcome with an index.
#[inline(always)]
pub fn outcome(index: u32) -> Option<Outcome> {
    // One register, so that the verifier knows its bound when it is an offset.
    Outcome::ALL.get(opaque(index.into()) as usize).copied()
}

/// The outcome of an IPv6 packet that could not be read or changed.
#[inline(always)]
pub const fn refused_v6(error: PacketError) -> Outcome {
    match error {
        PacketError::OutOfBounds => Outcome::ToV4DropMalformed,
        PacketError::TooLong => Outcome::ToV4DropTooLong,
        PacketError::Resize | PacketError::Access | PacketError::NoScratch => {
            Outcome::ToV4DropAccess
        }
    }
}

/// The same of an IPv4 packet.
#[inline(always)]
pub const fn refused_v4(error: PacketError) -> Outcome {
    match error {
        PacketError::OutOfBounds => Outcome::ToV6DropMalformed,
        PacketError::TooLong => Outcome::ToV6DropTooLong,
        PacketError::Resize | PacketError::Access | PacketError::NoScratch => {
            Outcome::ToV6DropAccess
        }
    }
}

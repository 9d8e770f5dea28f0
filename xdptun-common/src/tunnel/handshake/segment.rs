//! Received segments, and the replies to them.

use crate::tunnel::outcome::Sent;
use crate::wire::Flags;

/// What of an inbound segment matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Control bits.
    pub flags: Flags,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number.
    pub acknowledgment: u32,
    /// Payload length in bytes.
    pub len: u32,
    /// Whether its sender asks for an answer ([`crate::tunnel::window::asks`]).
    pub asks: bool,
    /// Whether it names its sender's latest numbers ([`crate::tunnel::window::is_exact`]).
    pub exact: bool,
}

/// A control segment to send back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// What it is, and its counter.
    pub kind: Sent,
    /// Control bits.
    pub flags: Flags,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number.
    pub acknowledgment: u32,
}

impl Segment {
    /// The sequence number after its payload.
    #[inline(always)]
    #[must_use]
    pub const fn end(&self) -> u32 {
        self.sequence.wrapping_add(self.len)
    }

    /// Whether it is a challenge: its sender is there, but did not take what we sent.
    #[inline(always)]
    #[must_use]
    pub const fn is_challenge(&self) -> bool {
        self.exact && !self.asks && !self.is_datagram()
    }

    /// Whether it carries a datagram: payload, or PSH for an empty one.
    #[inline(always)]
    #[must_use]
    pub const fn is_datagram(&self) -> bool {
        self.len != 0 || self.flags.contains(Flags::PSH)
    }

    /// The reset that a segment without a flow deserves. One that acknowledges nothing
    /// deserves none: an open port of Linux ignores NULL, FIN and Xmas scans (RFC 9293
    /// section 3.10.7.2, "any other control or data-bearing segment"), and so the port
    /// looks open, as it is. A reset gets none either.
    #[inline(always)]
    pub(super) const fn reset(&self) -> Reply {
        if !self.flags.contains(Flags::ACK) || self.flags.contains(Flags::RST) {
            return Reply::NONE;
        }
        Reply {
            kind: Sent::Rst,
            flags: Flags::RST,
            sequence: self.acknowledgment,
            acknowledgment: 0,
        }
    }
}

impl Reply {
    /// No reply: no segment has no flags.
    pub const NONE: Self = Self {
        kind: Sent::Ack,
        flags: Flags(0),
        sequence: 0,
        acknowledgment: 0,
    };

    /// Whether there is one.
    #[inline(always)]
    #[must_use]
    pub const fn is_some(&self) -> bool {
        self.flags.0 != 0
    }
}

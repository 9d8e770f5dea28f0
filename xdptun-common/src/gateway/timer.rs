//! How long a session lives without a packet.

use crate::flow::tick::Tick;
use crate::gateway::session::Marks;
use crate::wire::Protocol;

/// Times without a packet after which a session ends, in ticks ([`Tick`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Timers {
    /// UDP.
    pub udp: u32,
    /// TCP before both ends have proved themselves.
    pub tcp_transitory: u32,
    /// TCP once it has ended.
    pub tcp_ended: u32,
    /// TCP in between.
    pub tcp_established: u32,
    /// Any other protocol.
    pub other: u32,
}

crate::plain!(Timers: 20);

impl Timers {
    /// In ticks, from seconds.
    #[must_use]
    pub const fn from_seconds(
        udp: u32,
        tcp_transitory: u32,
        tcp_established: u32,
        other: u32,
    ) -> Self {
        Self {
            udp: ticks(udp),
            tcp_transitory: ticks(tcp_transitory),
            tcp_ended: ticks(tcp_transitory),
            tcp_established: ticks(tcp_established),
            other: ticks(other),
        }
    }

    /// Seconds for UDP (RFC 4787 REQ-5).
    pub const UDP: u32 = 300;
    /// Seconds for TCP that is not established, or has ended (RFC 5382 REQ-5).
    pub const TCP_TRANSITORY: u32 = 240;
    /// Seconds for TCP that is established (RFC 5382 REQ-5).
    pub const TCP_ESTABLISHED: u32 = 7440;
    /// Seconds for all else (RFC 5508 REQ-2).
    pub const OTHER: u32 = 60;

    /// These times.
    pub const DEFAULT: Self = Self::from_seconds(
        Self::UDP,
        Self::TCP_TRANSITORY,
        Self::TCP_ESTABLISHED,
        Self::OTHER,
    );

    /// How long a session lives without a packet that has these marks, in both directions
    /// together.
    #[inline(always)]
    #[must_use]
    pub const fn of(&self, protocol: Protocol, marks: Marks) -> u32 {
        match protocol {
            Protocol::TCP if marks.has_ended() => self.tcp_ended,
            Protocol::TCP if marks.is_proven() => self.tcp_established,
            Protocol::TCP => self.tcp_transitory,
            Protocol::UDP => self.udp,
            _ => self.other,
        }
    }

    /// The same, with so many seconds for a connection that has ended, if that is less.
    #[must_use]
    pub const fn with_ended(self, seconds: u32) -> Self {
        let tcp_ended = ticks(seconds);
        Self {
            tcp_ended: if tcp_ended < self.tcp_ended {
                tcp_ended
            } else {
                self.tcp_ended
            },
            ..self
        }
    }

    /// The longest timeout, in seconds. Ticks wrap: a longer one would look like the past.
    pub const MAX_SECONDS: u32 = 1_000_000;

    /// The shortest of these times for a protocol: nothing that was used since has ended.
    #[inline(always)]
    #[must_use]
    pub const fn shortest(&self, protocol: Protocol) -> u32 {
        match protocol {
            Protocol::TCP => {
                let mut shortest = self.tcp_established;
                if self.tcp_transitory < shortest {
                    shortest = self.tcp_transitory;
                }
                if self.tcp_ended < shortest {
                    shortest = self.tcp_ended;
                }
                shortest
            }
            Protocol::UDP => self.udp,
            _ => self.other,
        }
    }

    /// Whether a session has ended whose directions have these marks together, and the later
    /// of whose packets was seen then.
    #[inline(always)]
    #[must_use]
    pub const fn is_over(&self, protocol: Protocol, marks: Marks, seen: u32, now: Tick) -> bool {
        now.since(seen) > self.of(protocol, marks)
    }
}

/// Seconds in ticks of 2^20 ns.
const fn ticks(seconds: u32) -> u32 {
    ((seconds as u64 * 1_000_000_000) >> 20) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Flags;

    const NOW: Tick = Tick(50_000_000);

    /// Whether a session is over, so many seconds after its last packet.
    fn over(protocol: Protocol, marks: Marks, seconds: u32) -> bool {
        let seen = NOW.0 - ticks(seconds) - 1;
        Timers::DEFAULT.is_over(protocol, marks, seen, NOW)
    }

    #[test]
    fn what_has_ended_can_go_sooner() {
        let ended = Marks::default().proven().after(Flags::RST);
        let timers = Timers::DEFAULT.with_ended(10);
        for (marks, seconds) in [(ended, 10), (Marks::default(), 240)] {
            assert_eq!(timers.of(Protocol::TCP, marks), ticks(seconds));
        }
        assert_eq!(timers.shortest(Protocol::TCP), ticks(10));
        assert_eq!(Timers::DEFAULT.with_ended(1000), Timers::DEFAULT);
    }

    #[test]
    fn each_state_has_its_time() {
        let open = Marks::default().proven();
        let half = open.after(Flags::FIN.with(Flags::ACK));
        let reset = open.after(Flags::RST);
        let closed = half.with(open.after(Flags::FIN).in_answer());
        for (protocol, marks, seconds) in [
            (Protocol::UDP, Marks::default(), 300),
            (Protocol::UDP, open, 300),
            (Protocol::TCP, Marks::default(), 240),
            (Protocol::TCP, open, 7440),
            // One end may go on for long after the other has nothing more to say.
            (Protocol::TCP, half, 7440),
            (Protocol::TCP, closed, 240),
            (Protocol::TCP, reset, 240),
            (Protocol::ICMP, open, 60),
        ] {
            assert!(!over(protocol, marks, seconds - 1), "{marks:?}");
            assert!(over(protocol, marks, seconds), "{marks:?}");
        }
    }
}

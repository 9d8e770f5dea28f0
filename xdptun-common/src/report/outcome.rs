//! What a function counts, and what becomes of the packets that it handles.
//!
//! Each function lists its counters with `counters!`, and the endings of its packets with
//! `outcomes!`. The engine counts and ends packets by the traits that both implement.

/// Counters in the row of an interface, for any function: so the layout of the `COUNTERS` map
/// does not depend on how many a function has.
pub const IN_ROW: u32 = 128;

/// What a counter holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CounterValue {
    /// Packets, or what else it counts.
    pub count: u64,
    /// The bytes of packets that ended so, link header included, with the length that they ended
    /// with; zero if it counts anything else.
    pub bytes: u64,
}

crate::plain::plain! {
    CounterValue: 16,
}

impl core::iter::Sum for CounterValue {
    fn sum<I: Iterator<Item = Self>>(values: I) -> Self {
        values.fold(Self::default(), |sum, one| Self {
            count: sum.count + one.count,
            bytes: sum.bytes + one.bytes,
        })
    }
}

/// What a function counts up.
pub trait Counter: Copy + 'static {
    /// Every counter of this kind, in the order of their indexes.
    const ALL: &'static [Self];

    /// Its index in the row of an interface, below [`IN_ROW`].
    fn index(self) -> u32;

    /// Its name in status output and metrics.
    fn name(self) -> &'static str;

    /// Its meaning, in one line.
    fn meaning(self) -> &'static str;

    /// What an operator does about it; empty if there is nothing to do.
    fn advice(self) -> &'static str;
}

/// How a packet that concerns a function ends, which is counted.
pub trait Ending: Counter {
    /// What becomes of the packet.
    fn fate(self) -> Fate;
}

/// What becomes of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes on its way; later filters still see it.
    Pass,
    /// It goes on as a control segment; the datagram that it was is lost.
    PassEmpty,
    /// It goes through the splitter and comes back in pieces.
    Split,
    /// It comes in by the interface that it was about to leave by.
    ComeIn,
    /// It was turned into a message to its sender.
    Return,
    /// It ends here, and its sender is told that it went well: the daemon has a copy.
    Hold,
    /// It ends here, and has done its work.
    Consume,
    /// It ends here, and what it carried is lost.
    Lose,
}

impl Fate {
    /// Whether the packet, or the datagram that it was, is lost. Its sender does not know, unless the
    /// daemon tells it.
    #[must_use]
    pub const fn is_loss(self) -> bool {
        match self {
            Self::Lose | Self::PassEmpty => true,
            Self::Pass | Self::Split | Self::ComeIn | Self::Return | Self::Hold | Self::Consume => {
                false
            }
        }
    }
}

/// Makes an enum of counters: for each a variant, its name, its meaning and advice.
macro_rules! counters {
    (
        $(#[$doc:meta])* $name:ident, first $first:expr;
        $($variant:ident $label:literal $meaning:literal $advice:literal;)+
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum $name {
            $(#[doc = $meaning] $variant,)+
        }

        impl $name {
            /// Every variant, in the order of their counters.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The index of its counter in the row of an interface.
            #[inline(always)]
            #[must_use]
            pub const fn index(self) -> u32 {
                $first + self as u32
            }

            /// The name in status output and metrics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $label,)+ }
            }

            /// What it means, in one line.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)+ }
            }

            /// What an operator does about it; empty if there is nothing to do.
            #[must_use]
            pub const fn advice(self) -> &'static str {
                match self { $(Self::$variant => $advice,)+ }
            }
        }

        impl $crate::report::outcome::Counter for $name {
            const ALL: &'static [Self] = Self::ALL;

            #[inline(always)]
            fn index(self) -> u32 {
                self.index()
            }

            fn name(self) -> &'static str {
                self.name()
            }

            fn meaning(self) -> &'static str {
                self.meaning()
            }

            fn advice(self) -> &'static str {
                self.advice()
            }
        }
    };
}
pub(crate) use counters;

/// Counters that decide the fate of a packet as well: each packet ends in one of them.
macro_rules! outcomes {
    (
        $(#[$doc:meta])* $name:ident, first $first:expr;
        $($variant:ident $label:literal $fate:ident $meaning:literal $advice:literal;)+
    ) => {
        $crate::report::outcome::counters! {
            $(#[$doc])* $name, first $first;
            $($variant $label $meaning $advice;)+
        }

        impl $name {
            /// What becomes of the packet.
            #[inline(always)]
            #[must_use]
            pub const fn fate(self) -> $crate::report::outcome::Fate {
                match self { $(Self::$variant => $crate::report::outcome::Fate::$fate,)+ }
            }
        }

        impl $crate::report::outcome::Ending for $name {
            #[inline(always)]
            fn fate(self) -> $crate::report::outcome::Fate {
                self.fate()
            }
        }
    };
}
pub(crate) use outcomes;

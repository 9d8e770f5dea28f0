//! How long the tests of programs of others take.

/// The environment variable that chooses; `cargo xtask test all-real` sets it.
pub const EXTENT: &str = "XDPTUN_EXTENT";

/// The value of [`EXTENT`] that means [`Extent::Long`].
pub const LONG: &str = "long";

/// How much is transferred, and how long is waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Enough to see that it works: what CI runs.
    Short,
    /// Enough for numbers that can be compared.
    Long,
}

impl Extent {
    /// The one of this run.
    #[must_use]
    pub fn here() -> Self {
        match std::env::var_os(EXTENT) {
            Some(value) if value == LONG => Self::Long,
            _ => Self::Short,
        }
    }

    /// The value for this extent.
    pub fn pick<T>(self, short: T, long: T) -> T {
        match self {
            Self::Short => short,
            Self::Long => long,
        }
    }
}

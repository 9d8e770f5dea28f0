//! Why a rule is refused.

use ipnet::IpNet;
use xdptun_common::policy::rule::{MAX_RULES, NAME};
use xdptun_common::policy::table::{MAX_PATTERN, MAX_PATTERNS};

use super::{Offset, Pattern, PolicyAction, RuleName};
use crate::error::{Error, Kind};

/// Why a rule is refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PolicyError {
    /// It has no pattern.
    #[error("no pattern: the rule would match nothing; give it at least one to look for")]
    NoPattern,
    /// It has too many patterns; so many.
    #[error("{0} patterns are too many; a rule has {MAX_PATTERNS} at most, so write two rules")]
    TooManyPatterns(usize),
    /// A pattern has no byte.
    #[error("an empty pattern would match everything; give it 1 to {MAX_PATTERN} bytes")]
    EmptyPattern,
    /// A pattern is too long; so many bytes.
    #[error(
        "a pattern of {0} bytes is too long; {MAX_PATTERN} bytes are the most, so take a part of it"
    )]
    LongPattern(usize),
    /// A pattern is not what it says.
    #[error("`{0}` is not a pattern: write pairs of hexadecimal digits after it, like hex:00ff")]
    NotHex(String),
    /// It is not a range of bytes.
    #[error(
        "`{0}` is not a range of bytes of the payload; write 0-15, or 4- for all from the fifth on"
    )]
    NotAnOffset(String),
    /// It is not a name.
    #[error("`{0}` is not a name of a rule; write 1 to {NAME} letters, digits, `.`, `-` or `_`")]
    NotAName(String),
    /// It is neither a network nor an address.
    #[error("`{0}` is no network or address; write 10.1.0.0/16, 10.1.0.1 or 2001:db8::/32")]
    NotANetwork(String),
    /// No packet has both addresses.
    #[error("{from} and {to} are of different versions of IP; no packet has both")]
    Families {
        /// Where packets come from.
        from: IpNet,
        /// Where they go to.
        to: IpNet,
    },
    /// A network of all addresses, which would be those of IPv4 too.
    #[error(
        "::/0 would be IPv4 as well; leave it out, or write 2000::/3 for global IPv6 addresses"
    )]
    AllAddresses,
    /// A dry run of an action that drops nothing.
    #[error("the action `{0}` drops nothing that a dry run could let pass; leave the dry run out")]
    NothingToTry(PolicyAction),
    /// A pattern is longer than where it is looked for.
    #[error("{pattern} has no room in bytes {offset} of the payload; widen them")]
    NoRoom {
        /// The pattern.
        pattern: Pattern,
        /// Where it is looked for.
        offset: Offset,
    },
    /// An interface has too many rules; so many.
    #[error("{0} rules are too many; there is room for {MAX_RULES}")]
    TooManyRules(usize),
    /// Two rules of an interface have this name.
    #[error("two rules have the name `{0}`; give each its own")]
    Twice(RuleName),
}

impl From<PolicyError> for Error {
    fn from(cause: PolicyError) -> Self {
        Self::caused_by(Kind::Invalid, cause)
    }
}

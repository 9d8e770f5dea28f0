//! Names of the read-only variables of any function's programs. They are fixed at load, and the
//! verifier removes what they rule out.

/// `u32`: length of the interface's link header in bytes,
/// [`LINK_ETHERNET`](crate::wire::LINK_ETHERNET) or [`LINK_NONE`](crate::wire::LINK_NONE).
pub const LINK_LEN: &str = "LINK_LEN";

/// `u32`: 1 on a kernel whose pull looks at a pending checksum before it moves the start of
/// the packet (before 6.2, `bpf: pull before calling skb_postpull_rcsum`).
pub const SHRINK_TWICE: &str = "SHRINK_TWICE";

/// `u32`: how many bytes of each packet are recorded ([`crate::report::copy`]); 0 if none is.
pub const RECORD: &str = "RECORD";

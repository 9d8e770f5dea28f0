//! What the interfaces of a group have in common, for the process after this one.

/// What all interfaces of a group have in common, in a pinned map.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Group {
    /// Key of the tunnel's initial sequence numbers, for programs that replace these
    /// ([`Secret`](super::isn::Secret)).
    pub secret: [u64; 2],
    /// 1 if a caller must prove that it knows a secret.
    pub hidden: u64,
}

crate::plain!(Group: 24);

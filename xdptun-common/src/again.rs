//! Packets that pass a hook again, or that xdptun itself made.
//!
//! A function that counts datagrams must leave these alone: it has met the datagram before, or
//! there is none. Two fields of the packet tell:
//!
//! * `skb->mark` of clones and of frames of the daemon. The program that they are for reads
//!   it and clears it.
//! * `skb->tc_index` of packets that a program redirects to the hook: pieces of a
//!   super-packet, and answers. Their `skb->mark` belongs to the user.
//! * Both, of restored datagrams that pass the ingress hook again, behind GRO (`tunnel/join.rs`).
//!
//! The kernel clears the mark of a packet that crosses to another network namespace, but not
//! its `tc_index`. So the tunnel's program, the last on the hook, clears that.

/// `skb->tc_index` of a packet that a program has redirected.
pub const TC_INDEX: u32 = 0x7864;

/// The first of xdptun's own marks: "xdp" and a number, so that a user's marks do not meet it
/// by chance.
pub const OWN: u32 = 0x7864_7000;

/// The first mark of the tunnel, which has 16.
pub const OF_TUNNEL: u32 = OWN;

/// The first mark of the gateway.
pub const OF_GATEWAY: u32 = OWN + 0x10;

/// The first mark of the policy.
pub const OF_POLICY: u32 = OWN + 0x20;

/// How many marks are xdptun's own.
const MARKS: u32 = 0x100;

/// Whether a mark is one of xdptun's own.
#[inline(always)]
#[must_use]
pub const fn is_own(mark: u32) -> bool {
    mark & !(MARKS - 1) == OWN
}

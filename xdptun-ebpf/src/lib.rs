//! The kernel side of xdptun: what becomes of each packet. The programs are in `src/bin`, an
//! object for each file there.
//!
//! The way of a packet: [`xdptun_common::parse`] finds its transport header,
//! [`tunnel::rules`] tells whether it is ours, [`tunnel::table`] finds the flow,
//! [`xdptun_common::tunnel::handshake`] decides, and [`tunnel::disguise`],
//! [`tunnel::restore`] or [`tunnel::reply`] change the packet.
//!
//! A folder is a room. A room uses itself and those before it: [`machine`], [`packet`],
//! [`host`], [`flow`]; then those of the functions, [`tunnel`], [`policy`], [`gateway`] and [`nat64`],
//! which do not know each other. Each map and read-only variable is in the file of its owner.
//! A function is a feature of this crate: with it come its room and its object.
//!
//! The library compiles for the host as well, where its unit tests run. A test must not call
//! a helper of the kernel: that is a jump to the helper's number.
#![no_std]
#![cfg_attr(
    target_arch = "bpf",
    expect(
        internal_features,
        reason = "core has no atomic types for BPF, only the intrinsics below them"
    ),
    feature(asm_experimental_arch, core_intrinsics)
)]

#[cfg(test)]
extern crate std;

pub mod flow;
#[cfg(feature = "gateway")]
pub mod gateway;
pub mod host;
pub mod machine;
#[cfg(feature = "nat64")]
pub mod nat64;
pub mod packet;
#[cfg(feature = "policy")]
pub mod policy;
#[cfg(feature = "tunnel")]
pub mod tunnel;

//! The wrapper that makes shared types keys and values of aya's maps.

use aya::Pod;
use xdptun_common::Plain;

/// A shared type that aya may copy byte by byte.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct AsPod<T>(pub T);

// SAFETY: `Plain` guarantees what `Pod` requires: no padding, any bytes valid.
unsafe impl<T: Plain> Pod for AsPod<T> {}

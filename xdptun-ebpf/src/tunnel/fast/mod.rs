//! The common case in one piece: data of established flows, and packets that are none of ours.
//!
//! Calls are what costs time, so there is next to none here, and the verifier walks a short
//! function instead of all that [`super::egress`] and [`super::ingress`] can do. Whatever does
//! not fit is missed before anything was changed, and goes to these.

pub mod egress;
pub mod ingress;

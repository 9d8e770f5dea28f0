//! Code shared by the suites that run only in guests (`cargo xtask vm`).
//!
//! | module | what it gives |
//! |---|---|
//! | [`card`] | the guest's network card as the interface of a host |
//! | [`twin`] | orders from one guest to the other |

pub mod card;
pub mod twin;

//! When a host may send.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// All that send on a host pass it first. It is closed while the host is without xdptun.
#[derive(Debug, Default)]
pub struct Gate(RwLock<()>);

impl Gate {
    /// Waits until the host may send. Keep the returned guard while it does.
    pub fn pass(&self) -> RwLockReadGuard<'_, ()> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nothing is being sent; nothing is until the guard is dropped.
    pub fn close(&self) -> RwLockWriteGuard<'_, ()> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

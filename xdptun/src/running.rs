//! Tasks that end with whoever wants them.

use tokio::task::{AbortHandle, JoinHandle};

/// A task that ends when this is dropped.
#[derive(Debug)]
pub struct Running(AbortHandle);

impl<T> From<JoinHandle<T>> for Running {
    fn from(task: JoinHandle<T>) -> Self {
        Self(task.abort_handle())
    }
}

impl Running {
    /// Ends it now.
    pub fn end(&self) {
        self.0.abort();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

//! Tasks that end with their owner.

use tokio::task::{AbortHandle, JoinHandle};

/// A task that ends when this is dropped.
#[derive(Debug)]
pub struct Task(AbortHandle);

impl<T> From<JoinHandle<T>> for Task {
    fn from(task: JoinHandle<T>) -> Self {
        Self(task.abort_handle())
    }
}

impl Task {
    /// Ends it now.
    pub fn end(&self) {
        self.0.abort();
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.end();
    }
}

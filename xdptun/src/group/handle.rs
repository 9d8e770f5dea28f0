//! The handle of a running group, and the reasons to pause its daemon.

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::orders::{Order, Orders};
use super::recording::Recording;
use crate::error::{Context as _, Result};

/// Why a daemon has to pause; `P` is the plan of its function.
pub enum Reason<P> {
    /// Another process takes over.
    Succeeded,
    /// The start failed elsewhere: the group detaches what this process attached, and leaves
    /// what it took over.
    Abandoned,
    /// Something that its plan depends on has changed.
    Amend(Amendment<P>),
    /// It gets another plan.
    Change {
        /// The plan.
        plan: Box<P>,
        /// Gets the result.
        done: oneshot::Sender<Result<()>>,
    },
    /// One more interface belongs to its group.
    Join {
        /// The name.
        name: String,
        /// Gets whether it was added; an interface that is not there is waited for.
        done: oneshot::Sender<Result<bool>>,
    },
    /// An interface, not the last one, leaves its group.
    Leave {
        /// The name.
        name: String,
        /// Gets the result.
        done: oneshot::Sender<Result<()>>,
    },
    /// A client wants the packets of an interface.
    Record(Recording),
    /// No client reads the recording any more.
    StopRecording,
}

/// A change of a plan.
pub type Amendment<P> = Box<dyn FnOnce(&mut P)>;

/// Gives a group its orders. Without it the group stops.
pub struct Handle<P>(UnboundedSender<Order<Reason<P>>>);

impl<P> Clone for Handle<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<P> Handle<P> {
    /// A handle, and the orders that it gives.
    #[must_use]
    pub fn new() -> (Self, Orders<Reason<P>>) {
        let (sender, orders) = unbounded_channel();
        (Self(sender), orders)
    }

    /// Gives an order. Does nothing if the group has ended.
    pub fn order(&self, order: Order<Reason<P>>) {
        let _ended = self.0.send(order);
    }

    /// Gives the group another plan, and waits until it is applied.
    ///
    /// # Errors
    ///
    /// If it cannot be applied; then the group is as it was.
    pub async fn change(&self, plan: P) -> Result<()> {
        let plan = Box::new(plan);
        self.ask(|done| Reason::Change { plan, done }).await
    }

    /// Adds an interface to the group, and waits until it is attached, if it is there. Returns
    /// whether it was not in the group before.
    ///
    /// # Errors
    ///
    /// If it cannot be attached; then the group is as it was.
    pub async fn join(&self, name: String) -> Result<bool> {
        self.ask(|done| Reason::Join { name, done }).await
    }

    /// Takes an interface, not the last one, out of the group, and waits until it is detached.
    ///
    /// # Errors
    ///
    /// If it cannot be detached.
    pub async fn leave(&self, name: String) -> Result<()> {
        self.ask(|done| Reason::Leave { name, done }).await
    }

    async fn ask<T>(
        &self,
        reason: impl FnOnce(oneshot::Sender<Result<T>>) -> Reason<P>,
    ) -> Result<T> {
        let (done, outcome) = oneshot::channel();
        self.order(Order::Pause(reason(done)));
        outcome.await.context("it has ended")?
    }
}

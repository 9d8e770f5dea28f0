//! The handle of a running tunnel, and the reasons to pause its daemon.

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::daemon::{Order, Orders};
use super::plan::Plan;
use super::recording::Recording;
use super::resolve::Addresses;
use crate::error::{Context as _, Result};

/// Why a daemon has to pause.
#[derive(Debug)]
pub enum Reason {
    /// Another process takes over.
    Succeeded,
    /// The start failed elsewhere: the tunnel detaches what this process attached, and leaves
    /// what it took over.
    Abandoned,
    /// The names of its peers resolve to other addresses now.
    Addresses(Addresses),
    /// It gets another plan.
    Change {
        /// The plan.
        plan: Box<Plan>,
        /// Gets the result.
        done: oneshot::Sender<Result<()>>,
    },
    /// One more interface belongs to its group.
    Join {
        /// The name.
        name: String,
        /// Gets the result; an interface that is not there is waited for.
        done: oneshot::Sender<Result<()>>,
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

/// Gives a tunnel its orders. Without it the tunnel stops.
#[derive(Clone, Debug)]
pub struct Handle(UnboundedSender<Order<Reason>>);

impl Handle {
    /// A handle, and the orders that it gives.
    #[must_use]
    pub fn new() -> (Self, Orders<Reason>) {
        let (sender, orders) = unbounded_channel();
        (Self(sender), orders)
    }

    /// Gives an order. Does nothing if the tunnel has ended.
    pub fn order(&self, order: Order<Reason>) {
        let _ended = self.0.send(order);
    }

    /// Gives the tunnel another plan, and waits until it is applied.
    ///
    /// # Errors
    ///
    /// If it cannot be applied; then the tunnel is as it was.
    pub async fn change(&self, plan: Plan) -> Result<()> {
        let plan = Box::new(plan);
        self.ask(|done| Reason::Change { plan, done }).await
    }

    /// Adds an interface to the group, and waits until it is attached, if it is there.
    ///
    /// # Errors
    ///
    /// If it cannot be attached; then the tunnel is as it was.
    pub async fn join(&self, name: String) -> Result<()> {
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

    async fn ask(&self, reason: impl FnOnce(oneshot::Sender<Result<()>>) -> Reason) -> Result<()> {
        let (done, outcome) = oneshot::channel();
        self.order(Order::Pause(reason(done)));
        outcome.await.context("it has ended")?
    }
}

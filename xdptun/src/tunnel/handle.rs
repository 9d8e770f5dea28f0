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
    /// A client wants its packets.
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
        let (done, outcome) = oneshot::channel();
        let plan = Box::new(plan);
        self.order(Order::Pause(Reason::Change { plan, done }));
        outcome.await.context("it has ended")?
    }
}

//! Orders to a daemon, and the ways in which it ends.

use tokio::sync::mpsc::UnboundedReceiver;

/// Why the daemon ended.
pub enum End<T> {
    /// An order to stop; it ended every flow.
    Stopped,
    /// An order to pause, for this reason; flows go on.
    Paused(T),
    /// An interface is gone, or one that was missing is there.
    InterfacesChanged,
}

/// An order to a daemon.
pub enum Order<T> {
    /// End every flow, and then the daemon.
    Stop,
    /// End the daemon and leave the flows to the next one, for this reason.
    Pause(T),
}

/// The receiving end of orders. Without a sender, the daemon stops.
pub type Orders<T> = UnboundedReceiver<Order<T>>;

/// Waits for the next order.
pub async fn next<T>(orders: &mut Orders<T>) -> Order<T> {
    orders.recv().await.unwrap_or(Order::Stop)
}

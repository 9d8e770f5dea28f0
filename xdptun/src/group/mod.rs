//! Interfaces that one process carries together, for any function: they share its programs,
//! maps and daemon.
//!
//! A [`Group`] attaches, carries, follows interfaces that go and come back, and detaches. What
//! a function does is behind the trait [`Function`].

pub mod attached;
pub mod carried;
mod change;
pub mod check;
pub mod counter;
pub mod detach;
pub mod events;
pub mod function;
mod handle;
pub mod load;
mod loaded;
mod members;
pub mod options;
pub mod orders;
pub mod pinned;
pub mod queue;
mod recording;
pub mod refusal;
mod run;
mod take_over;
mod wait;

pub use attached::Attached;
pub use carried::Carried;
pub use function::Function;
pub use handle::{Handle, Reason};
pub use loaded::Loaded;
pub use options::{Options, Trace};
pub use orders::{End, Order, Orders};
pub use recording::Recording;
pub use run::{Group, Progress};
pub use take_over::{Incumbent, TAKE_OVER, already};
pub use wait::{Waited, wait_for};

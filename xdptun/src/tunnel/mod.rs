//! The tunnel: UDP datagrams that cross the network as TCP segments.

mod attach;
mod carried;
pub mod daemon;
pub mod detach;
mod handle;
mod keys;
mod load;
mod local;
pub mod maps;
pub(crate) mod options;
pub(crate) mod pinned;
mod plan;
mod recording;
pub mod resolve;
mod run;
pub(crate) mod secret;
mod sizes;
mod take_over;
mod tcp_defaults;
mod wait;

pub use attach::Attached;
pub use carried::Carried;
pub use handle::{Handle, Reason};
pub use keys::Keys;
pub use load::{Programs, try_load};
pub use options::Trace;
pub use plan::Plan;
pub use recording::Recording;
pub use run::{Progress, Tunnel};
pub use take_over::{Incumbent, TAKE_OVER};
pub use wait::{Waited, wait_for};

use crate::datapath::function::Function;

/// The tunnel's programs.
pub const FUNCTION: Function = Function {
    name: "tunnel",
    ingress: "xdptun_ingress",
    egress: "xdptun_egress",
    splitter: "xdptun_splitter",
    xdp: "xdptun_xdp",
    xdp_frags: "xdptun_xdp_frags",
};

//! Traffic for as long as wanted, with random disturbances, and a judgement of
//! every datagram and of every frame on the wire.
//!
//! Clients behind a strict masquerading router ask a server, which answers each
//! datagram with one of its own. Meanwhile one thing after the other goes wrong,
//! in an order that a seed repeats.
//!
//! | module | what it holds |
//! |---|---|
//! | [`content`] | datagrams that tell which they are |
//! | [`book`] | what was sent and has arrived |
//! | [`traffic`] | sockets and threads of clients and server |
//! | [`peer`] | a host with xdptun |
//! | [`world`] | the network with its peers, traffic and wires |
//! | [`disturbance`] | what goes wrong, and in which order |
//! | [`forgery`] | segments that no peer sent |
//! | [`wire`] | a judgement of what crosses the router |
//! | [`journal`] | what happened, and what was found |
//! | [`run`] | a whole run |
//! | [`report`] | what came of it |

pub mod book;
pub mod content;
pub mod disturbance;
pub mod forgery;
pub mod journal;
pub mod peer;
pub mod report;
pub mod run;
pub mod traffic;
pub mod wire;
pub mod world;

pub use disturbance::Kind;
pub use report::Report;
pub use run::{Plan, run};

//! Traffic for as long as wanted, with random disturbances, and a judgement of
//! every datagram and of every frame on the wire.
//!
//! Clients behind a strict masquerading router ask a server, which answers each
//! datagram with one of its own. Meanwhile one thing after the other goes wrong,
//! in an order that a seed repeats.
//!
//! | module | what it holds |
//! |---|---|
//! | [`content`] | datagrams that name themselves |
//! | [`account`] | the datagrams of one socket, sent and arrived |
//! | [`ledger`] | the same of all clients |
//! | [`traffic`] | sockets and threads of clients and server |
//! | [`peer`] | a host with xdptun |
//! | [`world`] | the network with its peers, traffic and wires |
//! | [`deck`] | in which order things go wrong |
//! | [`disturbance`] | what goes wrong |
//! | [`change`] | what changes on a host while flows go on |
//! | [`path`] | a path that reorders or gets narrow |
//! | [`quiet`] | a while in which nothing may be lost |
//! | [`forgery`] | segments that no peer sent |
//! | [`wire`] | a judgement of the frames that cross the router |
//! | [`journal`] | the log of a run, and its findings |
//! | [`run`] | a whole run |
//! | [`report`] | the results of a run |

pub mod account;
pub mod change;
pub mod content;
pub mod deck;
pub mod disturbance;
pub mod forgery;
pub mod journal;
pub mod ledger;
pub mod path;
pub mod peer;
pub mod quiet;
pub mod report;
pub mod run;
pub mod traffic;
pub mod wire;
pub mod world;

pub use deck::Pace;
pub use disturbance::Kind;
pub use report::Report;
pub use run::{Length, Plan, run};

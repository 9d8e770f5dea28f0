//! Code that the end-to-end suites in `tests/` share.
//!
//! | module | what it gives |
//! |---|---|
//! | [`captured`] | what `xdptun capture` wrote |
//! | [`cli`] | runs of the command line that are over at once |
//! | [`conversation`] | applications that go on talking, whatever becomes of the path |
//! | [`dashboard`] | the dashboard, and a host on which all that it shows is attached |
//! | [`divided`] | datagrams that xdptun divides into two fragments |
//! | [`doctor`] | the findings of `xdptun doctor`, and the commands that it prints |
//! | [`exposition`] | metrics as a scraper reads them |
//! | [`forgery`] | segments that no peer sent |
//! | [`fragment`] | fragmentation |
//! | [`groups`] | hosts with several interfaces in one group, and applications on them |
//! | [`http`] | HTTP requests, also odd ones |
//! | [`icmp`] | ICMP errors as routers send them |
//! | [`inside`] | what inside hosts of `xdptun nat` send and get |
//! | [`kernel`] | what the running kernel can do |
//! | [`look`] | segments compared field by field |
//! | [`mode`] | the ways to attach, to loop over |
//! | [`nets`] | networks beyond those of the laboratory |
//! | [`oracle`] | hosts whose own TCP ours is compared with |
//! | [`packet`] | TCP packets taken apart and put together again |
//! | [`device_sum`] | the checksum that a device made of a packet |
//! | [`wire`] | what hosts put on the wire, in order |
//! | [`status`] | counters and flows, and which of them moved |
//! | [`raw`] | segments that no stack would send |
//! | [`scan`] | what scanners send to find out what a port is |
//! | [`service`] | `xdptun run` and its file |
//! | [`storm`] | a wire that loses, reorders and doubles segments |
//! | [`socket`] | UDP sockets that lose nothing, or that watch their path |
//! | [`tcp`] | real TCP connections |
//! | [`through`] | clients that talk to servers through a gateway |
//! | [`traces`] | what an attachment leaves on a host |
//! | [`translated`] | what IPv6-only clients of `xdptun nat64` send and get |
//! | [`traffic`] | datagrams that keep coming while something else happens |
//! | [`unpacked`] | programs that `cargo xtask setup` unpacks |
//! | [`vxlan`] | tunnels, whose packets have checksums of their own |

use std::time::Duration;

pub mod captured;
pub mod cli;
pub mod conversation;
pub mod dashboard;
pub mod device_sum;
pub mod divided;
pub mod doctor;
pub mod exposition;
pub mod forgery;
pub mod fragment;
pub mod groups;
pub mod http;
pub mod icmp;
pub mod inside;
pub mod kernel;
pub mod look;
pub mod memory;
pub mod mode;
pub mod nets;
pub mod oracle;
pub mod packet;
pub mod raw;
pub mod scan;
pub mod service;
pub mod socket;
pub mod status;
pub mod storm;
pub mod tcp;
pub mod through;
pub mod traces;
pub mod traffic;
pub mod translated;
pub mod unpacked;
pub mod vxlan;
pub mod wire;

/// The owned port of every suite.
pub const PORT: u16 = 8000;

/// How long anything may take that happens at once on an idle machine.
pub const LIMIT: Duration = Duration::from_secs(10);

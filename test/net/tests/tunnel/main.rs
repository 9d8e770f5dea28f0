//! Datagrams that become segments, and segments that become datagrams.

mod bare;
mod counters;
mod device_sum;
mod echo;
mod foreign;
mod fragments;
mod gro;
mod icmp;
mod jumbo;
mod lossy;
mod merged;
mod mtu;
mod oneway;
mod options;
mod paged;
mod scale;
mod segmentation;
mod tunnelled;

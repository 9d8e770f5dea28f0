//! Datagrams that become segments, and segments that become datagrams.

mod bare;
mod carried;
mod counters;
mod device_sum;
mod echo;
mod foreign;
mod fragments;
mod gro;
mod group;
mod icmp;
mod joined;
mod jumbo;
mod lossy;
mod merged;
mod mixed;
mod mtu;
mod multihomed;
mod oneway;
mod options;
mod paged;
mod scale;
mod segmentation;
mod tunnelled;
mod veil;

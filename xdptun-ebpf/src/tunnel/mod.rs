//! The tunnel: datagrams leave as segments, and segments come back as datagrams.

pub mod calls;
pub mod control;
pub mod cookie;
pub mod defaults;
pub mod disguise;
pub mod egress;
pub mod fragments;
pub mod icmp;
pub mod ingress;
pub mod proof;
pub mod resets;
pub mod restore;
pub mod rules;
pub mod scope;
pub mod sent;
pub mod share;
pub mod table;
pub mod verify;
pub mod vlan;
pub mod xdp;

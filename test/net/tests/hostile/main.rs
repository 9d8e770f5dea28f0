//! What attackers, scanners and strangers get from a port, and what they cannot do.

mod attack;
mod attack_table;
mod look;
mod probing;
mod replay;
mod rotation;
mod scanned;
mod strangers;
mod verified;

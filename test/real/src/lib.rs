//! Programs that others wrote, and what carries them.

pub mod caddy;
pub mod compare;
pub mod mixed;
pub mod ndpi;
pub mod openvpn;
pub mod path;
pub mod phantun;
pub mod wireguard;

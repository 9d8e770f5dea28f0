//! Programs that others wrote, and what carries them.

pub mod openvpn;

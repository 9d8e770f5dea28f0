//! Programs that others wrote, over xdptun.

mod compat;
mod http3;
mod openvpn;
mod phantun;
mod veil;
mod wireguard;

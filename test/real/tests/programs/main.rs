//! Programs that others wrote, over xdptun.

mod openvpn;

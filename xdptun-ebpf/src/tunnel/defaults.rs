//! What a TCP connection of this host begins with.

use aya_ebpf::Global;
use xdptun_common::tunnel::config::TcpDefaults;

#[unsafe(no_mangle)]
static TCP_DEFAULTS: Global<TcpDefaults> = Global::new(TcpDefaults::LINUX);

/// What a TCP connection of this host begins with.
#[inline(always)]
pub fn tcp_defaults() -> TcpDefaults {
    TCP_DEFAULTS.load()
}

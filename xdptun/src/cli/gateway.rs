//! Options that `xdptun forward`, `xdptun nat` and `xdptun nat64` share.

use anyhow::Result;
use clap::Args;

use super::once;
use crate::config::{Config, MaxSessions, TcChoice, TcpTimeout, TcpTransitoryTimeout, UdpTimeout};

/// The options.
#[derive(Args)]
pub struct Options {
    /// How many sessions may be open at once.
    #[arg(long, value_name = "N", default_value_t)]
    max_sessions: MaxSessions,

    /// Time without a datagram after which a UDP session ends: seconds, or a number with s, m, h
    /// or d.
    #[arg(long, value_name = "TIME", default_value_t)]
    udp_timeout: UdpTimeout,

    /// Time without a segment after which an open connection ends, likewise.
    #[arg(long, value_name = "TIME", default_value_t)]
    tcp_timeout: TcpTimeout,

    /// Time without a segment after which a connection that is not open yet, or is closing,
    /// ends, likewise.
    #[arg(long, value_name = "TIME", default_value_t)]
    tcp_transitory_timeout: TcpTransitoryTimeout,

    #[command(flatten)]
    once: once::Options,
}

impl Options {
    /// How the tc programs are attached.
    pub const fn tc(&self) -> TcChoice {
        self.once.tc
    }

    /// The configuration that they ask for, without an interface.
    pub fn configuration(&self) -> Config {
        Config {
            max_sessions: self.max_sessions,
            udp_timeout: self.udp_timeout,
            tcp_timeout: self.tcp_timeout,
            tcp_transitory_timeout: self.tcp_transitory_timeout,
            ..self.once.configuration()
        }
    }

    /// Runs the service; see [`once::Options::run`].
    pub fn run(&self, config: Config, drains: bool, advice: &'static str) -> Result<()> {
        self.once.run(config, drains, advice)
    }
}

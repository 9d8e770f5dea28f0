//! Options that `xdptun forward`, `xdptun nat` and `xdptun nat64` share.

use std::net::SocketAddr;
use std::rc::Rc;

use anyhow::Result;
use clap::Args;

use super::terminal::Terminal;
use crate::config::{
    Config, LogLevel, MaxSessions, TcChoice, TcpTimeout, TcpTransitoryTimeout, UdpTimeout,
};
use crate::error::Kind;
use crate::service::{self, Mode};

/// The options.
#[derive(Args)]
pub struct Options {
    /// How many sessions may be open at once.
    #[arg(long, value_name = "N", default_value_t)]
    max_sessions: MaxSessions,

    /// Time without a datagram after which a UDP session ends, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t)]
    udp_timeout: UdpTimeout,

    /// Time without a segment after which an open connection ends, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t)]
    tcp_timeout: TcpTimeout,

    /// Time without a segment after which a connection that is not open yet, or is closing,
    /// ends, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t)]
    tcp_transitory_timeout: TcpTransitoryTimeout,

    /// How the tc programs are attached.
    #[arg(long, value_enum, default_value = "auto")]
    pub tc: TcChoice,

    /// Serve metrics for Prometheus on this address, like 127.0.0.1:9469.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,

    /// Take over from the xdptun that runs this command here: to upgrade it or to change its
    /// options. Sessions go on.
    #[arg(long)]
    take_over: bool,

    /// How much to log.
    #[arg(long, value_enum, default_value = "info")]
    log_level: LogLevel,
}

impl Options {
    /// The configuration that they ask for, without an interface.
    pub fn configuration(&self) -> Config {
        Config {
            log_level: self.log_level,
            metrics: self.metrics,
            max_sessions: self.max_sessions,
            udp_timeout: self.udp_timeout,
            tcp_timeout: self.tcp_timeout,
            tcp_transitory_timeout: self.tcp_transitory_timeout,
            ..Config::default()
        }
    }

    /// Runs the service; sessions of rules that are gone go on if it `drains`. `advice` says how
    /// two commands can share an interface.
    pub fn run(&self, config: Config, drains: bool, advice: &'static str) -> Result<()> {
        let frontend = Rc::new(Terminal::new(self.log_level).with_way_out("; Ctrl-C detaches"));
        let mode = Mode {
            file: None,
            incumbent: super::incumbent(self.take_over),
            drains,
        };
        super::block_on(async {
            let result = service::run(config, mode, frontend).await;
            Ok(result.map_err(|error| match error.kind() {
                Kind::AlreadyAttached => error.context(advice),
                _ => error,
            })?)
        })
    }
}

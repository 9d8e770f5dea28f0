//! Options of the commands that run a function without a file, until Ctrl-C.

use std::net::SocketAddr;
use std::rc::Rc;

use anyhow::Result;
use clap::Args;

use super::terminal::Terminal;
use crate::config::{Config, LogLevel, TcChoice};
use crate::error::Kind;
use crate::service::{self, Mode};

/// The options.
#[derive(Args)]
// A group has the name of its type, and those of two functions are of the same name.
#[group(skip)]
pub struct Options {
    /// How the tc programs are attached.
    #[arg(long, value_enum, default_value = "auto")]
    pub tc: TcChoice,

    /// Serve metrics for Prometheus on this address, like 127.0.0.1:9469.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,

    /// Replace the xdptun that runs this command here, to upgrade it or to change its options. What
    /// it carries goes on, and no packet bypasses it meanwhile.
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
